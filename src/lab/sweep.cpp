#include "lab/sweep.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "lab/mpirun.h"

namespace quintet {
namespace {

std::vector<std::string> words_of(const std::string& text, char separator) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// Everything about a run that can go wrong after its settings were read.
Status train_under(const RunConfig& config, std::int64_t ranks, const std::string& folder,
                   SweepRow& row) {
  QT_TRY(make_directories(folder));
  RunConfig copy = config;
  copy.output.folder = folder;
  const std::string file = folder + "/run.toml", log = folder + "/log.txt";
  QT_TRY(write_file(file, config_to_toml(copy.fields(), false)));
  MpirunOptions where;
  where.ranks = static_cast<int>(ranks);
  where.threads = static_cast<int>(std::max<std::int64_t>(config.train.threads, 1));
  QT_ASSIGN(const auto line, mpirun_line(where, {"train", file}));
  if (const Status status = run_command(line, log); !status.ok()) {
    const auto said = read_file(log);
    const auto lines = words_of(said.ok() ? said.value() : "", '\n');
    const auto reason = std::find_if(lines.begin(), lines.end(), [](const std::string& text) {
      return text.rfind("quintet: ", 0) == 0;
    });
    return make_error(status.error().code, "{}",
                      reason == lines.end() ? status.error().message : reason->substr(9));
  }
  QT_ASSIGN(const std::string summary, read_file(folder + "/summary.json"));
  QT_ASSIGN(row.run, RunSummary::from_json(summary, folder + "/summary.json"));
  QT_ASSIGN(const std::string metrics, read_file(folder + "/metrics.jsonl"));
  for (const std::string& text : words_of(metrics, '\n')) {
    const auto line = parse_json(text, folder + "/metrics.jsonl");
    if (line.ok() && line.value().is_object()) {
      row.losses.push_back(number_in(line.value(), "loss", std::nan("")));
    }
  }
  return {};
}

}  // namespace

std::vector<std::string> usual_layouts(std::int64_t ranks) {
  std::vector<std::string> layouts = {"ranks=1", "zero=0", "zero=1", "zero=2", "zero=3"};
  if (ranks == 1) return {"ranks=1"};
  layouts.push_back(fmt::format("tp={}", ranks));
  if (ranks % 2 == 0 && ranks > 2) {
    layouts.push_back("tp=2,zero=1");
    layouts.push_back("tp=2,zero=3");
  }
  layouts.push_back(fmt::format("pp={}", ranks));
  if (ranks % 2 == 0 && ranks > 2) {
    layouts.insert(layouts.end(), {"pp=2,zero=1", "pp=2,zero=2", "pp=2,zero=3",
                                   "pp=2,schedule=interleaved,interleave=2,zero=1"});
  }
  if (ranks % 4 == 0) layouts.push_back(ranks == 4 ? "tp=2,pp=2" : "tp=2,pp=2,zero=2");
  return layouts;
}

Result<RunConfig> with_layout(const RunConfig& config, const std::string& settings,
                              std::int64_t ranks) {
  ConfigValues values;
  for (const std::string& word : words_of(settings, ',')) {
    if (word.rfind("ranks=", 0) == 0) continue;
    const bool has_section = word.find('.') < word.find('=');
    QT_TRY(parse_assignment(has_section ? word : "parallel." + word, values));
  }
  const std::int64_t global_batch = config.batch.micro_batch * config.batch.accumulate;
  RunConfig changed = config;
  QT_TRY(apply_config(values, changed.fields()));
  QT_ASSIGN(const Grid grid, make_grid(ranks, changed.parallel));
  const std::int64_t at_once = changed.batch.micro_batch * grid.dp;
  if (global_batch % at_once != 0) {
    return usage_error(
        "a global batch of {} (batch.micro_batch x batch.accumulate on one rank) is not a multiple "
        "of {} data ranks x {} sequences",
        global_batch, grid.dp, changed.batch.micro_batch);
  }
  changed.batch.accumulate = global_batch / at_once;
  QT_TRY(step_options(changed, ranks));
  return changed;
}

Result<SweepRow> run_layout(const RunConfig& config, const std::string& settings,
                            std::int64_t ranks, const std::string& folder) {
  SweepRow row;
  row.settings = settings;
  if (settings.rfind("ranks=1", 0) == 0) ranks = 1;
  const Result<RunConfig> changed = with_layout(config, settings, ranks);
  const Status status =
      changed.ok() ? train_under(changed.value(), ranks, folder, row) : Status(changed.error());
  if (!status.ok() && status.error().code == ErrorCode::kInterrupted) return status.error();
  if (!status.ok()) row.failure = status.error().message;
  return row;
}

void compare_losses(std::vector<SweepRow>& rows) {
  const auto first = std::find_if(rows.begin(), rows.end(),
                                  [](const SweepRow& row) { return row.failure.empty(); });
  if (first == rows.end()) return;
  for (SweepRow& row : rows) {
    for (std::size_t i = 0; i < std::min(row.losses.size(), first->losses.size()); ++i) {
      row.loss_distance = std::max(row.loss_distance,
                                   std::abs(row.losses[i] - first->losses[i]) / first->losses[i]);
    }
  }
}

std::string table_of(const std::vector<SweepRow>& rows) {
  std::string text =
      fmt::format("{:<36} {:>8} {:>9} {:>9} {:>7}  {:>10} {:>10}  {:>10} {:>10} {:>10} {:>7}\n",
                  "layout", "loss", "differs", "ms/step", "speed", "predicted", "measured", "data",
                  "tensor", "pipeline", "bubble");
  for (const SweepRow& row : rows) {
    if (!row.failure.empty()) {
      text += fmt::format("{:<36} {}\n", row.settings, row.failure);
      continue;
    }
    std::int64_t predicted = 0, resident = 0;
    std::array<std::int64_t, kMethodCount> sent{};
    for (const RankSummary& rank : row.run.ranks) {
      predicted = std::max(predicted, rank.predicted_bytes);
      resident = std::max(resident, rank.resident_bytes);
      const auto bytes = by_method(rank.counted);
      for (std::size_t m = 0; m < sent.size(); ++m) sent[m] = std::max(sent[m], bytes[m]);
    }
    const auto human = [](std::int64_t bytes) {
      return bytes == 0 ? std::string("-") : human_bytes(static_cast<double>(bytes));
    };
    const StepAccount mean = row.run.mean_account();
    text += fmt::format(
        "{:<36} {:>8.4f} {:>9.1e} {:>9.2f} {:>6.0f}%  {:>10} {:>10}  {:>10} {:>10} {:>10} "
        "{:>6.1f}%\n",
        row.run.layout, row.losses.empty() ? 0 : row.losses.back(), row.loss_distance,
        row.run.step_seconds * 1e3, 100 * rows.front().run.step_seconds / row.run.step_seconds,
        human(predicted), human(resident), human(sent[1]), human(sent[2]), human(sent[3]),
        100 * mean.bubble / mean.step);
  }
  return text;
}

}  // namespace quintet
