#include "train/trainer.h"

#include <cmath>
#include <csignal>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "data/loader/corpus_source.h"
#include "data/loader/prefetch.h"
#include "data/synthetic.h"
#include "parallel/watchdog.h"
#include "runtime/dry_run.h"
#include "runtime/executor.h"
#include "runtime/trace.h"
#include "train/checkpoint.h"
#include "train/feed.h"
#include "train/fit.h"
#include "train/metrics.h"
#include "train/model_state.h"
#include "train/saver.h"

namespace quintet {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

// While alive, SIGINT and SIGTERM ask for a stop instead of ending the process. A second one ends
// it.
class StopOnSignal {
 public:
  StopOnSignal() {
    stop_requested = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { stop_requested = 1; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGINT, &action, &old_int_);
    ::sigaction(SIGTERM, &action, &old_term_);
  }
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  ~StopOnSignal() {
    ::sigaction(SIGINT, &old_int_, nullptr);
    ::sigaction(SIGTERM, &old_term_, nullptr);
  }

 private:
  struct sigaction old_int_ {
  }, old_term_{};
};

// Making a batch takes a small part of a step: two threads keep ahead.
constexpr int kDataThreads = 2;

struct Data {
  std::unique_ptr<BatchSource> source;
  double optimal_loss = 0;  // 0: not known
};

Result<Data> open_data(const RunConfig& config, const StepOptions& options) {
  const auto seed = static_cast<std::uint64_t>(config.train.seed);
  if (config.data.kind == "corpus") {
    QT_ASSIGN(CorpusSource corpus,
              CorpusSource::open(config.data.corpus, options.batch.source, options.batch.target,
                                 options.model.vocab_size, seed));
    return Data{std::make_unique<CorpusSource>(std::move(corpus)), 0};
  }
  QT_ASSIGN(SyntheticCorpus corpus,
            SyntheticCorpus::create(config.data.synthetic, config.data.corpus.objective.spans,
                                    options.model.vocab_size, options.batch.source,
                                    options.batch.target, seed));
  if (corpus.counts().source_length() < options.batch.source && !options.batch.padded) {
    return usage_error(
        "examples of {} source tokens do not fill batch.source = {}; set batch.target = 0 or "
        "batch.source = {}",
        corpus.counts().source_length(), options.batch.source, corpus.counts().source_length());
  }
  const double optimal = corpus.optimal_loss(1000);
  return Data{std::make_unique<SyntheticCorpus>(std::move(corpus)), optimal};
}

// Where a run with an output folder begins: at 0, or after the newest checkpoint that is whole.
Result<RunPosition> starting_position(const OutputSection& output, World& world,
                                      ModelState& state) {
  if (output.folder.empty()) return RunPosition{};
  if (!output.resume) {
    std::int64_t step = -1;
    if (world.rank() == 0) {
      if (const auto all = list_checkpoints(output.folder); !all.empty()) step = all.back().step;
    }
    step = std::stoll(world.broadcast(std::to_string(step)));
    if (step < 0) return RunPosition{};
    return usage_error(
        "{} already has a checkpoint at step {}; continue with output.resume=true, or choose "
        "another output.folder",
        output.folder, step);
  }
  RunPosition position;
  QT_ASSIGN(const auto loaded, load_newest(output.folder, world, state, position));
  if (loaded && world.rank() == 0)
    log_info("resuming after step {} from {}", loaded->step, loaded->folder.string());
  return position;
}

Error not_finite(std::int64_t step, const StepResult& result, const OutputSection& output) {
  const auto newest = output.folder.empty() ? std::nullopt : newest_checkpoint(output.folder);
  return make_error(ErrorCode::kNonFinite,
                    "step {}: loss {}, gradient norm {}: not finite. The weights were not updated "
                    "and nothing was saved; {}. "
                    "A lower schedule.peak, a longer schedule.warmup_steps or optimizer.clip_norm "
                    "= 1 usually helps",
                    step, result.loss, result.grad_norm,
                    newest ? fmt::format("the newest checkpoint is step {}", newest->step)
                           : "there is no checkpoint");
}

// A trace that cannot be made is better known before the first step than after the last traced one.
Status prepare_trace(const RunConfig& config, std::int64_t first_step, bool writes) {
  const OutputSection& output = config.output;
  if (output.trace.empty()) return {};
  const std::int64_t steps = config.train.steps - first_step;
  if (output.trace_first > steps) {
    return usage_error(
        "output.trace_first = {} in a run of {} more step{}: nothing to trace; set it to 1, or "
        "output.trace=\"\"",
        output.trace_first, steps, steps == 1 ? "" : "s");
  }
  return writes ? write_file(output.trace, trace_file("")) : Status();
}

// All ranks' programs fit together, or nobody starts.
Status prove(const StepOptions& options, World& world) {
  if (world.size() == 1) return {};
  std::string findings;
  if (world.rank() == 0) findings = join(verify_all_ranks(options), "\n  ");
  findings = world.broadcast(findings);
  if (findings.empty()) return {};
  return make_error(ErrorCode::kInternal, "the ranks' programs do not fit together:\n  {}",
                    findings);
}

void announce(const StepOptions& options, const ModelState& state, const DryRun& plan) {
  log_info("{}: {} parameters, {} ops a step, {}, {}; {} sequences of {} + {} tokens a step",
           options.model.name, human_count(static_cast<double>(state.parameters())), plan.ops,
           memory_text(plan),
           options.target.device == Device::kCuda
               ? std::string("one GPU a rank")
               : fmt::format("{} thread{}", options.target.threads,
                             options.target.threads == 1 ? "" : "s"),
           options.global_batch(), options.batch.source, options.batch.target);
  if (options.grid.size() > 1) {
    log_info("{} ranks: {}; their programs fit together", options.grid.size(),
             layout_name(options));
  }
}

Result<TrainResult> train_watched(RunConfig& config, World& world, Watchdog& watchdog) {
  const bool reports = world.rank() == 0;
  // 1. Compile the step, make the device and the data ready.
  QT_ASSIGN(const StepOptions options, step_options(config, world.size()));
  QT_TRY(prove(options, world));
  const Program program = compile_step(options, world.rank());
  const DryRun plan = dry_run(program);
  QT_ASSIGN(const auto executor,
            make_fitting_executor(program, options, world, saving_bytes(config.output, options)));
  QT_ASSIGN(const Data data, open_data(config, options));
  ModelState state(*executor, world, options.model);
  QT_ASSIGN(const RunPosition start, starting_position(config.output, world, state));
  const std::int64_t first_step = start.step;
  if (first_step == 0) state.initialise(static_cast<std::uint64_t>(config.train.seed));
  std::optional<MetricsFile> metrics_file;
  if (reports && !config.output.folder.empty()) {
    QT_ASSIGN(metrics_file, MetricsFile::open(config.output.folder, first_step));
  }
  QT_TRY(prepare_trace(config, first_step, reports));
  Ledger ledger(world, options.grid, program, executor->backend(),
                {config.output.trace, first_step + config.output.trace_first,
                 std::min(config.output.trace_steps,
                          config.train.steps - first_step - config.output.trace_first + 1)},
                config.output.summary_skip);
  QT_ASSIGN(Saver saver,
            Saver::create(config.output, options.model, config_to_toml(config.fields(), false),
                          state, *executor, world));
  if (reports) announce(options, state, plan);

  // 2. Train.
  const StopOnSignal signals;
  std::optional<Progress> progress;
  if (reports) {
    progress.emplace(config.train.steps, config.output.log_every,
                     static_cast<double>(plan.arena_bytes));
  }
  Prefetcher batches(*data.source,
                     [share = options.batches(), dp = program.place.dp, &start](std::int64_t n) {
                       return start.samples + share.first_sample_of(n, dp);
                     },
                     {options.batch.micro_batch, options.batch.source, options.batch.target,
                      kDataThreads, static_cast<int>(config.data.prefetch)});
  TrainResult result;
  result.optimal_loss = data.optimal_loss;
  double tail_loss = 0;
  std::int64_t tail_steps = 0;
  const auto feed_step = [&]() -> Status {
    for (std::int32_t m = 0; m < options.accumulate; ++m) {
      QT_ASSIGN(const Batch* batch, batches.next());
      QT_TRY(feed(*executor, m, *batch, options));
    }
    return {};
  };
  double waited = now();
  Status fed;
  if (first_step < config.train.steps) fed = feed_step();
  waited = now() - waited;
  for (std::int64_t step = first_step + 1; step <= config.train.steps; ++step) {
    watchdog.set_step(step);
    QT_TRY(fed);
    const double rate = learning_rate(config.schedule, step, config.train.steps);
    const double began = now();
    QT_TRY(start_step(*executor, step, rate));
    // Where a device computes, the host hands over the next step's batch meanwhile; a failure to do
    // so is the next step's. On the CPU this one is over by now.
    const double started = now();
    if (step < config.train.steps) fed = feed_step();
    const double feeding = executor->runs_beside_host() ? 0 : now() - started;
    QT_ASSIGN(const StepResult outcome, finish_step(*executor));
    if (!std::isfinite(outcome.loss) || !std::isfinite(outcome.grad_norm)) {
      if (progress) progress->finish();
      saver.complete();
      return not_finite(step, outcome, config.output);
    }
    const double ran = now() - began - feeding;
    QT_TRY(ledger.step(step, executor->began(), executor->timings(), waited, ran));
    const auto tokens =
        static_cast<double>(options.global_batch() * (options.batch.source + options.batch.target));
    const double flops =
        static_cast<double>(options.global_batch()) *
        flops_per_sequence(options.model, options.batch.source, options.batch.target);
    const StepMetrics metrics{step, outcome.loss, outcome.z_loss, outcome.grad_norm,
                              rate, waited + ran, waited,         tokens,
                              flops};
    waited = feeding;
    if (progress) progress->step(metrics);
    if (metrics_file) QT_TRY(metrics_file->append(metrics));
    result.steps = step;
    if (step > config.train.steps - std::max<std::int64_t>(config.train.steps / 10, 1)) {
      tail_loss += outcome.loss;
      ++tail_steps;
    }

    // 3. Save: when due, at the end, and when any rank was asked to stop.
    const bool stop = world.minimum(stop_requested != 0 ? 0 : 1) == 0;
    const bool last = step == config.train.steps || stop;
    QT_TRY(saver.after_step(
        {step, start.samples + (step - first_step) * options.global_batch(), {}}, last));
    if (stop && step != config.train.steps) {
      if (progress) progress->finish();
      return make_error(ErrorCode::kInterrupted, "stopped after step {}{}", step,
                        config.output.folder.empty() || !config.output.checkpoints
                            ? ""
                            : "; continue with output.resume=true");
    }
  }
  if (progress) progress->finish();
  result.final_loss = tail_steps > 0 ? tail_loss / static_cast<double>(tail_steps) : 0;
  result.summary = ledger.close(*executor);
  result.summary.model = options.model.name;
  result.summary.layout = layout_name(options);
  result.summary.steps = result.steps;
  result.summary.final_loss = result.final_loss;
  if (reports && !config.output.folder.empty()) {
    QT_TRY(write_file(Path(config.output.folder) / "summary.json", result.summary.to_json()));
  }
  return result;
}

}  // namespace

Result<TrainResult> train(RunConfig config, World& world) {
  QT_ASSIGN(const std::unique_ptr<Watchdog> watchdog,
            Watchdog::start(world, config.parallel.timeout));
  Result<TrainResult> outcome = train_watched(config, world, *watchdog);
  if (!outcome.ok() && !all_ranks_find(outcome.error().code)) {
    watchdog->fail(outcome.error().message);
  }
  return outcome;
}

}  // namespace quintet
