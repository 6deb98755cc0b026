#include "lab/study_runner.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include <xxhash.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "lab/cluster.h"
#include "lab/factor_name.h"
#include "lab/measured_run.h"
#include "lab/simulated_run.h"
#include "lab/tool.h"

namespace quintet {
namespace {

// The same for a folder whenever it is asked, so that what was left over is found again.
std::string cluster_name(const Path& folder) {
  const std::string path = std::filesystem::absolute(folder).lexically_normal().string();
  return fmt::format("s{:08x}", XXH3_64bits(path.data(), path.size()) & 0xffffffff);
}

// The study's own cluster, while it is alive.
class StudyCluster {
 public:
  explicit StudyCluster(Cluster cluster) : cluster_(std::move(cluster)) {}
  StudyCluster(const StudyCluster&) = delete;
  StudyCluster& operator=(const StudyCluster&) = delete;
  ~StudyCluster() {
    if (const auto gone = cluster_down(cluster_.spec.name); !gone.ok()) {
      log_warning("{}", gone.error().message);
    }
  }
  Cluster& operator*() { return cluster_; }
  Cluster* operator->() { return &cluster_; }

 private:
  Cluster cluster_;
};

std::vector<double> levels_of(const StudyFile& study, const std::string& name) {
  std::vector<double> numbers;
  if (const auto fixed = study.fixed_place.find(name); fixed != study.fixed_place.end()) {
    numbers.push_back(number_of(fixed->second));
  }
  for (const DesignFactor& factor : study.factors) {
    for (const TomlScalar& level : factor.levels) {
      if (factor.name == name) numbers.push_back(number_of(level));
    }
  }
  if (numbers.empty()) numbers.push_back(1);
  return numbers;
}
int largest_of(const StudyFile& study, const std::string& name) {
  const auto levels = levels_of(study, name);
  return static_cast<int>(*std::max_element(levels.begin(), levels.end()));
}

// Makes the cluster and holds its links to their word; both are in the store.
Status make_cluster(const StudyFile& study, StudyStore& store, const StudyOptions& options,
                    std::optional<StudyCluster>& made) {
  if (const Status possible = cluster_possible(); !possible.ok()) {
    return make_error(possible.error().code, "{}; --unshaped runs all ranks on this machine",
                      possible.error().message);
  }
  std::vector<double> bandwidths = levels_of(study, "bandwidth");
  for (double& bandwidth : bandwidths) bandwidth *= 1e9;
  QT_ASSIGN(Cluster cluster, cluster_up({cluster_name(options.folder), largest_of(study, "nodes"),
                                         largest_of(study, "ranks_per_node"), bandwidths[0]}));
  made.emplace(std::move(cluster));
  QT_ASSIGN(const std::vector<LinkCheck> checks, check_links(**made, bandwidths));
  Json links = Json::array();
  for (const LinkCheck& check : checks) {
    links.push_back({{"asked", check.asked}, {"measured", check.measured}});
    log_info("links told to carry {} carry {}", bandwidth_text(check.asked),
             bandwidth_text(check.measured));
  }
  return store.set("links", to_text(links));
}

Result<std::vector<std::size_t>> levels_in(const StudyFile& study, const Json& settings) {
  std::vector<std::size_t> levels;
  for (const DesignFactor& factor : study.factors) {
    std::size_t i = 0;
    while (i < factor.levels.size() && (!settings.contains(factor.name) ||
                                        json_of(factor.levels[i]) != settings[factor.name])) {
      ++i;
    }
    if (i == factor.levels.size()) {
      return bad_input("the store has a row whose {} is no level of the study", factor.name);
    }
    levels.push_back(i);
  }
  return levels;
}

// "zero=1 tp=2 bandwidth=0.5"
std::string label_of(const Json& settings) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : settings.items()) {
    parts.push_back(fmt::format("{}={}", short_factor_name(key),
                                value.is_string() ? value.get<std::string>() : to_text(value)));
  }
  return join(parts, " ");
}

RowResult without_result(const Error& error, std::optional<std::int64_t> exit,
                         bool before_running) {
  RowResult result;
  // What the plan or the configuration rules out could not have been; anything else went wrong.
  const bool impossible =
      before_running ? error.code == ErrorCode::kUsage
                     : error.code == ErrorCode::kOutOfMemory || error.code == ErrorCode::kUsage;
  result.status = impossible ? "impossible" : "failed";
  result.reason = error.message;
  result.exit = exit;
  return result;
}

RowResult measured_result(const MeasuredRun& run, std::int64_t warmup) {
  RowResult result;
  result.status = "done";
  result.exit = 0;
  const auto skip = std::min(static_cast<std::size_t>(warmup), run.seconds.size());
  result.step_seconds.assign(run.seconds.begin() + static_cast<std::ptrdiff_t>(skip),
                             run.seconds.end());
  if (result.step_seconds.empty()) {
    return without_result(make_error(ErrorCode::kInternal, "the run has no measured step"), 0,
                          false);
  }
  std::vector<double> sorted = result.step_seconds;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t half = sorted.size() / 2;
  result.median_seconds =
      sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  result.tokens_per_second = run.tokens / result.median_seconds;
  for (const RankSummary& rank : run.summary.ranks) {
    result.memory_bytes = std::max(result.memory_bytes, rank.arena_bytes);
    result.host_bytes = std::max(result.host_bytes, rank.host_bytes);
    std::int64_t sent = 0;
    for (const Traffic& row : rank.counted) sent += row.bytes;
    result.bytes_sent = std::max(result.bytes_sent, sent);
  }
  const StepAccount mean = run.summary.mean_account();
  for (const AccountPart& part : parts_of(mean)) result.books[part.name] = part.seconds;
  for (std::size_t m = 1; m < kMethodCount; ++m) {
    if (mean.hidden[m] <= 0) continue;
    result.books[fmt::format("hidden {}", name_of(static_cast<Method>(m)))] = mean.hidden[m];
  }
  result.final_loss = run.summary.final_loss;
  result.fingerprint = run.summary.fingerprint;
  return result;
}

// What a run trains, whatever its layout: with one global batch, runs of the same text have the
// same losses.
std::string training_of(RunConfig config) {
  config.parallel = {};
  config.batch.micro_batch = config.batch.accumulate = 1;
  config.optimizer.offload = 0;
  const TrainSection train;
  config.train.recompute = train.recompute;
  config.train.device = train.device;
  config.train.graph = train.graph;
  config.train.threads = train.threads;
  config.output = {};
  return config_to_toml(config.fields(), false);
}

// How far losses of one training may lie apart, relative to their size. Layouts add in another
// order: a difference in the last bit, which every step makes larger, a percent after some hundred.
double loss_bound(const RunConfig& config) {
  constexpr std::int64_t kFewSteps = 20;
  if (config.train.steps > kFewSteps) return 5e-2;
  return config.train.precision == "fp32" ? 1e-4 : 1e-2;
}

class Runner {
 public:
  Runner(const StudyFile& study, StudyStore& store, const StudyOptions& options)
      : study_(study), store_(store), options_(options) {}

  Status run() {
    // What an end without a farewell left behind goes first: processes, cluster, half a row.
    end_marked(mark());
    if (cluster_possible().ok()) QT_TRY(cluster_down(cluster_name(options_.folder)));
    QT_ASSIGN(const std::int64_t reclaimed, store_.reclaim());
    if (reclaimed > 0) log_info("{} row(s) that were running are run again", reclaimed);
    QT_ASSIGN(const std::vector<StoredRow> rows, store_.planned());
    QT_ASSIGN(const RowCounts counts, store_.counts());
    QT_TRY(remember_losses());
    all_ = counts.all();
    finished_ = counts.finished();
    left_measured_ = std::count_if(rows.begin(), rows.end(),
                                   [](const StoredRow& row) { return !row.simulated; });
    if (left_measured_ > 0 && study_.place.kind == "emulated") {
      if (!options_.unshaped) {
        QT_TRY(make_cluster(study_, store_, options_, cluster_));
      } else if (levels_of(study_, "bandwidth").size() > 1) {
        return usage_error(
            "--unshaped: bandwidth is a factor of this study, which plain ranks cannot vary");
      }
    }
    std::vector<StoredRow> simulated;
    for (const StoredRow& row : rows) {
      if (row.simulated) {
        simulated.push_back(row);
      } else {
        QT_TRY(measure(row));
      }
    }
    cluster_.reset();
    return simulate(simulated);
  }

  bool interrupted() const { return options_.interrupted != nullptr && *options_.interrupted; }
  Error stopped() const {
    return make_error(ErrorCode::kInterrupted,
                      "interrupted after {} of {} rows; go on with `quintet study resume {}`",
                      finished_, all_, options_.folder.string());
  }

 private:
  std::string mark() const {
    return std::filesystem::absolute(options_.folder).lexically_normal().string();
  }
  Status finish(const StoredRow& row, const RowResult& result) {
    QT_TRY(store_.finish(row.id, result));
    ++finished_;
    if (!row.simulated) --left_measured_;
    std::string left;
    if (row.simulated) {
      const double each = (now() - simulating_since_) / static_cast<double>(++simulated_);
      left = fmt::format(", {} left", human_duration(each * static_cast<double>(all_ - finished_)));
    } else if (timed_ > 0 && left_measured_ > 0) {
      left = fmt::format(", {} left", human_duration(spent_ / static_cast<double>(timed_) *
                                                     static_cast<double>(left_measured_)));
    }
    log_info("{}/{}  {}: {}{}", finished_, all_, label_of(row.settings),
             result.status == "done"
                 ? fmt::format("{:.1f} ms per step", result.median_seconds * 1e3)
                 : result.status + ": " + result.reason,
             left);
    return {};
  }

  RunPlace place_of(const CellRun& run) const {
    RunPlace place;
    place.nodes = run.nodes;
    place.ranks_per_node = run.ranks_per_node;
    place.hosts = study_.place.hosts;
    place.kind = options_.unshaped ? "local" : study_.place.kind;
    if (cluster_) place.cluster = cluster_name(options_.folder);
    return place;
  }

  Status measure(const StoredRow& row) {
    if (interrupted()) return stopped();
    const double began = now();
    QT_ASSIGN(const auto levels, levels_in(study_, row.settings));
    const auto run = run_of(study_, levels);
    if (!run.ok()) return finish(row, without_result(run.error(), std::nullopt, true));
    if (cluster_ && (*cluster_)->spec.bandwidth != run.value().bandwidth) {
      QT_TRY(shape_links(**cluster_, run.value().bandwidth));
    }
    const RunPlace place = place_of(run.value());
    QT_TRY(store_.start(row.id, command_text(place, run.value().config, run.value().bandwidth)));
    const Path folder = options_.folder / "runs" / fmt::format("{:05}", row.id);
    std::error_code none;
    std::filesystem::remove_all(folder, none);
    const RunOutcome outcome = run_measured(place, run.value().config, folder.string(),
                                            {study_.measure.timeout, options_.interrupted, mark()});
    if (!outcome.run.ok() && cluster_) {
      // A run that did not end by itself may have left ranks on the nodes.
      for (const ClusterNode& node : (*cluster_)->nodes) end_processes(node);
    }
    if (!outcome.run.ok() && outcome.run.error().code == ErrorCode::kInterrupted) {
      QT_TRY(store_.put_back(row.id));
      std::filesystem::remove_all(folder, none);
      return stopped();
    }
    spent_ += now() - began;
    ++timed_;
    if (!outcome.run.ok())
      return finish(row, without_result(outcome.run.error(), outcome.exit, false));
    const RowResult result = held_against_others(
        row, run.value().config, measured_result(outcome.run.value(), study_.measure.warmup));
    if (!options_.keep_runs && result.status == "done") std::filesystem::remove_all(folder, none);
    return finish(row, result);
  }

  struct KnownLoss {
    std::int64_t row = 0;
    double value = 0;
  };
  Status remember_losses() {
    QT_ASSIGN(const std::vector<StudyStore::Loss> losses, store_.losses());
    for (const StudyStore::Loss& loss : losses) {
      QT_ASSIGN(const auto levels, levels_in(study_, loss.row.settings));
      if (const auto run = run_of(study_, levels); run.ok())
        known_.emplace(training_of(run.value().config), KnownLoss{loss.row.id, loss.value});
    }
    return {};
  }
  // Layouts of one training have one loss. A row that has another computes something else, faster
  // or slower, and its time is no answer.
  RowResult held_against_others(const StoredRow& row, const RunConfig& config, RowResult result) {
    if (study_.study.global_batch == 0 || result.status != "done" || !result.final_loss)
      return result;
    const double loss = *result.final_loss;
    const auto [known, is_new] = known_.emplace(training_of(config), KnownLoss{row.id, loss});
    const double bound = loss_bound(config);
    if (is_new || std::abs(loss - known->second.value) <= bound * std::abs(known->second.value))
      return result;
    return without_result(
        make_error(ErrorCode::kInternal,
                   "its loss is {:.6f}, and {:.6f} in row {}, the same training in another layout; "
                   "layouts of one training must agree to {:g} of it",
                   loss, known->second.value, known->second.row, bound),
        0, false);
  }

  // Simulations say the same whenever and beside whatever they run.
  Status simulate(const std::vector<StoredRow>& rows) {
    struct Flight {
      StoredRow row;
      std::future<Result<RowResult>> result;
    };
    simulating_since_ = now();
    const std::size_t at_once = std::max(1u, std::thread::hardware_concurrency());
    std::deque<Flight> flights;
    const auto land = [&]() -> Status {
      Flight flight = std::move(flights.front());
      flights.pop_front();
      const Result<RowResult> result = flight.result.get();
      if (interrupted() || (!result.ok() && result.error().code == ErrorCode::kInterrupted)) {
        return store_.put_back(flight.row.id);
      }
      return finish(flight.row, result.ok()
                                    ? result.value()
                                    : without_result(result.error(),
                                                     static_cast<int>(result.error().code), false));
    };
    for (const StoredRow& row : rows) {
      if (interrupted()) break;
      QT_ASSIGN(const auto levels, levels_in(study_, row.settings));
      const auto run = run_of(study_, levels);
      if (!run.ok()) {
        QT_TRY(finish(row, without_result(run.error(), std::nullopt, true)));
        continue;
      }
      const Path folder = options_.folder / "runs" / fmt::format("{:05}", row.id);
      QT_ASSIGN(const auto command, simulation_command(run.value(), folder));
      QT_TRY(store_.start(row.id, simulation_text(run.value())));
      flights.push_back(
          {row, std::async(std::launch::async, [command, folder, timeout = study_.measure.timeout,
                                                interrupted = options_.interrupted] {
             auto result = run_simulation(command, timeout, interrupted);
             std::error_code none;
             std::filesystem::remove_all(folder, none);
             return result;
           })});
      if (flights.size() >= at_once) QT_TRY(land());
    }
    while (!flights.empty()) QT_TRY(land());
    return interrupted() ? Status(stopped()) : Status();
  }

  const StudyFile& study_;
  StudyStore& store_;
  const StudyOptions& options_;
  std::optional<StudyCluster> cluster_;
  std::map<std::string, KnownLoss> known_;  // by what is trained
  std::int64_t all_ = 0, finished_ = 0, left_measured_ = 0, timed_ = 0;
  std::int64_t simulated_ = 0;
  double spent_ = 0, simulating_since_ = 0;
};

}  // namespace

Status run_study(const StudyFile& study, StudyStore& store, const StudyOptions& options) {
  Runner runner(study, store, options);
  const Status status = runner.run();
  std::error_code not_empty;  // then rows that failed are in it
  std::filesystem::remove(options.folder / "runs", not_empty);
  // Whatever an interruption made fail, it is an interruption.
  return !status.ok() && runner.interrupted() ? Status(runner.stopped()) : status;
}

}  // namespace quintet
