#include "lab/search/search_runner.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <future>
#include <limits>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "lab/search/trial_run.h"
#include "lab/tool.h"
#include "parallel/communicator.h"
#include "runtime/host_memory.h"

namespace quintet {
namespace {

constexpr std::int64_t kMostFailures = 3;  // in a row, not of the trials' making

std::int64_t trials_at_a_time(const SearchFile& search, std::int64_t threads) {
  if (search.search.parallel > 0) return search.search.parallel;
  if (search.simulated()) return share_of_cores();
  return std::max<std::int64_t>(share_of_cores() / (threads * search.ranks()), 1);
}

// A decision that is journaled and has no result yet.
struct SearchJob {
  std::int64_t trial = 0;
  std::size_t rung = 0;
  TrialPlan plan;
  std::int64_t bytes = 0;  // planned
};

struct SearchFlight {
  SearchJob job;
  std::future<TrialOutcome> outcome;
};

class SearchRunner {
 public:
  SearchRunner(const SearchFile& search, SearchJournal& journal, const SearchRunOptions& options,
               std::int64_t threads, std::vector<Trial> trials)
      : search_(search),
        journal_(journal),
        options_(options),
        threads_(threads),
        slots_(static_cast<std::size_t>(trials_at_a_time(search, threads))),
        trials_(std::move(trials)) {}

  Status run() {
    end_marked(mark());  // what an end without a farewell left behind
    memory_ = search_.place.memory_gib > 0
                  ? static_cast<std::int64_t>(search_.place.memory_gib * 0x1p30)
                  : host_memory().free();
    steps_at_start_ = finished_steps();
    QT_TRY(take_up());
    const Status status = loop();
    // Nothing is left running, whatever happened.
    for (SearchFlight& flight : flights_) {
      stop_ = true;
      flight.outcome.wait();
    }
    return status;
  }

  bool interrupted() const { return options_.interrupted != nullptr && *options_.interrupted; }
  Error stopped() const {
    return make_error(ErrorCode::kInterrupted,
                      "interrupted with {} trials begun; go on with `quintet search resume {}`",
                      trials_.size(), options_.folder.string());
  }
  const std::vector<Trial>& trials() const { return trials_; }

 private:
  std::string mark() const {
    return std::filesystem::absolute(options_.folder).lexically_normal().string();
  }
  Trial& trial(std::int64_t id) { return trials_[static_cast<std::size_t>(id) - 1]; }

  // Decisions of an earlier process that have no result, in their order.
  Status take_up() {
    std::vector<std::pair<std::int64_t, std::int64_t>> running;  // job, trial
    for (const Trial& one : trials_) {
      if (one.pending()) running.emplace_back(one.rungs.back().job, one.id);
    }
    std::sort(running.begin(), running.end());
    if (!running.empty())
      log_info("{} trial(s) that were running go on from their checkpoints", running.size());
    for (const auto& [job, id] : running) QT_TRY(enqueue(id));
    return {};
  }

  // A trial whose last rung is decided: ready to run, or already known to be impossible.
  Status enqueue(std::int64_t id) {
    const Trial& one = trial(id);
    auto plan = search_.plan_of(one.settings, one.level, threads_);
    if (!plan.ok()) return refuse(id, "impossible", plan.error().message);
    SearchJob job{id, static_cast<std::size_t>(one.rungs.back().rung), std::move(plan).value(), 0};
    const bool limited = search_.place.memory_gib > 0;
    if ((slots_ > 1 || limited) && !search_.simulated()) {
      const auto bytes = planned_bytes(job.plan.config, search_.ranks());
      if (!bytes.ok()) return refuse(id, "impossible", bytes.error().message);
      job.bytes = bytes.value();
      const bool on_host = job.plan.config.train.device == "cpu";
      // A GPU whose memory nobody gave is not shared.
      if (!on_host && !limited) job.bytes = memory_;
      if (limited && job.bytes > memory_) {
        return refuse(
            id, "out_of_memory",
            fmt::format("{} are planned, and [place] memory_gib = {}",
                        human_bytes(static_cast<double>(job.bytes)), search_.place.memory_gib));
      }
    }
    queue_.push_back(std::move(job));
    return {};
  }

  Status refuse(std::int64_t id, const std::string& status, const std::string& reason) {
    RungResult result;
    result.status = status;
    result.reason = reason;
    QT_TRY(journal_.finished(trial(id), result, std::nullopt));
    report(trial(id));
    return {};
  }

  // Whether it fits beside those that run. Alone it is tried in any case: the run itself knows
  // best.
  bool fits(const SearchJob& job) const {
    if (flights_.empty()) return true;
    std::int64_t bytes = job.bytes;
    for (const SearchFlight& flight : flights_) bytes += flight.job.bytes;
    return flights_.size() < slots_ && (memory_ <= 0 || bytes <= memory_);
  }

  Status loop() {
    while (true) {
      QT_TRY(land());
      if (interrupted()) return stopped();
      bool done = false;
      while (flights_.size() < slots_) {
        if (!queue_.empty()) {
          if (!fits(queue_.front())) break;
          launch(std::move(queue_.front()));
          queue_.pop_front();
          continue;
        }
        // Decisions rest on results: until there is a new one, the same would come out.
        if (waits_) break;
        const SearchDecision decision = decide(search_, trials_, threads_);
        done = decision.kind == SearchDecision::Kind::kDone;
        waits_ = decision.kind == SearchDecision::Kind::kWait;
        if (done || waits_) break;
        QT_TRY(carry_out(decision));
      }
      if (done && flights_.empty() && queue_.empty()) return {};
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  Status carry_out(const SearchDecision& decision) {
    const bool begins = decision.kind == SearchDecision::Kind::kBegin;
    const std::int64_t id = begins ? std::ssize(trials_) + 1 : decision.trial;
    const std::int64_t level = begins ? decision.level : trial(id).level;
    const auto plan = search_.plan_of(decision.settings, level, threads_);
    const auto rung = static_cast<std::size_t>(decision.rung);
    QT_TRY(journal_.decided(
        decision, plan.ok() ? plan.value().rung_steps[rung] : 0,
        plan.ok() ? trial_command(search_, plan.value(), rung, trial_folder(options_.folder, id))
                  : "",
        trials_));
    return enqueue(id);
  }

  void launch(SearchJob job) {
    const Path folder = trial_folder(options_.folder, job.trial);
    const RunLimits limits{search_.place.timeout, &stop_, mark()};
    SearchFlight flight{std::move(job), {}};
    flight.outcome = std::async(
        std::launch::async, [this, plan = flight.job.plan, rung = flight.job.rung, folder, limits] {
          return run_trial(search_, plan, rung, folder, limits);
        });
    flights_.push_back(std::move(flight));
  }

  // Takes in what has a result.
  Status land() {
    if (interrupted()) stop_ = true;
    for (std::size_t i = 0; i < flights_.size();) {
      if (flights_[i].outcome.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
        ++i;
        continue;
      }
      SearchFlight flight = std::move(flights_[i]);
      flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(i));
      const TrialOutcome outcome = flight.outcome.get();
      if (outcome.interrupted) {
        // Its checkpoint is there; who asked it to stop was not always us.
        if (!interrupted() && !stop_) queue_.push_front(std::move(flight.job));
        continue;
      }
      QT_TRY(journal_.finished(trial(flight.job.trial), outcome.result, outcome.exit));
      waits_ = false;
      report(trial(flight.job.trial));
      failures_ = outcome.result.status == "failed" ? failures_ + 1 : 0;
      if (failures_ >= kMostFailures) {
        return make_error(ErrorCode::kIo,
                          "{} trials in a row failed, and not by themselves; the last: {} ({})",
                          failures_, outcome.result.reason,
                          (trial_folder(options_.folder, flight.job.trial) / "log.txt").string());
      }
    }
    return {};
  }

  double finished_steps() const {
    double steps = 0;
    for (const Trial& one : trials_) {
      for (std::size_t r = 0; r < one.rungs.size(); ++r) {
        if (!one.rungs[r].running())
          steps += static_cast<double>(one.rungs[r].steps - (r > 0 ? one.rungs[r - 1].steps : 0));
      }
    }
    return steps;
  }

  std::string time_left() const {
    const double done = finished_steps(), here = done - steps_at_start_;
    if (here <= 0) return "";
    const double left = std::max(expected_steps(search_, trials_, threads_) - done, 0.0);
    return fmt::format(", about {} left", human_duration((now() - began_) / here * left));
  }

  void report(const Trial& one) const {
    const RungResult& result = one.rungs.back();
    const Trial* best = best_trial(trials_);
    const std::string what = result.status == "done"
                                 ? fmt::format("{} {:.5g}", search_.search.objective, result.value)
                                 : result.status + ": " + result.reason;
    log_info(
        "trial {}{}, {} steps  {}: {}{}{}", one.id,
        search_.levels() > 1 ? " on " + search_.ladder.models[static_cast<std::size_t>(one.level)]
                             : "",
        result.steps, settings_text(one.settings), what,
        best != nullptr
            ? fmt::format(" (best: {:.5g}, trial {})", best->value_at(best->reached()), best->id)
            : "",
        time_left());
  }

  const SearchFile& search_;
  SearchJournal& journal_;
  const SearchRunOptions& options_;
  const std::int64_t threads_;
  const std::size_t slots_;
  std::vector<Trial> trials_;
  std::deque<SearchJob> queue_;
  std::vector<SearchFlight> flights_;
  std::atomic<bool> stop_ = false;
  bool waits_ = false;  // for a result, to decide anything
  std::int64_t memory_ = 0, failures_ = 0;
  double steps_at_start_ = 0;
  const double began_ = now();
};

}  // namespace

std::int64_t threads_per_rank(const SearchFile& search) {
  if (search.search.parallel == 0) return 1;
  return std::max<std::int64_t>(share_of_cores() / (search.search.parallel * search.ranks()), 1);
}

Status run_search(const SearchFile& search, SearchJournal& journal,
                  const SearchRunOptions& options) {
  QT_ASSIGN(const std::string threads, journal.get("threads"));
  QT_ASSIGN(std::vector<Trial> trials, journal.trials());
  SearchRunner runner(search, journal, options,
                      std::max<std::int64_t>(std::atoll(threads.c_str()), 1), std::move(trials));
  const Status status = runner.run();
  // Whatever an interruption made fail, it is an interruption.
  if (!status.ok() && runner.interrupted()) return runner.stopped();
  return status;
}

Result<RunConfig> recommended_config(const SearchFile& search, const Trial& trial,
                                     std::int64_t threads) {
  QT_ASSIGN(TrialPlan plan, search.plan_of(trial.settings, trial.level, threads));
  RunConfig config = plan.config;
  const RunConfig plain;
  config.output = plain.output;
  config.output.folder = "runs/" + search.search.name + "-best";
  if (search.fixed.count("train.threads") == 0) config.train.threads = 0;
  return config;
}

Result<std::string> write_best(const SearchFile& search, std::span<const Trial> trials,
                               const Path& folder) {
  const Trial* best = best_trial(trials);
  if (best == nullptr) return std::string();
  QT_ASSIGN(const RunConfig config, recommended_config(search, *best, 1));
  const std::string text = train_file(
      config, fmt::format("# The best of search \"{}\": trial {}, {} = {:.6g} after {} steps.\n"
                          "# quintet train best.toml\n",
                          search.search.name, best->id, search.search.objective,
                          best->value_at(best->reached()),
                          best->rungs[static_cast<std::size_t>(best->reached())].steps));
  QT_TRY(write_file(folder / "best.toml", text));
  return text;
}

}  // namespace quintet
