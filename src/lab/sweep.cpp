#include "lab/sweep.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/text.h"
#include "lab/measured_run.h"
#include "lab/study_file.h"

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

constexpr std::string_view kRanks = "ranks=";

bool is_about_ranks(const std::string& word) {
  return word.rfind(kRanks, 0) == 0;
}

// On how many of the sweep's ranks a layout runs: on all, or on one.
Result<std::int64_t> ranks_of(const std::string& settings, std::int64_t all) {
  std::int64_t ranks = all;
  for (const std::string& word : words_of(settings, ',')) {
    if (!is_about_ranks(word)) continue;
    if (word == fmt::format("{}{}", kRanks, all)) {
      ranks = all;
    } else if (word == fmt::format("{}1", kRanks)) {
      ranks = 1;
    } else {
      return usage_error("{}: a layout runs on all {} ranks of the sweep (-n), or on one: ranks=1",
                         word, all);
    }
  }
  return ranks;
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
    if (is_about_ranks(word)) continue;
    const bool has_section = word.find('.') < word.find('=');
    const std::size_t before = values.size();
    QT_TRY(parse_assignment(has_section ? word : "parallel." + word, values));
    if (values.size() == before) {
      return usage_error("layout {}: {} is given twice; say it once", settings,
                         word.substr(0, word.find('=')));
    }
  }
  RunConfig changed = config;
  QT_TRY(apply_config(values, changed.fields()));
  if (!changed.batch.ramp.empty()) {
    return usage_error(
        "a sweep compares layouts at batches of one size, and batch.ramp asks for several; "
        "leave it out, or --set batch.ramp=[]");
  }
  const std::int64_t global_batch = config.batch.global > 0
                                        ? config.batch.global
                                        : config.batch.micro_batch * config.batch.accumulate;
  changed.batch.global = 0;
  QT_TRY(keep_global_batch(changed, global_batch, ranks));
  QT_TRY(step_options(changed, ranks));
  return changed;
}

Result<SweepRow> run_layout(const RunConfig& config, const std::string& settings,
                            std::int64_t ranks, const std::string& folder,
                            const std::atomic<bool>* interrupted) {
  SweepRow row;
  row.settings = settings;
  const Result<std::int64_t> asked = ranks_of(settings, ranks);
  ranks = asked.ok() ? asked.value() : ranks;
  Result<RunConfig> changed = asked.ok() ? with_layout(config, settings, ranks) : asked.error();
  if (!changed.ok()) {
    row.failure = changed.error().message;
    row.code = changed.error().code;
    return row;
  }
  changed.value().output.checkpoints = false;
  changed.value().train.threads = std::max<std::int64_t>(config.train.threads, 1);
  RunPlace place;
  place.ranks_per_node = ranks;
  RunLimits limits;
  limits.interrupted = interrupted;
  const RunOutcome outcome = run_measured(place, changed.value(), folder, limits);
  if (outcome.run.ok()) {
    row.run = outcome.run.value().summary;
    row.losses = outcome.run.value().losses;
  } else if (outcome.run.error().code == ErrorCode::kInterrupted) {
    return outcome.run.error();
  } else {
    row.failure = outcome.run.error().message;
    row.code = outcome.run.error().code;
  }
  return row;
}

const SweepRow* first_that_ran(const std::vector<SweepRow>& rows) {
  const auto first = std::find_if(rows.begin(), rows.end(),
                                  [](const SweepRow& row) { return row.failure.empty(); });
  return first == rows.end() ? nullptr : &*first;
}

void compare_losses(std::vector<SweepRow>& rows) {
  const SweepRow* first = first_that_ran(rows);
  if (first == nullptr) return;
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
        row.run.step_seconds * 1e3,
        100 * first_that_ran(rows)->run.step_seconds / row.run.step_seconds, human(predicted),
        human(resident), human(sent[1]), human(sent[2]), human(sent[3]),
        100 * mean.bubble / mean.step);
  }
  return text;
}

}  // namespace quintet
