// Measured against predicted: trains under each layout of a list, predicts the same with a machine
// file, and prints measured, predicted and error for each, then the mean error, the rank
// correlation and the regret of choosing by prediction. Nothing is fitted to what it measures.
//
//   build/bench/foresight_bench CASES.toml MACHINE.toml [FOLDER]
//
// Runs that FOLDER has already are not run again: interrupted, the same command goes on.
//
// CASES.toml has the keys of a run (the global batch as on one rank) and a section of its own:
//
//   [foresight]
//   ranks = 4
//   nodes = 2              # 1: ranks on this machine; more: emulated nodes, which needs root
//   repeats = 3            # of every layout, in rounds, so that a slow minute hits all alike
//   bandwidths = ["1gbit", "200mbit"]   # of a node's link, calibrated at each; none for one node
//   layouts = ["zero=0", "tp=2,zero=1", ...]   # as `quintet sweep` takes them
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>

#include "base/files.h"
#include "base/json.h"
#include "lab/machine.h"
#include "lab/mpirun.h"
#include "lab/simulate.h"
#include "lab/sweep.h"

namespace quintet {
namespace {

struct Cases {
  std::int64_t ranks = 2, nodes = 1, repeats = 3;
  std::vector<std::string> bandwidths, layouts;
  void list(FieldList& fields) {
    fields.add("ranks", ranks, "ranks of every layout", between(1, 4096));
    fields.add("nodes", nodes, "nodes they are spread over", between(1, 250));
    fields.add("repeats", repeats, "runs of every layout", between(1, 100));
    fields.add("bandwidths", bandwidths, "of a node's link");
    fields.add("layouts", layouts, "as sweep takes them");
  }
};

struct Row {
  std::string bandwidth, layout;
  std::vector<double> seconds = {};
  double predicted = 0;
  std::string failure = {};
  double measured() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    const std::size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }
  double spread() const {
    const auto [low, high] = std::minmax_element(seconds.begin(), seconds.end());
    return (*high - *low) / measured();
  }
  double error() const { return predicted / measured() - 1; }
};

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<double> ranks;
  for (const double value : values) {
    double below = 0, same = 0;
    for (const double other : values) {
      below += other < value ? 1 : 0;
      same += other == value ? 1 : 0;
    }
    ranks.push_back(below + (same + 1) / 2);
  }
  return ranks;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / n;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / n;
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 1;
}

class Bench {
 public:
  Bench(RunConfig config, Cases cases, Machine machine, std::string folder, std::string quintet)
      : config_(std::move(config)),
        cases_(std::move(cases)),
        machine_(std::move(machine)),
        folder_(std::move(folder)),
        quintet_(std::move(quintet)) {}

  Status run() {
    if (cases_.nodes == 1 || cases_.bandwidths.empty()) cases_.bandwidths = {""};
    Status status;
    for (const std::string& bandwidth : cases_.bandwidths) {
      if (status.ok()) status = run_at(bandwidth);
    }
    print();
    return status;
  }

 private:
  Status run_at(const std::string& bandwidth) {
    const bool cluster = cases_.nodes > 1;
    if (cluster) {
      QT_TRY(run_command({quintet_, "cluster", "up", "--name", kName, "--nodes",
                          std::to_string(cases_.nodes), "--ranks-per-node",
                          std::to_string(cases_.ranks / cases_.nodes), "--bandwidth",
                          bandwidth.empty() ? "none" : bandwidth}));
    }
    Status status = compare(bandwidth, cluster);
    if (cluster) QT_TRY(run_command({quintet_, "cluster", "down", "--name", kName}));
    return status;
  }

  Status compare(const std::string& bandwidth, bool cluster) {
    // 1. A machine file with the cluster's links.
    Machine machine = machine_;
    if (cluster) {
      QT_TRY(make_directories(folder_));
      const std::string file = fmt::format("{}/machine-{}.toml", folder_, bandwidth);
      if (!std::filesystem::exists(file)) {
        const std::string begun = file + ".begun";
        QT_TRY(write_file(begun, machine.to_toml()));
        QT_TRY(run_command({quintet_, "launch", "-n", std::to_string(cases_.ranks), "--threads",
                            std::to_string(std::max<std::int64_t>(machine.device.threads, 1)),
                            "--cluster", kName, "--", "calibrate", "--links", "--out",
                            std::filesystem::absolute(begun)}));
        std::filesystem::rename(begun, file);
      }
      QT_ASSIGN(machine, Machine::load(file));
    }
    machine.node.nodes = cases_.nodes;
    machine.node.devices = cases_.ranks / cases_.nodes;
    // 2. Predictions first: they know nothing of the runs.
    const std::size_t first = rows_.size();
    for (const std::string& layout : cases_.layouts) {
      Row row{.bandwidth = bandwidth, .layout = layout};
      RunConfig run = config_;
      if (auto changed = with_layout(config_, layout, cases_.ranks); changed.ok()) {
        run = changed.value();
        if (auto predicted = predict(run, machine); predicted.ok()) {
          row.predicted = predicted.value();
        } else {
          row.failure = predicted.error().message;
        }
      } else {
        row.failure = changed.error().message;
      }
      rows_.push_back(row);
      runs_.push_back(run);
    }
    // 3. The runs, a round of all layouts at a time.
    Status status;
    for (std::int64_t round = 0; status.ok() && round < cases_.repeats; ++round) {
      for (std::size_t i = first; status.ok() && i < rows_.size(); ++i) {
        if (!rows_[i].failure.empty()) continue;
        std::fprintf(stderr, "%s %s, run %d\n", bandwidth.c_str(), rows_[i].layout.c_str(),
                     static_cast<int>(round + 1));
        auto seconds = measure(runs_[i], fmt::format("{}/{}-{}", folder_, i, round), cluster);
        if (seconds.ok()) {
          rows_[i].seconds.push_back(seconds.value());
        } else if (seconds.error().code == ErrorCode::kInterrupted) {
          status = seconds.error();
        } else {
          rows_[i].failure = seconds.error().message;
        }
      }
    }
    return status;
  }

  Result<double> predict(RunConfig run, const Machine& machine) const {
    QT_TRY(adapt_to(machine, run));
    QT_ASSIGN(const StepOptions options, step_options(run, cases_.ranks));
    QT_ASSIGN(const Simulation simulation, simulate(options, machine, cases_.nodes));
    return simulation.step_seconds;
  }

  Result<double> measure(RunConfig run, const std::string& folder, bool cluster) const {
    if (const auto known = measured_in(folder); known.ok()) return known;
    QT_TRY(make_directories(folder));
    run.output.folder = folder;
    run.train.threads = std::max<std::int64_t>(machine_.device.threads, 1);
    const std::string file = folder + "/run.toml";
    QT_TRY(write_file(file, config_to_toml(run.fields(), false)));
    std::vector<std::string> line = {quintet_,    "launch",
                                     "-n",        std::to_string(cases_.ranks),
                                     "--threads", std::to_string(run.train.threads)};
    if (cluster) line.insert(line.end(), {"--cluster", kName});
    line.insert(line.end(), {"--", "train", file});
    QT_TRY(run_command(line, folder + "/log.txt"));
    return measured_in(folder);
  }

  static Result<double> measured_in(const std::string& folder) {
    QT_ASSIGN(const std::string text, read_file(folder + "/summary.json"));
    QT_ASSIGN(const RunSummary summary, RunSummary::from_json(text, folder + "/summary.json"));
    return summary.step_seconds;
  }

  void print() const {
    fmt::print("\n{:<10} {:<48} {:>12} {:>12} {:>8} {:>8}\n", "links", "layout", "measured ms",
               "predicted ms", "error", "spread");
    std::vector<double> measured, predicted, errors, spreads;
    for (const Row& row : rows_) {
      if (row.seconds.empty() || !row.failure.empty()) {
        fmt::print("{:<10} {:<48} {}\n", row.bandwidth, row.layout,
                   row.failure.empty() ? "not run" : row.failure);
        continue;
      }
      fmt::print("{:<10} {:<48} {:>12.2f} {:>12.2f} {:>7.1f}% {:>7.1f}%\n", row.bandwidth,
                 row.layout, 1e3 * row.measured(), 1e3 * row.predicted, 100 * row.error(),
                 100 * row.spread());
      measured.push_back(row.measured());
      predicted.push_back(row.predicted);
      errors.push_back(std::abs(row.error()));
      spreads.push_back(row.spread());
    }
    if (measured.empty()) return;
    const auto n = static_cast<double>(errors.size());
    fmt::print("\n{} cases: mean error {:.1f}%, worst {:.1f}%, rank correlation {:.3f}\n",
               errors.size(), 100 * std::accumulate(errors.begin(), errors.end(), 0.0) / n,
               100 * *std::max_element(errors.begin(), errors.end()),
               correlation(ranks_of(measured), ranks_of(predicted)));
    fmt::print("noise floor (largest less smallest of the repeats, mean): {:.1f}%\n",
               100 * std::accumulate(spreads.begin(), spreads.end(), 0.0) / n);
    for (const std::string& bandwidth : cases_.bandwidths) {
      const Row *chosen = nullptr, *best = nullptr;
      for (const Row& row : rows_) {
        if (row.seconds.empty() || !row.failure.empty() || row.bandwidth != bandwidth) continue;
        if (chosen == nullptr || row.predicted < chosen->predicted) chosen = &row;
        if (best == nullptr || row.measured() < best->measured()) best = &row;
      }
      if (chosen == nullptr) continue;
      fmt::print("{:<10} predicted best: {} ({:.2f} ms); best: {} ({:.2f} ms); regret {:.1f}%\n",
                 bandwidth, chosen->layout, 1e3 * chosen->measured(), best->layout,
                 1e3 * best->measured(), 100 * (chosen->measured() / best->measured() - 1));
    }
  }

  static constexpr const char* kName = "foresight";
  const RunConfig config_;
  Cases cases_;
  const Machine machine_;
  const std::string folder_, quintet_;
  std::vector<Row> rows_;
  std::vector<RunConfig> runs_;
};

Status run(int argc, char** argv) {
  if (argc < 3) return usage_error("usage: {} CASES.toml MACHINE.toml [FOLDER]", argv[0]);
  QT_ASSIGN(const std::string text, read_file(argv[1]));
  QT_ASSIGN(ConfigValues values, parse_config(text, argv[1]));
  Cases cases;
  FieldList fields;
  fields.add_section("foresight", "What is compared.", cases);
  ConfigValues own, rest;
  for (const auto& [key, value] : values)
    (key.rfind("foresight.", 0) == 0 ? own : rest)[key] = value;
  QT_TRY(apply_config(own, fields, "bench/foresight/foresight.cpp"));
  RunConfig config;
  QT_TRY(apply_config(rest, config.fields()));
  if (cases.ranks % cases.nodes != 0)
    return usage_error("{} ranks on {} nodes: not as many on each", cases.ranks, cases.nodes);
  QT_ASSIGN(Machine machine, Machine::load(argv[2]));
  const std::string self = argv[0];
  const std::string build =
      self.substr(0, self.rfind('/') == std::string::npos ? 0 : self.rfind('/'));
  return Bench(config, cases, machine, argc > 3 ? argv[3] : "/tmp/foresight",
               (build.empty() ? std::string(".") : build) + "/../quintet")
      .run();
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  const quintet::Status status = quintet::run(argc, argv);
  if (!status.ok()) fmt::print(stderr, "foresight: {}\n", status.error().message);
  return status.ok() ? 0 : 1;
}
