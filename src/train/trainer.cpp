#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "base/caught.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mapped_fault.h"
#include "base/text.h"
#include "data/loader/corpus_source.h"
#include "data/loader/pairs_source.h"
#include "data/loader/prefetch.h"
#include "data/synthetic.h"
#include "parallel/watchdog.h"
#include "runtime/dry_run.h"
#include "runtime/executor.h"
#include "runtime/trace.h"
#include "train/agreement.h"
#include "train/batch_ramp.h"
#include "train/checkpoint.h"
#include "train/feed.h"
#include "train/fit.h"
#include "train/injected_fault.h"
#include "train/metrics.h"
#include "train/model_state.h"
#include "train/noise_scale.h"
#include "train/run_folder.h"
#include "train/run_signals.h"
#include "train/sample_order.h"
#include "train/saver.h"
#include "train/spikes.h"
#include "train/starting_weights.h"
#include "train/tensorboard.h"
#include "train/validation.h"

namespace quintet {
namespace {

// Making a batch takes a small part of a step: two threads keep ahead.
constexpr int kDataThreads = 2;

struct Data {
  std::unique_ptr<BatchSource> source;
  double optimal_loss = 0;  // 0: not known
  std::string about;        // for people, when the run begins and when it ends; empty: nothing
  std::string digest;       // the same on all ranks; empty: their configurations say it all
};

Result<Data> open_data(const RunConfig& config, const StepOptions& options) {
  const auto seed = static_cast<std::uint64_t>(config.train.seed);
  if (config.data.kind == "corpus") {
    QT_ASSIGN(CorpusSource corpus,
              CorpusSource::open(config.data.corpus, options.batch.source, options.batch.target,
                                 options.model.vocab_size, seed));
    return Data{std::make_unique<CorpusSource>(std::move(corpus)), 0, "", ""};
  }
  if (config.data.kind == "pairs") {
    PairsConfig given = config.data.pairs;
    given.tokenizer = tokenizer_place(config).string();
    QT_ASSIGN(PairsSource pairs,
              PairsSource::open(given, options.batch.source, options.batch.target,
                                options.model.vocab_size, seed));
    Data data{nullptr, 0, pairs.description(), pairs.digest()};
    data.source = std::make_unique<PairsSource>(std::move(pairs));
    return data;
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
  return Data{std::make_unique<SyntheticCorpus>(std::move(corpus)), optimal, "", ""};
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

// `why`: what is wrong with the step; `batch`: its number, 0 where batches have none.
Error stopped_by(const std::string& why, std::int64_t step, std::int64_t batch,
                 const OutputSection& output) {
  const auto newest = output.folder.empty() ? std::nullopt : newest_checkpoint(output.folder);
  return make_error(
      ErrorCode::kNonFinite,
      "step {}: {}. Nothing was saved after it; {}. A lower schedule.peak, a longer "
      "schedule.warmup_steps or optimizer.clip_norm = 1 usually helps{}",
      step, why,
      newest ? fmt::format("the newest checkpoint is step {}", newest->step)
             : "there is no checkpoint",
      batch > 0 ? fmt::format("; train.skip_batches={} leaves this step's batch out", batch) : "");
}

// A trace that cannot be made is better known before the first step than after the last traced one.
Status prepare_trace(const RunConfig& config, std::int64_t first_step, std::int64_t last_step,
                     bool writes) {
  const OutputSection& output = config.output;
  if (output.trace.empty()) return {};
  const std::int64_t steps = last_step - first_step;
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

void announce(const StepOptions& options, const ModelState& state, const DryRun& plan,
              bool fixed_batch) {
  log_info("{}: {} parameters, {} ops per step, {}, {}; {} sequences of {} + {} tokens per step",
           options.model.name, human_count(static_cast<double>(state.parameters())), plan.ops,
           memory_text(plan),
           options.target.device == Device::kCuda
               ? std::string("one GPU per rank")
               : fmt::format("{} thread{}", options.target.threads,
                             options.target.threads == 1 ? "" : "s"),
           options.global_batch(), options.batch.source, options.batch.target);
  if (options.grid.dp > 1 && !fixed_batch) {
    log_info(
        "{} data-parallel ranks x {} x batch.micro_batch {} = {} sequences per step; batch.global "
        "keeps that number on any number of ranks",
        options.grid.dp, options.accumulate, options.batch.micro_batch, options.global_batch());
  }
  if (options.grid.size() > 1) {
    log_info("{} ranks: {}; their programs fit together", options.grid.size(),
             layout_name(options));
  }
}

// A run, or its part with batches of one size, from its configuration to its last checkpoint.
// Everything it holds outlives a failure, so that the watchdog hears of it before anything is taken
// down that other ranks still use.
class Run {
 public:
  // `phase` is one of the run's `phases`; `began`: when the first of them did.
  Run(RunConfig config, const std::vector<BatchPhase>& phases, const BatchPhase& phase,
      double began, World& world, Watchdog& watchdog)
      : config_(std::move(config)),
        phases_(phases),
        phase_(phase),
        began_(began),
        world_(world),
        watchdog_(watchdog),
        reports_(world.rank() == 0),
        keeps_files_(!config_.output.folder.empty()),
        saves_(keeps_files_ && config_.output.checkpoints) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() { watchdog_.name_ops(nullptr); }

  Result<TrainResult> train() {
    QT_TRY(prepare());
    if (elsewhere()) return finish();
    const Status trained = train_steps();
    if (progress_) progress_->finish();
    if (!trained.ok()) {
      // All ranks stop together when they are asked to: what was measured is not lost.
      if (trained.error().code == ErrorCode::kInterrupted && result_.steps > start_.step) {
        QT_ASSIGN(const TrainResult stopped, finish());
        if (reports_) fmt::print("\n{}", describe(stopped.summary));
      }
      return trained.error();
    }
    return finish();
  }
  // The last step of all.
  std::int64_t run_end() const {
    const TrainSection& train = config_.train;
    return train.stop_after > 0 ? std::min(train.stop_after, train.steps) : train.steps;
  }

 private:
  Status prepare();
  Status train_steps();
  Status train_step(std::int64_t step);
  Status start_feeding();
  Status feed_step();
  Status handle_spike(const std::string& why, std::int64_t step, std::int64_t begin);
  Status rewind(const std::string& why, std::int64_t step, std::int64_t next_sample);
  void advance(std::int64_t step, std::int64_t begin, const char* skipped);
  void note_noise(const StepResult& outcome);
  Status validate_step(std::int64_t step);
  Status record(std::int64_t step);
  bool out_of_patience() const {
    return config_.validate.patience > 0 &&
           position_.validations_since_best >= config_.validate.patience;
  }
  Status save(bool due, bool last);
  Result<TrainResult> finish();
  // The last step of this part of the run.
  std::int64_t end() const { return std::min(run_end(), phase_.last_step); }
  // Resumed where batches have another size.
  bool elsewhere() const {
    return start_.step + 1 < phase_.first_step ||
           (start_.step >= phase_.last_step && phase_.last_step < run_end());
  }
  // What a size of batches makes of the configuration.
  Result<StepOptions> options_in(const BatchPhase& phase) const {
    RunConfig config = config_;
    config.batch.global = phase.global;
    config.batch.ramp.clear();
    return step_options(config, world_.size());
  }
  // What a batch that begins there is called in train.skip_batches.
  std::int64_t batch_number(std::int64_t begin) const {
    return phases_.size() > 1 ? 0 : begin / options_.global_batch() + 1;
  }
  void doing(const char* what, bool waiting = false) {
    watchdog_.activity().enter(what, waiting, Activity::Patience::kLong);
  }
  // For the small things that all ranks do together between two steps.
  void comparing() {
    watchdog_.activity().enter("comparing notes with the other ranks", true,
                               Activity::Patience::kStep);
  }

  RunConfig config_;
  const std::vector<BatchPhase> phases_;
  const BatchPhase phase_;
  const double began_;
  World& world_;
  Watchdog& watchdog_;
  const bool reports_, keeps_files_, saves_;

  std::optional<RunLock> lock_;
  StepOptions options_;
  Program program_;
  DryRun plan_;
  std::unique_ptr<Executor> executor_;
  Data data_;
  std::optional<ModelState> state_;
  RunPosition start_;     // of this process
  RunPosition position_;  // now
  SpikeOptions spike_options_;
  SpikeWatch spikes_;
  std::optional<NoiseScale> noise_;
  std::vector<SampleRange> left_out_;  // on request
  SampleOrder order_;                  // of the samples from the step after feeding_since_ on
  std::int64_t feeding_since_ = 0, fed_batches_ = 0;
  std::int64_t rewound_from_ = 0;  // until the next step is reported
  bool rewound_ = false;           // in the step at hand
  Batch scrambled_;                // a fault on order
  std::optional<Validation> validation_;
  StepMetrics metrics_;                        // of the last step
  std::optional<ValidationResult> validated_;  // after it, if that was due
  bool cut_short_ = false;                     // the validation that was due was not finished
  std::optional<MetricsFile> metrics_file_;
  std::optional<TensorboardFile> tensorboard_;
  std::optional<Ledger> ledger_;
  std::optional<Saver> saver_;
  std::optional<Progress> progress_;
  std::optional<Prefetcher> batches_;

  Status fed_;         // of the step to come
  BatchFill filled_;   // likewise
  double waited_ = 0;  // for its data
  TrainResult result_;
  double tail_loss_ = 0;
  std::int64_t tail_steps_ = 0;
};

// Compiles the step, makes the device and the data ready.
Status Run::prepare() {
  if (config_.output.resume && !keeps_files_) {
    return usage_error(
        "output.resume = true without output.folder, the folder of the run to continue");
  }
  doing("compiling the step");
  QT_TRY(step_options(config_, world_.size()));
  QT_ASSIGN(options_, options_in(phase_));
  if (keeps_files_) {
    // Rank 0's lock stands for all. Before anything that takes long.
    if (reports_) {
      QT_ASSIGN(RunLock lock, RunLock::take(config_.output.folder));
      lock_.emplace(std::move(lock));
    }
    if (config_.output.resume) QT_TRY(check_resumed_config(config_, options_));
  }
  doing("proving that the ranks' programs fit together");
  QT_TRY(prove(options_, world_));
  program_ = compile_step(options_, world_.rank());
  watchdog_.name_ops([this](std::int32_t op) { return op_title(program_, op); });
  // What a later size of batches needs is known to be there from the start.
  for (const BatchPhase& phase : phases_) {
    if (phase.first_step <= phase_.first_step) continue;
    QT_ASSIGN(const StepOptions later, options_in(phase));
    program_.arena_bytes =
        std::max(program_.arena_bytes, compile_step(later, world_.rank()).arena_bytes);
  }
  if (config_.validate.every > 0) {
    const std::int64_t unit = phases_.size() > 1 ? phases_.back().global : options_.global_batch();
    QT_ASSIGN(validation_, Validation::create(config_, options_, config_.validate.count(unit),
                                              world_.rank(), &program_));
    QT_TRY(prove(validation_->options(), world_));
    program_.arena_bytes = std::max(program_.arena_bytes, validation_->program().arena_bytes);
  }
  plan_ = dry_run(program_);
  doing("making the device ready");
  QT_ASSIGN(executor_, make_fitting_executor(program_, options_, world_,
                                             saving_bytes(config_.output, options_)));
  executor_->report_to(watchdog_.activity());
  if (validation_) QT_TRY(validation_->make_ready(executor_.get(), world_));
  QT_ASSIGN(data_, open_data(config_, options_));
  QT_TRY(agree_on_text(data_.digest, "set of pairs", world_));
  state_.emplace(*executor_, world_, options_.model);
  doing("loading weights");
  QT_ASSIGN(start_, starting_position(config_.output, world_, *state_));
  position_ = start_;
  if (elsewhere()) return {};
  spike_options_ = {on_spike_named(config_.train.on_spike), config_.train.spike_loss,
                    config_.train.spike_norm, config_.train.spike_window};
  spikes_ = SpikeWatch(spike_options_, start_.recent);
  if (options_.noise)
    noise_.emplace(options_.batch.micro_batch, options_.global_batch(), start_.noise);
  QT_ASSIGN(left_out_, parse_batches(config_.train.skip_batches, options_.global_batch()));
  if (start_.step == 0 && !config_.model.weights.empty()) {
    QT_TRY(load_starting_weights(config_, options_.model, world_, *state_));
  } else if (start_.step == 0) {
    if (reports_) say_if_weights_are_not_used(config_);
    state_->initialise(static_cast<std::uint64_t>(config_.train.seed));
  }
  if (reports_ && keeps_files_) {
    QT_ASSIGN(metrics_file_, MetricsFile::open(config_.output.folder, start_.step));
    if (config_.output.tensorboard) {
      QT_ASSIGN(tensorboard_, TensorboardFile::open(config_.output.folder, start_.step));
    }
  }
  QT_TRY(prepare_trace(config_, start_.step, end(), reports_));
  ledger_.emplace(world_, options_.grid, program_, executor_->backend(),
                  TraceOptions{config_.output.trace, start_.step + config_.output.trace_first,
                               std::min(config_.output.trace_steps,
                                        end() - start_.step - config_.output.trace_first + 1)},
                  config_.output.summary_skip);
  QT_ASSIGN(saver_, Saver::create(config_.output, options_.model, config_to_keep(config_, options_),
                                  *state_, *executor_, world_));
  if (reports_) {
    announce(options_, *state_, plan_, config_.batch.global > 0);
    if (!data_.about.empty()) log_info("{}", data_.about);
    progress_.emplace(run_end(), config_.output.log_every, static_cast<double>(plan_.arena_bytes));
  }
  result_.optimal_loss = data_.optimal_loss;
  return start_feeding();
}

// Samples from the position on, but for those that are to be left out.
Status Run::start_feeding() {
  const BatchPlan plan = options_.batches();
  order_ = SampleOrder(position_.samples, plan.global_batch(), left_out_);
  feeding_since_ = position_.step;
  fed_batches_ = 0;
  const std::int64_t steps = end() - position_.step;
  std::int64_t needed = steps > 0 ? order_.begin_of(steps - 1) + plan.global_batch() : 0;
  for (const BatchPhase& phase : phases_) {
    if (steps > 0 && phase.first_step > phase_.first_step && config_.train.stop_after == 0)
      needed += phase.steps() * phase.global;
  }
  if (needed > data_.source->samples()) {
    return usage_error(
        "data.mixture is used up after {} samples, and {} steps take {}; lower train.steps, or "
        "raise epochs or until",
        data_.source->samples(), config_.train.steps, needed);
  }
  batches_.emplace(
      *data_.source,
      [plan, order = order_, dp = program_.place.dp](std::int64_t n) {
        return order.begin_of(n / plan.accumulate) + plan.first_sample(0, n % plan.accumulate, dp);
      },
      PrefetchOptions{options_.batch.micro_batch, options_.batch.source, options_.batch.target,
                      kDataThreads, static_cast<int>(config_.data.prefetch)});
  return {};
}

Status Run::feed_step() {
  doing("waiting for data");
  filled_ = {};
  const BatchPlan plan = options_.batches();
  for (std::int32_t m = 0; m < options_.accumulate; ++m) {
    auto made = batches_->next();
    QT_TRY(mapped_files_are_whole());  // else it was made from zeros
    QT_ASSIGN(const Batch* batch, std::move(made));
    const std::int64_t begin = order_.begin_of(fed_batches_++ / plan.accumulate);
    if (data_fault("noise", begin, plan.global_batch())) {
      scrambled_ = *batch;
      scramble(scrambled_, begin + plan.first_sample(0, m, program_.place.dp),
               options_.model.vocab_size);
      batch = &scrambled_;
    }
    QT_TRY(feed(*executor_, m, *batch, options_));
    filled_.add(*batch);
  }
  return {};
}

Status Run::train_steps() {
  const double asked = now();
  if (out_of_patience()) return {};
  if (start_.step < end()) fed_ = feed_step();
  waited_ = now() - asked;
  while (position_.step < end()) {
    const std::int64_t step = position_.step + 1;
    if (step == start_.step + 1 && agree_on_request(world_, false) == Request::kStop)
      return make_error(ErrorCode::kInterrupted, "stopped before step {}", step);
    QT_TRY(train_step(step));
    if (std::exchange(rewound_, false)) continue;
    QT_TRY(validate_step(step));
    QT_TRY(record(step));

    // Saves when due, at the end, and when any rank was asked to.
    const bool last = step == end() || out_of_patience();
    const bool best = config_.output.keep_best > 0 && validated_ && position_.best_step == step;
    const double hours = (now() - began_) / 3600;
    comparing();
    const Request request =
        agree_on_request(world_, config_.train.max_hours > 0 && hours >= config_.train.max_hours);
    const bool stop = request == Request::kStop || request == Request::kTimeUp;
    const bool due = config_.output.save_every > 0 && step % config_.output.save_every == 0;
    QT_TRY(save(last || due || best || request != Request::kNothing, last || stop));
    if (!saves_ && request == Request::kSave && reports_)
      log_warning("asked to save at step {}, and this run writes no checkpoints", step);
    if (stop && cut_short_ && step == run_end()) {
      return make_error(ErrorCode::kInterrupted,
                        "stopped in the validation after the last step, {}{}", step,
                        saves_ ? "; `quintet evaluate` makes up for it" : "");
    }
    if (stop && !last) {
      return make_error(
          ErrorCode::kInterrupted, "stopped after step {}{}{}", step,
          request == Request::kTimeUp
              ? fmt::format(": train.max_hours = {} are over", config_.train.max_hours)
              : "",
          saves_         ? "; continue with output.resume=true"
          : keeps_files_ ? "; nothing was saved: output.checkpoints is false"
                         : "; nothing was saved: output.folder says where, and is not set");
    }
    if (last) break;
  }
  return {};
}

Status Run::train_step(std::int64_t step) {
  watchdog_.begin_step(step);
  QT_TRY(fed_);
  const BatchFill fill = filled_;
  const double rate = learning_rate(config_.schedule, step, config_.train.steps);
  const bool wants_ops = ledger_->wants_ops(step);
  const double began = now();
  watchdog_.activity().enter("running the step", false, Activity::Patience::kStep);
  inject_fault(world_.rank(), step);
  executor_->measure_ops(wants_ops);
  const SpikeWatch::Limits limits = spikes_.limits();
  QT_TRY(start_step(*executor_, step, rate, {limits.loss, limits.norm}));
  // Where a device computes, the host hands over the next step's batch meanwhile; a failure to do
  // so is the next step's. On the CPU this one is over by now.
  const double started = now();
  if (step < end()) fed_ = feed_step();
  const double feeding = executor_->runs_beside_host() ? 0 : now() - started;
  watchdog_.activity().enter("running the step", false, Activity::Patience::kStep);
  QT_ASSIGN(StepResult outcome, finish_step(*executor_));
  const std::int64_t begin = order_.begin_of(step - feeding_since_ - 1);
  if (data_fault("nan", begin, options_.global_batch())) outcome.loss = NAN;
  const std::string spike = spikes_.spike(outcome.loss, outcome.grad_norm);
  if (!spike.empty()) {
    QT_TRY(handle_spike(spike, step, begin));
    if (rewound_) return {};
  }
  const double ran = now() - began - feeding;
  comparing();
  inject_stall(world_.rank(), step);
  QT_TRY(ledger_->step(step, executor_->began(), executor_->timings(), waited_, ran));
  watchdog_.end_step();
  const auto tokens = static_cast<double>(options_.global_batch() *
                                          (options_.batch.source + options_.batch.target));
  const double flops =
      static_cast<double>(options_.global_batch()) *
      flops_per_sequence(options_.model, options_.batch.source, options_.batch.target);
  metrics_ = {step,
              outcome.loss,
              outcome.z_loss,
              outcome.grad_norm,
              rate,
              waited_ + ran,
              waited_,
              tokens,
              flops,
              BatchFill::share(fill.source, fill.source_places),
              BatchFill::share(fill.target, fill.target_places)};
  metrics_.skipped = !spike.empty();
  metrics_.rewound_from = std::exchange(rewound_from_, 0);
  waited_ = feeding;
  advance(step, begin, spike.empty() ? nullptr : "spike");
  result_.steps = step;
  if (!spike.empty()) return {};
  spikes_.note(outcome.loss, outcome.grad_norm);
  position_.recent = spikes_.recent();
  if (noise_) note_noise(outcome);
  if (step > end() - std::max<std::int64_t>(end() / 10, 1)) {
    tail_loss_ += outcome.loss;
    ++tail_steps_;
  }
  return {};
}

// A micro-batch's gradient is its share of a mean over all n of them: n times as large it is one of
// its own.
void Run::note_noise(const StepResult& outcome) {
  const auto ranks = static_cast<double>(options_.grid.dp);
  const double all = ranks * options_.accumulate;
  noise_->add(all * all * outcome.micro_square / ranks, outcome.grad_norm * outcome.grad_norm);
  position_.noise = noise_->averages();
  metrics_.noise_scale = noise_->value();
}

// The step is done, on the batch that begins here; `skipped`: without an effect, and why.
void Run::advance(std::int64_t step, std::int64_t begin, const char* skipped) {
  const auto leave_out = [&](SampleRange samples, const char* why) {
    position_.skipped.push_back({samples, step, why});
    if (reports_)
      log_info("step {}: samples {} to {} are left out ({})", step, samples.begin, samples.end - 1,
               why);
  };
  if (begin > position_.samples) leave_out({position_.samples, begin}, "asked");
  position_.step = step;
  position_.samples = begin + options_.global_batch();
  if (skipped != nullptr) leave_out({begin, position_.samples}, skipped);
}

// Ends the run, goes back, or lets the step count as one without an update.
Status Run::handle_spike(const std::string& why, std::int64_t step, std::int64_t begin) {
  doing("saving a checkpoint");
  const auto stop = [&](const std::string& reason) {
    saver_->complete();
    return stopped_by(reason, step, batch_number(begin), config_.output);
  };
  const OnSpike action = spike_options_.action;
  if (action == OnSpike::kNothing) return stop(why);
  if (action == OnSpike::kStop) return stop(why + " (train.on_spike = stop)");
  const std::int64_t most = config_.train.spike_limit;
  if (most > 0 && position_.spikes >= most) {
    return stop(fmt::format("{}, after {} spike{} before it (train.spike_limit)", why, most,
                            most == 1 ? "" : "s"));
  }
  if (action == OnSpike::kRewind) return rewind(why, step, begin + options_.global_batch());
  ++position_.spikes;
  if (reports_) log_warning("step {}: {}: skipped, nothing was updated", step, why);
  return {};
}

// To the newest checkpoint, and on from `next_sample`.
Status Run::rewind(const std::string& why, std::int64_t step, std::int64_t next_sample) {
  saver_->complete();
  doing("going back to the newest checkpoint");
  RunPosition position;
  QT_ASSIGN(const auto loaded, load_newest(config_.output.folder, world_, *state_, position));
  // One from before batches had this size is not for this part of the run; resuming goes on from
  // it.
  if (!loaded || position.step + 1 < phase_.first_step) {
    return stopped_by(why + ", and there is nothing to go back to", step,
                      batch_number(next_sample - options_.global_batch()), config_.output);
  }
  if (reports_) {
    log_warning("step {}: {}: back to the checkpoint of step {}, without samples {} to {}", step,
                why, position.step, position.samples, next_sample - 1);
  }
  position.skipped.push_back({{position.samples, next_sample}, step, "rewind"});
  position.samples = next_sample;
  position.spikes = position_.spikes + 1;
  position_ = std::move(position);
  spikes_ = SpikeWatch(spike_options_, position_.recent);
  if (noise_) noise_.emplace(options_.batch.micro_batch, options_.global_batch(), position_.noise);
  rewound_ = true;
  rewound_from_ = step;
  if (metrics_file_) {
    QT_ASSIGN(metrics_file_, MetricsFile::open(config_.output.folder, position_.step));
  }
  if (tensorboard_) {
    QT_ASSIGN(tensorboard_, TensorboardFile::open(config_.output.folder, position_.step));
  }
  watchdog_.end_step();
  QT_TRY(start_feeding());
  const double asked = now();
  fed_ = feed_step();
  waited_ = now() - asked;
  return {};
}

// Measures the loss on other text where that is due.
Status Run::validate_step(std::int64_t step) {
  position_.validation.reset();
  validated_.reset();
  if (!validation_ || (step % config_.validate.every != 0 && step != run_end())) return {};
  doing("validating");
  auto result = validation_->run(world_);
  // Asked to stop: the step counts and is saved, as one without a validation.
  cut_short_ = !result.ok() && result.error().code == ErrorCode::kInterrupted;
  if (cut_short_) return {};
  QT_ASSIGN(validated_, std::move(result));
  const double loss = validated_->loss();
  position_.validation = loss;
  // A loss that is no number is never the best.
  if (loss < position_.best_validation.value_or(INFINITY)) {
    position_.best_validation = loss;
    position_.best_step = step;
    position_.validations_since_best = 0;
  } else {
    ++position_.validations_since_best;
  }
  return {};
}

// Tells people and programs of a step.
Status Run::record(std::int64_t step) {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  metrics_.time = std::chrono::duration<double>(since_1970).count();
  metrics_.samples_so_far = position_.samples;
  metrics_.tokens_so_far = position_.samples * (options_.batch.source + options_.batch.target);
  if (progress_) {
    if (!metrics_.skipped) progress_->step(metrics_);
    if (validated_) progress_->validated(step, *validated_, position_.best_step == step);
  }
  const ValidationResult* validation = validated_ ? &*validated_ : nullptr;
  if (tensorboard_) QT_TRY(tensorboard_->append(metrics_, validation));
  return metrics_file_ ? metrics_file_->append(metrics_, validation) : Status();
}

Status Run::save(bool due, bool last) {
  if (due) doing("saving a checkpoint");
  return saver_->after_step(position_, due, last);
}

Result<TrainResult> Run::finish() {
  result_.ended_early = out_of_patience();
  if (result_.steps == 0) {
    // Nothing was left to do; what is in the folder is the run's.
    result_.steps = start_.step;
    result_.was_done = true;
    return std::move(result_);
  }
  doing("writing the summary");
  if (reports_ && data_.about.find("cut") != std::string::npos) log_info("{}", data_.about);
  result_.final_loss = tail_steps_ > 0 ? tail_loss_ / static_cast<double>(tail_steps_) : 0;
  result_.summary = ledger_->close(*executor_);
  result_.summary.model = options_.model.name;
  result_.summary.layout = layout_name(options_);
  result_.summary.steps = result_.steps;
  result_.summary.final_loss = result_.final_loss;
  if (validated_) result_.summary.validation_loss = validated_->loss();
  result_.summary.best_validation = position_.best_validation;
  result_.summary.best_step = position_.best_step;
  if (reports_ && keeps_files_) {
    QT_TRY(write_file(Path(config_.output.folder) / "summary.json", result_.summary.to_json()));
  }
  return std::move(result_);
}

// One part after the other, each from the checkpoint in which the one before it ended.
Result<TrainResult> train_phases(RunConfig config, World& world, Watchdog& watchdog,
                                 std::unique_ptr<Run>& run) {
  const double began = now();
  QT_ASSIGN(const std::vector<BatchPhase> phases, batch_phases(config));
  bool trained = false;
  for (std::int64_t step = 0;;) {
    run.reset();
    run = std::make_unique<Run>(config, phases, phase_after(phases, step), began, world, watchdog);
    QT_ASSIGN(TrainResult result, run->train());
    trained = trained || !result.was_done;
    step = result.steps;
    if (step >= run->run_end() || result.ended_early) {
      result.was_done = !trained;
      return result;
    }
    config.output.resume = true;
    if (trained) config.output.trace.clear();  // what was asked for is there
  }
}

}  // namespace

Result<TrainResult> train(RunConfig config, World& world) {
  const RunSignals signals;
  auto started = Watchdog::start(world, config.parallel.timeout);
  if (!started.ok()) return told_by_rank_0(started.error(), world);
  const std::unique_ptr<Watchdog> watchdog = std::move(started).value();
  std::unique_ptr<Run> run;  // outlives what goes wrong in it
  try {
    Result<TrainResult> outcome = train_phases(config, world, *watchdog, run);
    if (!outcome.ok()) return watchdog->fail(outcome.error());
    watchdog->finish();
    return outcome;
  } catch (const CommunicationFailure& failure) {
    return watchdog->fail({ErrorCode::kPeerLost, failure.what()}, true);
  } catch (...) {
    return watchdog->fail(error_of_exception());
  }
}

}  // namespace quintet
