// Everything a run is told, by sections. Every key is declared, documented and limited here or in
// the section it comes from; `quintet config --help-all` prints this.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "data/loader/corpus_source.h"
#include "data/loader/pairs_source.h"
#include "data/synthetic.h"
#include "optim/learning_rate.h"
#include "optim/optimizer.h"
#include "train/step_program.h"

namespace quintet {

struct ModelSection {
  std::string name = "tiny";
  std::string weights;
  std::int64_t vocabulary = -1;
  std::int64_t base_width = 0;
  double dropout = -1;
  double z_loss = 0;
  double label_smoothing = 0;
  std::int64_t loss_chunk = 0;
  void list(FieldList& fields);
};

struct BatchSection {
  std::int64_t micro_batch = 16;
  std::int64_t accumulate = 1;
  std::int64_t global = 0;
  std::vector<std::string> ramp;
  std::int64_t source = 64;
  std::int64_t target = 0;
  void list(FieldList& fields);
};

struct TrainSection {
  std::int64_t steps = 1000;
  std::int64_t stop_after = 0;
  std::int64_t seed = 1;
  std::string precision = "fp32";
  std::string gradients = "same";
  std::string recompute = "none";
  std::string device = "cpu";
  bool graph = true;
  std::int64_t threads = 0;
  double max_hours = 0;
  std::string on_spike = "none";
  double spike_loss = 2;
  double spike_norm = 10;
  std::int64_t spike_window = 50;
  std::int64_t spike_limit = 10;
  std::string skip_batches;
  bool noise_scale = false;
  void list(FieldList& fields);
};

struct OutputSection {
  std::string folder;
  std::int64_t log_every = 10;
  std::int64_t save_every = 0;
  std::int64_t keep = 2;
  std::int64_t keep_every = 0;
  std::int64_t keep_best = 0;
  bool background = true;
  bool checkpoints = true;
  std::int64_t summary_skip = 1;
  bool tensorboard = false;
  bool resume = false;
  bool resume_changed = false;
  std::string trace;
  std::int64_t trace_first = 3;
  std::int64_t trace_steps = 2;
  void list(FieldList& fields);
};

struct DataSection {
  std::string kind = "synthetic";
  CorpusConfig corpus;  // its objective is the synthetic one's, too
  SyntheticConfig synthetic;
  PairsConfig pairs;
  std::int64_t prefetch = 4;
  void list(FieldList& fields);
};

struct ValidateSection {
  std::int64_t every = 0;
  std::int64_t batches = 10;
  std::int64_t sequences = 0;
  std::string corpus;
  std::string split = "held_out";
  std::int64_t patience = 0;
  void list(FieldList& fields);
  // How many sequences, where a step trains on so many.
  std::int64_t count(std::int64_t global_batch) const {
    return sequences > 0 ? sequences : batches * global_batch;
  }
};

struct RunConfig {
  ModelSection model;
  BatchSection batch;
  TrainSection train;
  OptimizerConfig optimizer;
  LearningRateConfig schedule;
  LayoutConfig parallel;
  DataSection data;
  ValidateSection validate;
  OutputSection output;

  // The fields point into this object.
  FieldList fields();
};

// Reads a TOML file (or none, if empty), then the assignments "section.key=value".
Result<RunConfig> load_run_config(const std::string& file,
                                  const std::vector<std::string>& assignments);

// Where the tokenizer of the data is: a file, or a folder with one. Not of synthetic data.
Path tokenizer_place(const RunConfig& config);

// The tokenizer of the data that a checkpoint was trained on, if that is still there; otherwise the
// reason why there is none.
Result<Path> trained_tokenizer(const Path& checkpoint);

// What the engine compiles for such a run on so many ranks: loads the model's shape and checks that
// all fits together.
Result<StepOptions> step_options(const RunConfig& config, std::int64_t world);

}  // namespace quintet
