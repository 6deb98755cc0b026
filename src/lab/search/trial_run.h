// Runs a part of a trial, from one rung to the next, in processes of its own; or plans a step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "lab/measured_run.h"
#include "lab/search/search_file.h"
#include "lab/search/trial.h"

namespace quintet {

// One step of a trial, as its metrics.jsonl has it.
struct CurveStep {
  std::int64_t step = 0;
  double loss = std::nan(""), validation = std::nan(""), seconds = 0;
  double smoothed = std::nan("");     // of the validations up to this one
  double noise_scale = std::nan("");  // of the gradient, in sequences
  bool spike = false;
};
// The steps in the file; none where there is no file. Lines that are not whole are left out.
std::vector<CurveStep> learning_curve(const Path& trial_folder);

// The objective after so many steps: the validation there, or the mean training loss over their
// last tenth; nothing where the curve does not have it.
std::optional<double> objective_in(const std::vector<CurveStep>& curve,
                                   const std::string& objective, std::int64_t steps);

Path trial_folder(const Path& search_folder, std::int64_t trial);
// The configuration that takes a trial to a rung, with its folder; continued if it was begun.
RunConfig config_for_rung(const TrialPlan& plan, std::size_t rung, const Path& folder);
// The command as a person would type it.
std::string trial_command(const SearchFile& search, const TrialPlan& plan, std::size_t rung,
                          const Path& folder);

struct TrialOutcome {
  RungResult result;
  std::optional<std::int64_t> exit;
  bool interrupted = false;  // and there is no result
};
// A trial that diverges, or does not fit, has that as its result.
TrialOutcome run_trial(const SearchFile& search, const TrialPlan& plan, std::size_t rung,
                       const Path& folder, const RunLimits& limits);

// Bytes that such a run plans, on all its ranks, on the host or on its GPU.
Result<std::int64_t> planned_bytes(const RunConfig& config, std::int64_t ranks);

// The keys that differ from their defaults, as a file for `quintet train`.
std::string train_file(RunConfig config, const std::string& comment);

}  // namespace quintet
