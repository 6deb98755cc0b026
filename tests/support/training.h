// Training runs in this process, and what they wrote.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "train/trainer.h"

namespace quintet::testing {

inline Result<TrainResult> train_alone(RunConfig config) {
  return train(std::move(config), *make_single_world());
}

inline std::vector<nlohmann::json> metrics_of(const Path& folder) {
  std::ifstream file(folder / "metrics.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace quintet::testing
