#include "lab/search/trial_run.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "lab/simulated_run.h"
#include "lab/tool.h"
#include "runtime/dry_run.h"
#include "train/saver.h"

namespace quintet {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::infinity();

RunPlace place_of(const SearchFile& search) {
  RunPlace place;
  place.nodes = search.place.nodes;
  place.ranks_per_node = search.place.ranks_per_node;
  return place;
}

CellRun planned_step(const SearchFile& search, const TrialPlan& plan) {
  CellRun run;
  run.nodes = search.place.nodes;
  run.ranks_per_node = search.place.ranks_per_node;
  run.machine = search.place.machine;
  run.config = plan.config;
  return run;
}

// Device-seconds of the steps of a part of a trial.
double seconds_of(const std::vector<CurveStep>& curve, std::int64_t after, std::int64_t until) {
  double seconds = 0;
  for (const CurveStep& step : curve) {
    if (step.step > after && step.step <= until) seconds += step.seconds;
  }
  return seconds;
}

// What the run's end means for the trial.
std::string status_of(ErrorCode code) {
  if (code == ErrorCode::kNonFinite) return "diverged";
  if (code == ErrorCode::kOutOfMemory) return "out_of_memory";
  return code == ErrorCode::kUsage ? "impossible" : "failed";
}

TrialOutcome without_value(const Error& error, std::optional<std::int64_t> exit) {
  TrialOutcome outcome;
  outcome.interrupted = error.code == ErrorCode::kInterrupted;
  outcome.result.status = status_of(error.code);
  outcome.result.reason = error.message;
  outcome.exit = exit;
  return outcome;
}

TrialOutcome plan_trial(const SearchFile& search, const TrialPlan& plan, const Path& folder,
                        const RunLimits& limits) {
  const auto command = simulation_command(planned_step(search, plan), folder);
  if (!command.ok()) return without_value(command.error(), std::nullopt);
  const auto row = run_simulation(command.value(), limits.timeout, limits.interrupted);
  if (!row.ok()) return without_value(row.error(), static_cast<int>(row.error().code));
  TrialOutcome outcome;
  outcome.result.status = "done";
  outcome.result.value = row.value().median_seconds;
  outcome.exit = 0;
  return outcome;
}

}  // namespace

std::vector<CurveStep> learning_curve(const Path& trial_folder) {
  std::vector<CurveStep> curve;
  const Path file = trial_folder / "metrics.jsonl";
  const auto text = read_file(file);
  if (!text.ok()) return curve;
  const std::string& all = text.value();
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = all.find('\n', begin);
    if (end == std::string::npos) break;
    const auto line = parse_json(std::string_view(all).substr(begin, end - begin), file.string());
    begin = end + 1;
    if (!line.ok() || !line.value().is_object()) continue;
    const Json& json = line.value();
    CurveStep step;
    step.step = integer_in(json, "step", 0);
    step.loss = number_in(json, "loss", step.loss);
    step.seconds = number_in(json, "seconds", 0);
    step.noise_scale = number_in(json, "gradient_noise_scale", step.noise_scale);
    step.spike = json.contains("spike");
    if (const auto found = json.find("validation"); found != json.end() && found->is_object()) {
      step.validation = number_in(*found, "loss", step.validation);
      step.smoothed = number_in(*found, "smoothed", step.smoothed);
      step.seconds += number_in(*found, "seconds", 0);
    }
    curve.push_back(step);
  }
  return curve;
}

std::optional<double> objective_in(const std::vector<CurveStep>& curve,
                                   const std::string& objective, std::int64_t steps) {
  const std::int64_t tail = std::max<std::int64_t>(steps / 10, 1);
  double sum = 0;
  std::int64_t count = 0;
  bool there = false;
  for (const CurveStep& step : curve) {
    if (step.step == steps) {
      there = true;
      if (objective == "validation_loss")
        return std::isnan(step.validation) ? std::nullopt : std::optional(step.validation);
    }
    if (step.step > steps - tail && step.step <= steps && std::isfinite(step.loss)) {
      sum += step.loss;
      ++count;
    }
  }
  if (!there || count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

Path trial_folder(const Path& search_folder, std::int64_t trial) {
  return search_folder / "trials" / fmt::format("{:05}", trial);
}

RunConfig config_for_rung(const TrialPlan& plan, std::size_t rung, const Path& folder) {
  RunConfig config = plan.config;
  if (rung + 1 < plan.rung_steps.size()) config.train.stop_after = plan.rung_steps[rung];
  config.output.folder = folder.string();
  config.output.resume = true;
  return config;
}

std::string trial_command(const SearchFile& search, const TrialPlan& plan, std::size_t rung,
                          const Path& folder) {
  if (search.simulated()) return simulation_text(planned_step(search, plan));
  return command_text(place_of(search), config_for_rung(plan, rung, folder), 0);
}

TrialOutcome run_trial(const SearchFile& search, const TrialPlan& plan, std::size_t rung,
                       const Path& folder, const RunLimits& limits) {
  if (search.simulated()) return plan_trial(search, plan, folder, limits);
  const std::int64_t steps = plan.rung_steps[rung];
  for (bool again = false;; again = true) {
    const RunOutcome run = run_measured(place_of(search), config_for_rung(plan, rung, folder),
                                        folder.string(), limits);
    if (run.exit != 0) return without_value(run.run.error(), run.exit);
    const std::vector<CurveStep> curve = learning_curve(folder);
    const auto value = objective_in(curve, search.search.objective, steps);
    if (value) {
      TrialOutcome outcome;
      outcome.exit = 0;
      outcome.result.value = std::isfinite(*value) ? *value : kNoValue;
      outcome.result.status = std::isfinite(*value) ? "done" : "diverged";
      if (!std::isfinite(*value)) outcome.result.reason = "the objective is not finite";
      outcome.result.seconds = static_cast<double>(search.ranks()) *
                               seconds_of(curve, rung > 0 ? plan.rung_steps[rung - 1] : 0, steps);
      return outcome;
    }
    // A power cut can leave a checkpoint without the metrics that came before it.
    if (again) {
      return without_value(run.run.ok() ? bad_input("{}: metrics.jsonl has no objective at step {}",
                                                    folder.string(), steps)
                                        : run.run.error(),
                           run.exit);
    }
    log_warning("{}: no objective at step {}; the trial is trained again", folder.string(), steps);
    std::error_code none;
    std::filesystem::remove_all(folder, none);
  }
}

Result<std::int64_t> planned_bytes(const RunConfig& config, std::int64_t ranks) {
  QT_ASSIGN(const StepOptions options, step_options(config, ranks));
  const DryRun plan = dry_run(compile_step(options));
  if (options.target.device == Device::kCuda) return plan.arena_bytes * ranks;
  constexpr std::int64_t kProcess = std::int64_t{64} << 20;  // libraries, buffers, data
  return (plan.arena_bytes + plan.host_bytes + saving_bytes(config.output, options) + kProcess) *
         ranks;
}

std::string train_file(RunConfig config, const std::string& comment) {
  RunConfig plain;
  const FieldList fields = config.fields(), defaults = plain.fields();
  std::string text = comment, section;
  for (std::size_t i = 0; i < fields.fields().size(); ++i) {
    const auto written = [](const Field& field) {
      return to_toml(std::visit([](const auto* v) { return TomlValue(*v); }, field.target));
    };
    const Field& field = fields.fields()[i];
    if (written(field) == written(defaults.fields()[i])) continue;
    const std::size_t dot = field.key.find('.');
    if (field.key.substr(0, dot) != section) {
      section = field.key.substr(0, dot);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    text += fmt::format("{} = {}\n", field.key.substr(dot + 1), written(field));
  }
  return text;
}

}  // namespace quintet
