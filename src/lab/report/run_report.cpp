#include "lab/report/run_report.h"

#include <algorithm>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "lab/report/figures.h"
#include "lab/report/page.h"
#include "lab/report/trace_line.h"
#include "lab/statistics/table.h"
#include "train/ledger.h"

namespace quintet {
namespace {

constexpr std::size_t kMostPoints = 300;  // of a curve: more cannot be seen

// One line of metrics.jsonl; what it lacks is kUnknown.
struct MetricsLine {
  double step = 0, loss = kUnknown, rate = kUnknown, norm = kUnknown, seconds = kUnknown,
         data_seconds = kUnknown, tokens_per_second = kUnknown, validation = kUnknown,
         bits_per_byte = kUnknown, smoothed = kUnknown;
  std::string spike = {};
};

struct RunFiles {
  std::string name;
  Path folder;
  std::vector<MetricsLine> lines;
  std::size_t unreadable = 0;
  Json languages;  // of the last validation, by name
  std::optional<RunSummary> summary;
  std::string no_summary;  // why there is none
};

Result<RunFiles> read_run(const Path& folder, const std::string& name) {
  RunFiles run;
  run.name = name;
  run.folder = folder;
  const Path metrics = folder / "metrics.jsonl";
  auto text = read_file(metrics);
  if (!text.ok()) {
    return bad_input("{}: there is no run here: {}", folder.string(), text.error().message);
  }
  const std::string& all = text.value();
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find('\n', begin), all.size());
    const std::string_view line = std::string_view(all).substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \r\t") == std::string_view::npos) continue;
    const auto json = parse_json(line, metrics.string());
    const double step = json.ok() ? number_in(json.value(), "step", kUnknown) : kUnknown;
    if (std::isnan(step)) {
      ++run.unreadable;
      continue;
    }
    const auto value = [&](const char* key) { return number_in(json.value(), key, kUnknown); };
    run.lines.push_back({step, value("loss"), value("lr"), value("grad_norm"), value("seconds"),
                         value("data_seconds"), value("tokens_per_second")});
    if (const auto spike = json.value().find("spike");
        spike != json.value().end() && spike->is_string())
      run.lines.back().spike = spike->get<std::string>();
    const auto validation = json.value().find("validation");
    if (validation == json.value().end() || !validation->is_object()) continue;
    run.lines.back().validation = number_in(*validation, "loss", kUnknown);
    run.lines.back().smoothed = number_in(*validation, "smoothed", kUnknown);
    run.lines.back().bits_per_byte = number_in(*validation, "bits_per_byte", kUnknown);
    if (validation->contains("languages")) run.languages = validation->at("languages");
  }
  if (run.lines.empty()) return bad_input("{}: no step has been recorded yet", metrics.string());
  const Path summary = folder / "summary.json";
  if (!std::filesystem::exists(summary)) {
    run.no_summary = "the run has not ended, so there is no summary.json";
    return run;
  }
  QT_ASSIGN(const std::string words, read_file(summary));
  auto parsed = RunSummary::from_json(words, summary.string());
  if (!parsed.ok()) return parsed.error();
  run.summary = std::move(parsed).value();
  return run;
}

// Means of so many neighbours that a curve has no more points than can be seen.
std::vector<ChartPoint> curve(const RunFiles& run, double MetricsLine::*what,
                              const ValueFormat& format) {
  const std::size_t together = (run.lines.size() + kMostPoints - 1) / kMostPoints;
  std::vector<ChartPoint> points;
  for (std::size_t i = 0; i < run.lines.size(); i += together) {
    double sum = 0, steps = 0;
    std::size_t count = 0;
    for (std::size_t j = i; j < std::min(i + together, run.lines.size()); ++j) {
      if (!std::isfinite(run.lines[j].*what)) continue;
      sum += run.lines[j].*what;
      steps += run.lines[j].step;
      ++count;
    }
    if (count == 0) continue;
    const double n = static_cast<double>(count);
    points.push_back({steps / n, sum / n, kUnknown, kUnknown,
                      fmt::format("{}step {:.0f}: {}", run.name.empty() ? "" : run.name + ", ",
                                  steps / n, format(sum / n))});
  }
  return points;
}

void add_curve(const std::vector<RunFiles>& runs, const std::string& heading,
               const std::string& caption, double MetricsLine::*what, Axis y, Page& page) {
  XyChart chart;
  chart.title = heading + " over steps";
  chart.x.label = "step";
  chart.y = std::move(y);
  for (std::size_t r = 0; r < runs.size(); ++r) {
    Series series;
    series.name = runs.size() > 1 ? runs[r].name : "";
    series.colour = r;
    series.points = curve(runs[r], what, chart.y.format);
    series.markers = series.points.size() <= 40;
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  if (!chart.series.empty()) page.figure(heading, caption, chart);
}

double mean_of(const std::vector<MetricsLine>& lines, double MetricsLine::*what, std::size_t from) {
  double sum = 0, count = 0;
  for (std::size_t i = from; i < lines.size(); ++i) {
    if (std::isfinite(lines[i].*what)) sum += lines[i].*what, ++count;
  }
  return count > 0 ? sum / count : kUnknown;
}

// The first steps pay for what later ones do not.
std::size_t warm(const RunFiles& run) {
  return run.lines.size() > 4 ? run.lines.size() / 10 + 1 : 0;
}

void add_overview(const std::vector<RunFiles>& runs, Page& page) {
  PageTable table{{{"run"},
                   {"model"},
                   {"layout"},
                   {"steps", true},
                   {"last loss", true},
                   {"time per step", true},
                   {"tokens/s", true},
                   {"waiting for data", true},
                   {"memory", true}},
                  {}};
  for (const RunFiles& run : runs) {
    const MetricsLine& last = run.lines.back();
    const double seconds = run.summary ? run.summary->step_seconds
                                       : mean_of(run.lines, &MetricsLine::seconds, warm(run));
    const double tokens = mean_of(run.lines, &MetricsLine::tokens_per_second, warm(run));
    const double waits = mean_of(run.lines, &MetricsLine::data_seconds, warm(run)) /
                         mean_of(run.lines, &MetricsLine::seconds, warm(run));
    const double memory =
        run.summary ? static_cast<double>(run.summary->largest_arena()) : kUnknown;
    const auto known = [](double value, const std::string& text) {
      return std::isfinite(value) ? PageCell{text, value} : PageCell{"unknown"};
    };
    table.rows.push_back({{run.name},
                          {run.summary ? run.summary->model : ""},
                          {run.summary ? run.summary->layout : run.no_summary},
                          known(last.step, fmt::format("{:.0f}", last.step)),
                          known(last.loss, fmt::format("{:.4f}", last.loss)),
                          known(seconds, short_seconds(seconds)),
                          known(tokens, fmt::format("{:.0f}", tokens)),
                          known(waits, fmt::format("{:.1f} %", 100 * waits)),
                          known(memory, human_bytes(memory))});
  }
  page.table(table);
  for (const RunFiles& run : runs) {
    if (run.unreadable == 0) continue;
    page.paragraph(fmt::format("{}: {} lines of metrics.jsonl could not be read and are left out.",
                               run.folder.string(), run.unreadable));
  }
}

// The last validation of each run, by language.
void add_languages(const std::vector<RunFiles>& runs, Page& page) {
  PageTable table{{{"run"},
                   {"language"},
                   {"validation loss", true},
                   {"bits per byte", true},
                   {"sequences", true}},
                  {}};
  for (const RunFiles& run : runs) {
    if (!run.languages.is_object()) continue;
    for (const auto& [name, figures] : run.languages.items()) {
      const auto cell = [&, &one = figures](const char* key, int digits) {
        const double value = number_in(one, key, kUnknown);
        return std::isfinite(value) ? PageCell{fmt::format("{:.{}f}", value, digits), value}
                                    : PageCell{"unknown"};
      };
      table.rows.push_back(
          {{run.name}, {name}, cell("loss", 4), cell("bits_per_byte", 4), cell("sequences", 0)});
    }
  }
  if (!table.rows.empty()) page.table(table);
}

// Steps whose loss or gradient norm jumped.
void add_spikes(const std::vector<RunFiles>& runs, Page& page) {
  PageTable table{{{"run"}, {"step", true}, {"spike"}}, {}};
  for (const RunFiles& run : runs) {
    for (const MetricsLine& line : run.lines) {
      if (!line.spike.empty())
        table.rows.push_back(
            {{run.name}, {fmt::format("{:.0f}", line.step), line.step}, {line.spike}});
    }
  }
  if (table.rows.empty()) return;
  page.subsection(fmt::format("{} spike{}", table.rows.size(), table.rows.size() == 1 ? "" : "s"));
  page.table(table, table.rows.size() > 12 ? "All of them" : "");
}

Breakdown breakdown_of(const StepAccount& account) {
  Breakdown rows;
  for (const AccountPart& part : parts_of(account)) rows.emplace_back(part.name, part.seconds);
  return rows;
}

void add_breakdown(const std::vector<RunFiles>& runs, Page& page) {
  // A bar for each run; of a single run one for each rank, too.
  BarChart chart;
  std::vector<Breakdown> rows;
  const auto add = [&](const std::string& label, const StepAccount& account) {
    chart.bars.push_back({.label = label, .value = short_seconds(account.step)});
    rows.push_back(breakdown_of(account));
  };
  for (const RunFiles& run : runs) {
    if (!run.summary) continue;
    add(runs.size() > 1 ? run.name : "mean of ranks", run.summary->mean_account());
    if (runs.size() > 1 || run.summary->ranks.size() < 2) continue;
    for (std::size_t r = 0; r < std::min<std::size_t>(run.summary->ranks.size(), 16); ++r) {
      const RankSummary& rank = run.summary->ranks[r];
      add(fmt::format("rank {} (dp {}, tp {}, pp {})", rank.rank, rank.dp, rank.tp, rank.pp),
          rank.account);
    }
  }
  if (chart.bars.empty()) return;
  StackedParts stacked = stacked_parts(rows);
  chart.parts = stacked.names;
  for (std::size_t b = 0; b < chart.bars.size(); ++b) chart.bars[b].parts = stacked.rows[b];
  chart.title = "Time breakdown per step";
  chart.x = {.label = "Time per step", .format = short_seconds};
  page.figure("Where the time goes", "Mean over the steps after the first.", chart);
}

void add_memory(const std::vector<RunFiles>& runs, Page& page) {
  BarChart chart;
  chart.parts = {""};
  for (const RunFiles& run : runs) {
    if (!run.summary || run.summary->ranks.empty()) continue;
    const auto largest = [&](std::int64_t RankSummary::*what) {
      std::int64_t most = 0;
      for (const RankSummary& rank : run.summary->ranks) most = std::max(most, rank.*what);
      return static_cast<double>(most);
    };
    if (runs.size() > 1) chart.bars.push_back({.label = run.name, .heading = true});
    for (const auto& [label, what] :
         {std::pair{"predicted", &RankSummary::predicted_bytes},
          std::pair{"asked of the system", &RankSummary::arena_bytes},
          std::pair{"given by the system", &RankSummary::resident_bytes}}) {
      const double bytes = largest(what);
      if (bytes > 0) {
        chart.bars.push_back({.label = label,
                              .parts = {bytes},
                              .tip = human_bytes(bytes),
                              .value = human_bytes(bytes)});
      }
    }
  }
  if (chart.bars.empty()) return;
  chart.title = "Memory of the largest rank";
  chart.x = {.label = "Memory", .format = short_bytes};
  // In powers of two, four to eight of them.
  double most = 1;
  for (const BarChart::Bar& bar : chart.bars) {
    if (!bar.parts.empty()) most = std::max(most, bar.parts[0]);
  }
  const double step = std::exp2(std::floor(std::log2(most)) - 2);
  for (double at = 0; at <= 2 * most; at += step) chart.x.ticks.push_back({at, short_bytes(at)});
  page.figure("Memory", "Of the rank that takes most.", chart);
}

// Names that tell the runs apart: their folders' last parts, or whole paths where these are alike.
std::vector<std::string> names_of(const std::vector<Path>& folders) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const Path& folder : folders) {
    Path clean = folder.lexically_normal();
    if (!clean.has_filename()) clean = clean.parent_path();
    names.push_back(clean.filename().string());
    seen.insert(names.back());
  }
  if (seen.size() == folders.size()) return names;
  names.clear();
  for (const Path& folder : folders) names.push_back(folder.string());
  return names;
}

}  // namespace

Result<std::string> run_report(const std::vector<Path>& folders) {
  const auto names = names_of(folders);
  std::vector<RunFiles> runs;
  for (std::size_t i = 0; i < folders.size(); ++i) {
    QT_ASSIGN(RunFiles run, read_run(folders[i], names[i]));
    runs.push_back(std::move(run));
  }
  Page page(runs.size() == 1 ? names[0] : fmt::format("{} runs side by side", runs.size()),
            runs.size() == 1 && runs[0].summary
                ? fmt::format("{}, {}", runs[0].summary->model, runs[0].summary->layout)
                : join(names, ", "));
  add_overview(runs, page);
  page.section("Learning");
  add_curve(runs, "Loss", "Mean over neighbouring steps where there are many.", &MetricsLine::loss,
            {.label = "loss"}, page);
  add_curve(runs, "Validation loss", "On text that is not trained on.", &MetricsLine::validation,
            {.label = "validation loss"}, page);
  const auto validations = [](const RunFiles& run) {
    return std::count_if(run.lines.begin(), run.lines.end(),
                         [](const MetricsLine& line) { return std::isfinite(line.smoothed); });
  };
  if (std::any_of(runs.begin(), runs.end(),
                  [&](const RunFiles& run) { return validations(run) >= 5; })) {
    add_curve(runs, "Validation loss, smoothed",
              "A running mean in which the newest validation weighs 0.3.", &MetricsLine::smoothed,
              {.label = "validation loss"}, page);
  }
  add_curve(runs, "Bits per byte", "Of the same text, comparable between tokenizers.",
            &MetricsLine::bits_per_byte, {.label = "bits per byte"}, page);
  add_languages(runs, page);
  add_spikes(runs, page);
  add_curve(runs, "Learning rate", "", &MetricsLine::rate,
            {.label = "learning rate", .from_zero = true}, page);
  add_curve(runs, "Gradient norm", "Before clipping.", &MetricsLine::norm,
            {.label = "gradient norm", .logarithmic = true}, page);
  page.section("Speed");
  add_curve(runs, "Throughput", "Tokens of source and target, all ranks together.",
            &MetricsLine::tokens_per_second, {.label = "tokens per second", .from_zero = true},
            page);
  add_breakdown(runs, page);
  add_memory(runs, page);
  for (const RunFiles& run : runs) {
    const auto trace = find_trace(run.folder);
    if (!trace) continue;
    const auto line = read_time_line(*trace);
    if (line.ok()) {
      page.figure(runs.size() > 1 ? run.name + ": " + line.value().title : line.value().title,
                  "From " + trace->filename().string() + ".", line.value());
    } else {
      page.paragraph(line.error().message);
    }
  }
  return page.finish();
}

}  // namespace quintet
