// Event files for TensorBoard: a record for each step with its scalars (docs/formats.md). A run
// begins a new file at every start; one that is resumed tells readers to forget the steps that it
// will do again.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "train/metrics.h"

namespace quintet {

struct Scalar {
  std::string tag;
  double value = 0;
};

// A record as such files have them: length, data, and the masked CRC-32C of each.
std::string tensorboard_record(std::string_view data);
// Serialized Event messages: the one a file begins with, the restart of a run whose steps from
// `step` on are to be forgotten, and the scalars of a step.
std::string version_event(double time);
std::string restart_event(double time, std::int64_t step);
std::string scalars_event(double time, std::int64_t step, const std::vector<Scalar>& scalars);

// What is shown of a step: train/..., throughput/..., and after a validation validate/...
std::vector<Scalar> scalars_of(const StepMetrics& metrics, const ValidationResult* validation);

class TensorboardFile {
 public:
  // In the run's folder; `resumed_step`: the last step that counts of those before, 0 for none.
  static Result<TensorboardFile> open(const Path& folder, std::int64_t resumed_step);
  Status append(const StepMetrics& metrics, const ValidationResult* validation);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  Status write(std::string_view event);

  Path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace quintet
