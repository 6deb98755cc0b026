#include "lab/report/study_report.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "lab/report/figures.h"
#include "lab/report/page.h"
#include "lab/report/study_data.h"
#include "lab/report/study_tables.h"
#include "lab/report/trace_line.h"
#include "lab/statistics/analysis.h"

namespace quintet {
namespace {

void add_head(const StudyData& study, const Analysis& analysis, Page& page) {
  std::map<std::string, std::size_t> by_status;
  std::set<std::string> hosts;
  for (const StudyRun& run : study.runs) {
    ++by_status[run.status];
    if (!run.host.empty()) hosts.insert(run.host);
  }
  page.section("The answer");
  page.answer(answer_of(analysis));
  std::vector<std::pair<std::string, std::string>> facts = {
      {"runs done", fmt::format("{} of {}", by_status["done"], study.runs.size())},
      {"settings", fmt::format("{}", analysis.cells.size())},
      {"blocks", fmt::format("{}", analysis.table.blocks)}};
  if (by_status["impossible"] + by_status["failed"] > 0) {
    facts.emplace_back("could not run",
                       fmt::format("{}", by_status["impossible"] + by_status["failed"]));
  }
  const NoiseFloor& noise = analysis.effects.noise;
  if (noise.repeats.freedom > 0) {
    facts.emplace_back("noise floor", fmt::format("{:.1f} %", 100 * (noise.spread - 1)));
  }
  if (!study.text("version").empty()) facts.emplace_back("version", study.text("version"));
  if (!study.text("created").empty()) facts.emplace_back("begun", study.text("created"));
  if (!study.text("host").empty()) facts.emplace_back("host", study.text("host"));
  page.facts(facts);
  const std::size_t left = by_status["planned"] + by_status["running"];
  if (left > 0) {
    page.paragraph(
        fmt::format("This study is not finished: {} of {} runs are not done. What follows rests on "
                    "what there is.",
                    left, study.runs.size()));
  }
}

void add_pictures(const Analysis& analysis, const Path& folder, Page& page) {
  page.section("Time by method");
  add_response_figures(analysis, page);
  add_breakdown_figures(analysis, page);
  if (analysis.table.factors.size() > 1) {
    page.section("What the methods do to each other");
    add_interaction_figures(analysis, page);
  }
  if (!analysis.crossovers.empty()) {
    page.section("Where the answer turns");
    add_crossover_figures(analysis, page);
  }
  if (!analysis.scalings.empty()) {
    page.section("Scaling over nodes");
    add_scaling_figure(analysis, page);
    const PageTable table = scaling_table(analysis);
    page.table(table,
               table.rows.size() > 12
                   ? fmt::format("{} efficiencies, and what eats the rest", table.rows.size())
                   : "");
  }
  if (!analysis.tradeoffs.empty()) {
    page.section("Memory");
    add_tradeoff_figures(analysis, page);
  }
  if (!analysis.prediction.cells.empty()) {
    page.section("Predictions");
    add_prediction_figure(analysis, page);
  }
  if (const auto trace = find_trace(folder)) {
    const auto line = read_time_line(*trace);
    page.section("One step on one rank");
    if (line.ok()) {
      page.figure(line.value().title, "From " + trace->filename().string() + ".", line.value());
    } else {
      page.paragraph(line.error().message);
    }
  }
}

void add_tables(const Analysis& analysis, Page& page) {
  page.section("Figures");
  page.subsection("What explains the variance of the logarithm");
  page.table(share_table(analysis));
  page.subsection("Main effects");
  page.paragraph(fmt::format(
      "{} multiplied by; averaged alike over the levels of the other factors at which both ran.",
      axis_label(analysis.table.response)));
  page.table(main_effect_table(analysis));
  if (!analysis.effects.interactions.empty()) {
    page.subsection("Interactions");
    page.paragraph("By how much an effect is multiplied where another setting holds.");
    page.table(interaction_table(analysis));
  }
  if (!analysis.crossovers.empty()) {
    page.subsection("Crossovers");
    page.table(crossover_table(analysis));
  }
  if (!analysis.dominated.empty()) {
    page.subsection("Layouts nobody should use");
    page.paragraph("Wherever they ran, another was as good in time and memory and better in one.");
    page.table(dominated_table(analysis));
  }
  if (!analysis.prediction.regrets.empty()) {
    page.subsection("What choosing by prediction costs");
    page.table(regret_table(analysis));
  }
  if (!analysis.prediction.cells.empty()) {
    page.table(prediction_table(analysis),
               fmt::format("Errors of {} predictions", analysis.prediction.cells.size()));
  }
  page.table(mean_table(analysis), fmt::format("Means of {} settings", analysis.cells.size()));
}

void add_method(const StudyData& study, const StudyTables& tables, const Analysis& analysis,
                Page& page) {
  page.section("How it was measured");
  const NoiseFloor& noise = analysis.effects.noise;
  std::vector<std::string> items;
  if (noise.repeats.freedom > 0) {
    items.push_back(
        fmt::format("Noise floor: the same run repeated varies by {:.2f} % (one standard "
                    "deviation, {:.0f} degrees of "
                    "freedom); two single runs must differ by x {:.3f} to be told apart.",
                    100 * (noise.spread - 1), noise.repeats.freedom, noise.resolution));
    if (const std::string intervals = intervals_text(noise); !intervals.empty())
      items.push_back("Beyond that, " + intervals + ".");
  } else {
    items.push_back("Noise floor: no run was repeated" +
                    std::string(noise.noise.freedom > 0
                                    ? "; intervals rest on what the model leaves over."
                                    : "; there are no intervals."));
  }
  if (!std::isnan(noise.block_spread)) {
    items.push_back(
        fmt::format("Runs were made in {} blocks, in random order within each; the slowest block "
                    "over the fastest is x "
                    "{:.3f}, which is taken out of all effects.",
                    analysis.table.blocks, noise.block_spread));
  }
  items.push_back(
      "Effects are on the logarithm of the response; intervals are 95 %, the wider of Student's "
      "and a bootstrap over blocks and repeats; Holm corrects for having looked at many.");
  if (analysis.simulated) items.push_back("All figures are predictions: nothing was measured.");
  if (!analysis.constant_factors.empty()) {
    items.push_back("One level only, not analysed: " + join(analysis.constant_factors, ", ") + ".");
  }
  for (const auto* notes : {&tables.notes, &analysis.notes}) {
    for (const std::string& note : *notes) items.push_back(note + ".");
  }
  for (const std::string& one : analysis.effects.not_estimated) {
    items.push_back("Not estimated: " + one + ".");
  }
  page.list(items);
  if (const auto links = link_table(study)) {
    page.subsection("Links, as asked and as measured before the study");
    page.table(*links);
  }
  const PageTable missing = missing_table(study);
  page.subsection("What could not run, and why");
  if (missing.rows.empty()) {
    page.paragraph("Everything that was planned could run.");
  } else {
    page.table(missing);
  }
  page.section("The way back");
  page.paragraph("Each run with the command that repeats it.");
  page.table(run_table(study), fmt::format("All {} runs", study.runs.size()));
  if (!study.text("file").empty()) {
    page.subsection("The study file");
    page.code(study.text("file"));
  }
}

}  // namespace

Result<std::string> study_report(const Path& folder) {
  QT_ASSIGN(const StudyData study, read_study(folder));
  QT_ASSIGN(const StudyTables tables, tables_from_study(study, {}, folder.string()));
  QT_ASSIGN(const Analysis analysis, analyse(tables.measured, tables.simulated, folder.string()));
  const std::string name = study.text("name");
  Page page(name.empty() ? folder.filename().string() : name, study.text("question"));
  add_head(study, analysis, page);
  add_pictures(analysis, folder, page);
  add_tables(analysis, page);
  add_method(study, tables, analysis, page);
  return page.finish();
}

}  // namespace quintet
