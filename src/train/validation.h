// The loss on text that is not trained on: the same sequences at every validation and under every
// layout, however they are cut into batches. Runs between two steps, in the step's own memory, and
// leaves nothing behind: training goes on as if it had not been.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "parallel/communicator.h"
#include "runtime/executor.h"
#include "train/validation_data.h"

namespace quintet {

// Sums over the counted labels of some sequences.
struct LossSum {
  double loss = 0;                         // cross-entropy in nats
  std::int64_t tokens = 0, sequences = 0;  // labels that count
  std::int64_t bytes = 0;                  // of the text that these stand for; 0: not known

  void add(const LossSum& other);
  double mean() const { return loss / static_cast<double>(tokens); }
  // All labels' bits, sentinels' too, for each byte of text that had to be found.
  std::optional<double> bits_per_byte() const;
};

struct ValidationResult {
  LossSum total;
  struct Language {
    std::string name;
    LossSum sum;
  };
  std::vector<Language> languages;  // those with examples, in the data's order
  double seconds = 0;

  double loss() const { return total.mean(); }
  // {"loss", "bits_per_byte", "tokens", "sequences", "seconds", "languages": {name: ...}}
  Json to_json() const;
};

class Validation {
 public:
  // Compiles the program of validation: beside `step`, in whose arena it will run, or on its own.
  // `options` are training's. Nothing is allocated yet.
  static Result<Validation> create(const RunConfig& config, const StepOptions& options,
                                   std::int64_t sequences, std::int32_t rank, const Program* step);

  const StepOptions& options() const { return options_; }
  const Program& program() const { return *program_; }
  // Makes the executor: beside the step's, before its arena holds anything, or on its own. Called
  // by all ranks together.
  Status make_ready(Executor* step, World& world);
  Executor& executor() { return *executor_; }

  // All ranks together, and all get the same. A request to stop is heard between two batches: there
  // is no result then but kInterrupted.
  Result<ValidationResult> run(World& world);

 private:
  Validation() = default;
  Status sum_up(const std::vector<Batch>& batches, std::int64_t run, std::vector<LossSum>& sums);

  StepOptions options_;
  ValidationData data_;
  std::int64_t sequences_ = 0;
  std::unique_ptr<Program> program_;  // the executor points to it
  std::unique_ptr<Executor> executor_;
};

}  // namespace quintet
