// A search, as its TOML file describes it (docs/search.md): a question, what is searched, what is
// fixed, how long trials train and on which models. Everything is read and checked before anything
// runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/result.h"
#include "lab/search/sampler.h"
#include "lab/search/space.h"
#include "train/run_config.h"

namespace quintet {

struct SearchSection {
  std::string name, question;
  std::string objective = "validation_loss";
  std::string sampler = "gp";
  std::int64_t trials = 32, seed = 1, startup = 10, parallel = 1, validation_sequences = 256;
  void list(FieldList& fields);
};

// How long a trial trains at most, and where it may be stopped before.
struct BudgetSection {
  std::int64_t steps = 0, tokens = 0;
  std::int64_t rungs = 1, reduction = 3, spared = 0;
  std::int64_t total_steps = 0;
  void list(FieldList& fields);
};

struct LadderSection {
  std::vector<std::string> models;
  std::int64_t promote = 8;
  double growth = 1;
  void list(FieldList& fields);
};

// Where trials run, or for which machine they are planned.
struct SearchPlaceSection {
  std::int64_t nodes = 1, ranks_per_node = 1;
  std::string machine;
  double memory_gib = 0;
  double timeout = 86400;
  void list(FieldList& fields);
};

// One trial on one model of the ladder: its configuration at full length, and the steps after which
// each rung ends.
struct TrialPlan {
  RunConfig config;
  std::int64_t global_batch = 0;  // sequences in a step
  std::vector<std::int64_t> rung_steps;
};

struct SearchFile {
  SearchSection search;
  BudgetSection budget;
  LadderSection ladder;
  SearchPlaceSection place;
  SearchSpace space;
  ConfigValues fixed;
  std::string text, hash;  // the document; 16 hexadecimal digits of it

  // `file` names it in errors.
  static Result<SearchFile> parse(const std::string& text, const std::string& file);

  bool simulated() const { return search.objective == "step_seconds"; }
  std::int64_t ranks() const { return place.nodes * place.ranks_per_node; }
  // Models of the ladder; without one, the model that is fixed.
  std::int64_t levels() const { return std::max<std::int64_t>(std::ssize(ladder.models), 1); }
  SamplerOptions sampler() const;

  // The run of a trial. An error is the reason why there cannot be one: a layout or a batch that
  // does not fit, a schedule that does not suit the rungs. `threads`: of each rank, where the file
  // does not say.
  Result<TrialPlan> plan_of(const Settings& settings, std::int64_t level,
                            std::int64_t threads) const;
};

}  // namespace quintet
