#include "lab/report/study_tables.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"

namespace quintet {
namespace {

PageCell number(const std::string& text, double value) {
  return {text, value};
}

PageCell percent(double share) {
  return {fmt::format("{:.1f} %", 100 * share), share};
}

PageCell verdict(double p_holm) {
  if (std::isnan(p_holm)) return {""};
  return {p_holm < 0.05 ? "yes" : "no", p_holm};
}

void add_estimate(std::vector<PageCell>& row, const Estimate& estimate) {
  row.push_back(number(fmt::format("x {:.3f}", estimate.factor), estimate.factor));
  row.push_back(
      estimate.has_interval()
          ? number(fmt::format("{:.3f} to {:.3f}", estimate.low, estimate.high), estimate.low)
          : PageCell{"unknown"});
  row.push_back(verdict(estimate.p_holm));
}

std::string settings_text(const StudyData& study, const StudyRun& run) {
  std::vector<std::string> parts;
  for (std::size_t f = 0; f < study.factors.size(); ++f) {
    parts.push_back(study.factors[f].name + " " + run.settings[f]);
  }
  return join(parts, ", ");
}

PageCell quantity(const std::string& kind, double value) {
  if (std::isnan(value)) return {""};
  return {format_response(kind, value), value};
}

}  // namespace

PageTable share_table(const Analysis& analysis) {
  PageTable table{
      {{"term"}, {"share (type II)", true}, {"freedom", true}, {"beyond chance (Holm)"}}, {}};
  for (const Share& share : analysis.effects.shares) {
    table.rows.push_back({{share.name},
                          percent(share.share),
                          number(fmt::format("{:.0f}", share.freedom), share.freedom),
                          verdict(share.p_holm)});
  }
  return table;
}

PageTable main_effect_table(const Analysis& analysis) {
  PageTable table{
      {{"level"}, {"against"}, {"factor", true}, {"95 % interval", true}, {"beyond chance (Holm)"}},
      {}};
  for (const MainEffect& effect : analysis.effects.main) {
    const Factor& factor = analysis.table.factors[effect.factor];
    table.rows.push_back({{factor.name + " " + factor.levels[effect.level]}, {factor.levels[0]}});
    add_estimate(table.rows.back(), effect.estimate);
  }
  return table;
}

PageTable interaction_table(const Analysis& analysis) {
  PageTable table{
      {{"effect of"}, {"at"}, {"factor", true}, {"95 % interval", true}, {"beyond chance (Holm)"}},
      {}};
  std::vector<Interaction> sorted = analysis.effects.interactions;
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::abs(std::log(a.estimate.factor)) > std::abs(std::log(b.estimate.factor));
  });
  for (const Interaction& effect : sorted) {
    const Factor& factor = analysis.table.factors[effect.factor];
    const Factor& other = analysis.table.factors[effect.other];
    table.rows.push_back({{fmt::format("{} {} against {}", factor.name, factor.levels[effect.level],
                                       factor.levels[0])},
                          {fmt::format("{} {} rather than {}", other.name,
                                       other.levels[effect.other_level], other.levels[0])}});
    add_estimate(table.rows.back(), effect.estimate);
  }
  return table;
}

PageTable crossover_table(const Analysis& analysis) {
  PageTable table{{{"levels"},
                   {"along"},
                   {"crosses at", true},
                   {"95 % interval", true},
                   {"below it"},
                   {"certain"}},
                  {}};
  for (const Crossover& one : analysis.crossovers) {
    const Factor& factor = analysis.table.factors[one.factor];
    const Factor& along = analysis.table.factors[one.along];
    const PageCell levels{fmt::format("{} {} and {}", factor.name, factor.levels[one.first],
                                      factor.levels[one.second])};
    if (one.crossings.empty()) {
      table.rows.push_back({levels,
                            {along.name},
                            {"none in the range"},
                            {""},
                            {fmt::format("{} {} is smaller throughout", factor.name,
                                         factor.levels[one.first_wins() ? one.first : one.second])},
                            {one.clear_throughout() ? "yes" : "not everywhere"}});
    }
    for (const Crossing& crossing : one.crossings) {
      table.rows.push_back(
          {levels,
           {along.name},
           number(format_between(along, crossing.at), crossing.at),
           number(fmt::format("{}{} to {}{}", format_between(along, crossing.low),
                              crossing.open_low ? " or less" : "",
                              format_between(along, crossing.high),
                              crossing.open_high ? " or more" : ""),
                  crossing.low),
           {fmt::format("{} {} is smaller", factor.name,
                        factor.levels[crossing.first_wins_below ? one.first : one.second])},
           {crossing.certain() ? "yes" : "no"}});
    }
  }
  return table;
}

PageTable scaling_table(const Analysis& analysis) {
  PageTable table{
      {{"setting"}, {"nodes", true}, {"speed-up", true}, {"efficiency", true}, {"lost mostly to"}},
      {}};
  for (const Scaling& scaling : analysis.scalings) {
    for (const ScalingPoint& point : scaling.points) {
      if (&point == &scaling.points.front()) continue;  // what the others are compared with
      std::vector<std::string> lost;
      for (const auto& [name, share] : point.lost_to) {
        if (share > 0.01 && lost.size() < 3) {
          lost.push_back(fmt::format("{} ({:.0f} %)", name, 100 * share));
        }
      }
      table.rows.push_back({{scaling.setting},
                            number(fmt::format("{:g}", point.nodes), point.nodes),
                            number(fmt::format("{:.2f}", point.speed_up), point.speed_up),
                            percent(point.efficiency),
                            {join(lost, ", ")}});
    }
  }
  return table;
}

PageTable dominated_table(const Analysis& analysis) {
  PageTable table{{{"layout"}, {"beaten most often by"}, {"environments", true}}, {}};
  for (const DominatedLayout& one : analysis.dominated) {
    table.rows.push_back(
        {{one.layout},
         {one.by},
         number(fmt::format("{}", one.environments), static_cast<double>(one.environments))});
  }
  return table;
}

PageTable regret_table(const Analysis& analysis) {
  PageTable table{
      {{"where"}, {"predicted best"}, {"measured best"}, {"regret", true}, {"layouts", true}}, {}};
  for (const Regret& regret : analysis.prediction.regrets) {
    table.rows.push_back(
        {{regret.environment},
         {regret.chosen},
         {regret.best},
         percent(regret.regret),
         number(fmt::format("{}", regret.layouts), static_cast<double>(regret.layouts))});
  }
  return table;
}

PageTable prediction_table(const Analysis& analysis) {
  const Table& compared = analysis.compared;
  PageTable table{{{"setting"}, {"measured", true}, {"predicted", true}, {"error", true}}, {}};
  for (const PredictedCell& cell : analysis.prediction.cells) {
    table.rows.push_back({{compared.describe(cell.level, compared.all_factors())},
                          quantity(compared.response, cell.measured),
                          quantity(compared.response, cell.predicted),
                          number(fmt::format("{:+.1f} %", 100 * cell.error()), cell.error())});
  }
  return table;
}

PageTable mean_table(const Analysis& analysis) {
  const Table& data = analysis.table;
  PageTable table;
  for (const Factor& factor : data.factors) table.columns.push_back({factor.name, factor.numeric});
  for (const char* name : {"mean", "95 % interval", "repeats", "memory"}) {
    table.columns.push_back({name, true});
  }
  for (std::size_t c = 0; c < analysis.cells.size(); ++c) {
    const Cell& cell = analysis.cells[c];
    const Estimate& mean = analysis.cell_means[c];
    std::vector<PageCell> row;
    for (std::size_t f = 0; f < data.factors.size(); ++f) {
      const std::string& level = data.factors[f].levels[cell.level[f]];
      row.push_back({level, numeric_value(level).value_or(kUnknown)});
    }
    row.push_back(quantity(data.response, mean.factor));
    row.push_back(mean.has_interval()
                      ? PageCell{fmt::format("{} to {}", format_response(data.response, mean.low),
                                             format_response(data.response, mean.high)),
                                 mean.low}
                      : PageCell{"unknown"});
    row.push_back(number(fmt::format("{}", cell.count), static_cast<double>(cell.count)));
    row.push_back(quantity("bytes", cell.memory_bytes));
    table.rows.push_back(std::move(row));
  }
  return table;
}

PageTable missing_table(const StudyData& study) {
  PageTable table{{{"setting"}, {"what"}, {"reason"}, {"runs", true}}, {}};
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> seen;
  for (const StudyRun& run : study.runs) {
    if (run.status != "impossible" && run.status != "failed") continue;
    ++seen[{settings_text(study, run), run.status, run.reason}];
  }
  for (const auto& [what, count] : seen) {
    table.rows.push_back({{std::get<0>(what)},
                          {std::get<1>(what)},
                          {std::get<2>(what)},
                          number(fmt::format("{}", count), static_cast<double>(count))});
  }
  return table;
}

PageTable run_table(const StudyData& study) {
  PageTable table;
  table.columns = {{"run", true}, {"block", true}, {"order", true}, {"origin"}};
  for (const StudyFactor& factor : study.factors) {
    table.columns.push_back({factor.name, factor.numeric});
  }
  for (const char* name : {"time per step", "tokens/s", "memory", "bytes sent"}) {
    table.columns.push_back({name, true});
  }
  table.columns.insert(table.columns.end(), {{"status"}, {"command"}});
  for (const StudyRun& run : study.runs) {
    const auto count = [](std::int64_t value) {
      return number(fmt::format("{}", value), static_cast<double>(value));
    };
    std::vector<PageCell> row = {count(run.id),
                                 count(run.block),
                                 count(run.position),
                                 {run.simulated ? "simulated" : "measured"}};
    for (const std::string& level : run.settings) {
      row.push_back({level, numeric_value(level).value_or(kUnknown)});
    }
    row.push_back(quantity("seconds", run.step_seconds));
    row.push_back(
        std::isnan(run.tokens_per_second)
            ? PageCell{""}
            : number(fmt::format("{:.0f}", run.tokens_per_second), run.tokens_per_second));
    row.push_back(quantity("bytes", run.memory_bytes));
    row.push_back(quantity("bytes", run.bytes_sent));
    row.push_back({run.status});
    row.push_back({run.command, kUnknown, true});
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::optional<PageTable> link_table(const StudyData& study) {
  const auto parsed = parse_json(study.text("links"), "links");
  if (!parsed.ok()) return std::nullopt;
  // A list of objects, or an object of objects by the link's name: a row each.
  std::vector<std::pair<std::string, Json>> links;
  if (parsed.value().is_array()) {
    for (const Json& link : parsed.value()) links.emplace_back("", link);
  } else if (parsed.value().is_object()) {
    for (const auto& [name, link] : parsed.value().items()) links.emplace_back(name, link);
  }
  std::vector<std::string> keys;
  for (const auto& [name, link] : links) {
    if (!link.is_object()) continue;
    for (const auto& [key, value] : link.items()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  if (keys.empty()) return std::nullopt;
  PageTable table;
  const bool named = parsed.value().is_object();
  if (named) table.columns.push_back({"link"});
  for (const std::string& key : keys) table.columns.push_back({key, true});
  for (const auto& [name, link] : links) {
    std::vector<PageCell> row;
    if (named) row.push_back({name});
    for (const std::string& key : keys) {
      const auto value = link.is_object() ? link.find(key) : link.end();
      if (value == link.end()) {
        row.push_back({""});
      } else if (value->is_number()) {
        const double amount = value->get<double>();
        // Bits per second are numbers nobody reads.
        row.push_back({amount >= 1e5 ? fmt::format("{:.4g} Mbit/s", amount / 1e6)
                                     : fmt::format("{:.4g}", amount),
                       amount});
      } else {
        row.push_back({level_text(*value)});
      }
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace quintet
