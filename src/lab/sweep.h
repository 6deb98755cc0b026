// The smallest study: the same training under a list of layouts, once each, side by side: what each
// costs in time, memory and bytes, and that all learn the same. Rows run as a study's do
// (measured_run.h); what is asked over many factors, with repeats and a store, is a study.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "train/ledger.h"
#include "train/run_config.h"

namespace quintet {

struct SweepRow {
  std::string settings;  // "tp=2,zero=1", as asked for
  RunSummary run;
  std::vector<double> losses;             // by step
  double loss_distance = 0;               // largest relative difference to the first that ran
  std::string failure;                    // why there is no result; empty when there is one
  ErrorCode code = ErrorCode::kInternal;  // of the failure
};

// The layouts that are told most by, on so many ranks: each method by itself, then together. The
// first is one rank, the measure of all others.
std::vector<std::string> usual_layouts(std::int64_t ranks);

// A configuration with "tp=2,zero=1" put into its [parallel] section (or "batch.micro_batch=4" into
// another) and micro-batches accumulated so that the global batch stays that of one rank.
Result<RunConfig> with_layout(const RunConfig& config, const std::string& settings,
                              std::int64_t ranks);

// Trains under one layout, in a process of its own for each rank, with files in `folder`. What goes
// wrong is the row's failure; only an interruption, which is meant for the sweep, is an error.
Result<SweepRow> run_layout(const RunConfig& config, const std::string& settings,
                            std::int64_t ranks, const std::string& folder,
                            const std::atomic<bool>* interrupted = nullptr);

// The row that others are compared with; none where no layout ran.
const SweepRow* first_that_ran(const std::vector<SweepRow>& rows);
// Fills in each row's distance to it.
void compare_losses(std::vector<SweepRow>& rows);
std::string table_of(const std::vector<SweepRow>& rows);

}  // namespace quintet
