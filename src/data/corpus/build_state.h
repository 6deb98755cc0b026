// How far an unfinished build has come: `build.json` in the corpus's folder, replaced at every
// checkpoint and gone when the corpus is complete.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file_store.h"
#include "base/result.h"
#include "data/corpus/block_pipeline.h"
#include "data/corpus/corpus_writer.h"

namespace quintet {

struct BuildState {
  enum class Phase : std::uint8_t { kFingerprints, kTokens };

  std::string plan_digest;
  Phase phase = Phase::kTokens;
  PipelinePosition position;
  std::uint64_t input_bytes = 0;            // done in this phase
  std::vector<std::uint64_t> fingerprints;  // sizes of the finder's files
  CorpusPosition corpus;
  std::map<std::string, std::int64_t> left_out;
  std::int64_t bad_lines = 0;
  std::uint64_t tokens_written = 0;
  std::vector<std::string> first_bad_lines;
};

inline constexpr const char* kBuildStateFile = "build.json";

Status save_build_state(FileStore& files, const Path& folder, const BuildState& state);
// Nothing when there is none.
Result<std::optional<BuildState>> load_build_state(const Path& folder);

}  // namespace quintet
