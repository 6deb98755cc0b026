// What a run tells while it runs: a line of progress for people, a line of JSON a step for
// programs.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/files.h"
#include "base/result.h"
#include "train/spikes.h"
#include "train/validation.h"

namespace quintet {

struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0, z_loss = 0, grad_norm = 0, learning_rate = 0;
  double seconds = 0;       // of the whole step
  double data_seconds = 0;  // of which: waiting for data
  double tokens = 0;        // source and target, of the global batch
  double flops = 0;         // matrix products, without recomputation
  // Share of the places that hold text, and not padding, in the batches of the rank that reports.
  double source_fill = 1, target_fill = 1;
  double time = 0;                                     // when it was done, in seconds since 1970
  std::int64_t samples_so_far = 0, tokens_so_far = 0;  // of the run: sequences, places in them
  bool skipped = false;                                // nothing was updated
  std::optional<double> noise_scale =
      std::nullopt;               // of the gradient, in sequences, where it is known
  std::int64_t rewound_from = 0;  // the step of a spike before which the run went back to this one
};

// Appends to <folder>/metrics.jsonl. On resume, lines of steps that will be run again are dropped
// first. Beside what it is told it writes what helps to judge a run: a smoothed validation loss,
// and which steps are spikes (by the defaults of train.spike_*, whatever the run does about them).
class MetricsFile {
 public:
  static Result<MetricsFile> open(const Path& folder, std::int64_t resumed_step);
  // `validation`: that of this step, if there was one.
  Status append(const StepMetrics& metrics, const ValidationResult* validation);

 private:
  // A line that was written: what spikes and smoothing rest on.
  void remember(const Json& line);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  Path path_;
  std::unique_ptr<std::FILE, Close> file_;
  SpikeWatch spikes_{{.action = OnSpike::kSkip}, {}};
  std::optional<double> smoothed_;  // validation loss
};

// In a log a line for every log_every steps, with their averages. On a terminal one line that is
// redrawn in place, with averages that forget what is longer ago than log_every steps.
class Progress {
 public:
  Progress(std::int64_t total_steps, std::int64_t log_every, double memory_bytes);
  void step(const StepMetrics& metrics);
  // Says what a validation found, and whether that is the best so far.
  void validated(std::int64_t step, const ValidationResult& result, bool best);
  // Ends a line that was being redrawn.
  void finish();

 private:
  const std::int64_t total_steps_, log_every_;
  const double memory_bytes_;
  const bool terminal_;
  bool line_open_ = false;
  // Sums over steps, and over how many.
  double loss_ = 0, seconds_ = 0, data_seconds_ = 0, tokens_ = 0, flops_ = 0, count_ = 0;
  double since_drawn_ = 0;  // seconds
};

}  // namespace quintet
