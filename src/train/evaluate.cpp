#include "train/evaluate.h"

#include <algorithm>

#include "base/caught.h"
#include "base/text.h"
#include "parallel/watchdog.h"
#include "train/agreement.h"
#include "train/batch_ramp.h"
#include "train/checkpoint.h"
#include "train/run_signals.h"

namespace quintet {
namespace {

Result<ValidationResult> measure(const Path& folder, const EvaluationConfig& config, World& world,
                                 Watchdog& watchdog) {
  const auto doing = [&](const char* what) {
    watchdog.activity().enter(what, false, Activity::Patience::kLong);
  };
  doing("compiling the program");
  QT_ASSIGN(const StepOptions options, step_options(config.run, world.size()));
  QT_ASSIGN(Validation validation,
            Validation::create(config.run, options, config.sequences, world.rank(), nullptr));
  if (world.size() > 1) {
    std::string findings;
    if (world.rank() == 0) findings = join(verify_all_ranks(validation.options()), "\n  ");
    findings = world.broadcast(findings);
    if (!findings.empty()) {
      return make_error(ErrorCode::kInternal, "the ranks' programs do not fit together:\n  {}",
                        findings);
    }
  }
  doing("making the device ready");
  QT_TRY(validation.make_ready(nullptr, world));
  doing("loading weights");
  QT_ASSIGN(Checkpoint checkpoint, Checkpoint::open(folder));
  if (config.mean) QT_TRY(checkpoint.use_mean());
  ModelState state(validation.executor(), world, options.model);
  QT_TRY(state.load(checkpoint.weights));
  doing("validating");
  return validation.run(world);
}

}  // namespace

Result<Path> checkpoint_folder(const Path& given) {
  std::error_code failure;
  if (!std::filesystem::exists(checkpoints_folder(given), failure)) return given;
  const auto newest = newest_checkpoint(given);
  if (newest) return newest->folder;
  return bad_input("{}: a run without a sound checkpoint", given.string());
}

Result<EvaluationConfig> evaluation_config(const Path& checkpoint,
                                           const std::vector<std::string>& assignments) {
  const Path file = checkpoint / "run.toml";
  std::error_code failure;
  if (!std::filesystem::exists(file, failure)) {
    return bad_input(
        "{}: not there; a checkpoint of a run has it (RUN/checkpoints/step-N, or RUN itself for "
        "the newest)",
        file.string());
  }
  EvaluationConfig config;
  QT_ASSIGN(config.run, load_run_config(file.string(), assignments));
  RunConfig& run = config.run;
  run.model.name = checkpoint.string();  // its shape, wherever the original was
  run.model.vocabulary = -1;
  run.data.pairs.tokenizer = tokenizer_place(run).string();  // which may be the starting weights'
  if (run.data.kind != "pairs") run.data.pairs.tokenizer.clear();
  run.model.weights.clear();
  run.output = {};
  // What only training has a use for, and would refuse here.
  run.train.noise_scale = false;
  run.train.on_spike = "none";
  run.train.skip_batches.clear();
  run.validate.patience = 0;
  QT_ASSIGN(const std::vector<BatchPhase> phases, batch_phases(run));
  const std::int64_t global = phases.back().global > 0
                                  ? phases.back().global
                                  : run.batch.micro_batch * run.batch.accumulate;
  run.batch.ramp.clear();
  // What is asked now counts, not what was asked of the run.
  const auto asked = [&](const std::string& key) {
    return std::any_of(assignments.begin(), assignments.end(),
                       [&](const std::string& one) { return one.rfind(key + "=", 0) == 0; });
  };
  if (asked("validate.batches") && !asked("validate.sequences")) run.validate.sequences = 0;
  // These fit the run's ranks and need not fit others; the figures are the same without them.
  const LayoutConfig usual;
  if (!asked("parallel.shard_group")) run.parallel.shard_group = usual.shard_group;
  if (!asked("parallel.gather_fp8")) run.parallel.gather_fp8 = usual.gather_fp8;
  if (!asked("parallel.schedule") && !asked("parallel.interleave")) {
    run.parallel.schedule = usual.schedule;
    run.parallel.interleave = usual.interleave;
  }
  config.sequences = run.validate.count(global);
  run.batch.global = 0;
  run.batch.accumulate = std::max<std::int64_t>(run.parallel.pp, 1);  // fills a pipeline
  return config;
}

Result<ValidationResult> evaluate(const Path& checkpoint, const EvaluationConfig& config,
                                  World& world) {
  const RunSignals signals;
  auto started = Watchdog::start(world, config.run.parallel.timeout);
  if (!started.ok()) return told_by_rank_0(started.error(), world);
  const std::unique_ptr<Watchdog> watchdog = std::move(started).value();
  try {
    Result<ValidationResult> result = measure(checkpoint, config, world, *watchdog);
    if (!result.ok()) return watchdog->fail(result.error());
    watchdog->finish();
    return result;
  } catch (const CommunicationFailure& failure) {
    return watchdog->fail({ErrorCode::kPeerLost, failure.what()}, true);
  } catch (...) {
    return watchdog->fail(error_of_exception());
  }
}

}  // namespace quintet
