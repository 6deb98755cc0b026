// The answer in five sentences: who is fastest where, what matters, what acts on each other, where
// the answer turns, and how sure all of this is.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "lab/statistics/analysis.h"

namespace quintet {
namespace {

struct Words {
  explicit Words(const Table& table)
      : time(is_time(table.response)),
        rate(is_rate(table.response)),
        more_is_better(table.more_is_better) {}
  bool time, rate, more_is_better;
  const char* best() const {
    return time || rate ? "fastest" : more_is_better ? "largest" : "smallest";
  }
  // What is said of the smaller response.
  const char* less() const { return time ? "faster" : rate ? "slower" : "smaller"; }
};

// Of two cells, whether the first is the better.
bool is_better(const Table& table, const Cell& a, const Cell& b) {
  return table.more_is_better ? a.response > b.response : a.response < b.response;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string mean_text(const Analysis& analysis, std::size_t cell) {
  const Estimate& mean = analysis.cell_means[cell];
  const std::string& response = analysis.table.response;
  if (!mean.has_interval() || mean.low == mean.high) return format_response(response, mean.factor);
  return fmt::format("{} ({} to {})", format_response(response, mean.factor),
                     format_response(response, mean.low), format_response(response, mean.high));
}

std::string best_sentence(const Analysis& analysis) {
  const Table& table = analysis.table;
  const Words words(table);
  const auto [environment, layout] = part_factors(table);
  const auto& cells = analysis.cells;
  if (layout.empty() || environment.empty()) {
    const auto [best, worst] =
        std::minmax_element(cells.begin(), cells.end(),
                            [&](const Cell& a, const Cell& b) { return is_better(table, a, b); });
    const auto all = table.all_factors();
    return fmt::format("Of {} settings the {} is {} at {}; {} {} x {:.2f} of that.", cells.size(),
                       words.best(), table.describe(best->level, all),
                       mean_text(analysis, static_cast<std::size_t>(best - cells.begin())),
                       table.describe(worst->level, all), words.more_is_better ? "has" : "takes",
                       worst->response / best->response);
  }
  std::map<std::string, std::size_t> best;  // by environment: its cell
  std::map<std::string, std::size_t> layouts;
  for (std::size_t c = 0; c < cells.size(); ++c) {
    ++layouts[table.describe(cells[c].level, layout)];
    const auto [place, fresh] = best.try_emplace(table.describe(cells[c].level, environment), c);
    if (!fresh && is_better(table, cells[c], cells[place->second])) place->second = c;
  }
  struct Winner {
    std::string layout;
    std::size_t wins = 0, example = 0;
  };
  std::vector<Winner> winners;
  for (const auto& [where, cell] : best) {
    const std::string name = table.describe(cells[cell].level, layout);
    auto found = std::find_if(winners.begin(), winners.end(),
                              [&](const Winner& winner) { return winner.layout == name; });
    if (found == winners.end()) found = winners.insert(winners.end(), {name, 0, cell});
    ++found->wins;
  }
  std::stable_sort(winners.begin(), winners.end(),
                   [](const Winner& a, const Winner& b) { return a.wins > b.wins; });
  std::string text = fmt::format("Of {} layouts, ", layouts.size());
  for (std::size_t i = 0; i < winners.size() && i < 2; ++i) {
    const Winner& winner = winners[i];
    text += fmt::format("{}{} is the {} in {} of {} environments, e.g. {} at {}",
                        i == 0 ? "" : "; ", winner.layout, words.best(), winner.wins, best.size(),
                        mean_text(analysis, winner.example),
                        table.describe(cells[winner.example].level, environment));
  }
  if (winners.size() > 2) text += fmt::format("; {} others win elsewhere", winners.size() - 2);
  return text + ".";
}

const MainEffect* largest_effect(const Effects& effects, std::size_t factor) {
  const MainEffect* largest = nullptr;
  for (const MainEffect& effect : effects.main) {
    if (effect.factor != factor) continue;
    if (!largest ||
        std::abs(std::log(effect.estimate.factor)) > std::abs(std::log(largest->estimate.factor))) {
      largest = &effect;
    }
  }
  return largest;
}

std::string effects_sentence(const Analysis& analysis) {
  std::vector<std::string> parts;
  for (const Share& share : analysis.effects.shares) {
    if (share.factors.size() != 1 || parts.size() == 3) continue;
    std::string text = fmt::format("{} explains {:.0f} %{}", share.name, 100 * share.share,
                                   parts.empty() ? " of the variance" : "");
    if (const MainEffect* effect = largest_effect(analysis.effects, share.factors[0])) {
      const Factor& factor = analysis.table.factors[effect->factor];
      text += fmt::format(", {} from {} to {}", format_estimate(effect->estimate), factor.levels[0],
                          factor.levels[effect->level]);
    }
    parts.push_back(std::move(text));
  }
  const auto& shares = analysis.effects.shares;
  const auto shared = std::find_if(shares.begin(), shares.end(),
                                   [](const Share& share) { return share.name == kShared; });
  if (shared != shares.end() && shared->share > 0.1 && shared->freedom > 0) {
    parts.push_back(
        fmt::format("{:.0f} % belongs to factors together, some of which changed only "
                    "together and cannot be told apart",
                    100 * shared->share));
  }
  return parts.empty() ? "" : "What matters: " + join(parts, "; ") + ".";
}

std::string interaction_sentence(const Analysis& analysis) {
  const Table& table = analysis.table;
  // That a slow network hurts more nodes more is no news: methods come before environments.
  const Interaction* strongest = nullptr;
  std::size_t surviving = 0;
  const auto weight = [&](const Interaction& effect) {
    const bool method = !is_environment(table.factors[effect.factor].name) ||
                        !is_environment(table.factors[effect.other].name);
    return std::abs(std::log(effect.estimate.factor)) + (method ? 1e3 : 0);
  };
  for (const Interaction& effect : analysis.effects.interactions) {
    if (!effect.estimate.survives()) continue;
    ++surviving;
    if (!strongest || weight(effect) > weight(*strongest)) strongest = &effect;
  }
  if (!strongest) return "";
  const Factor &factor = table.factors[strongest->factor], &other = table.factors[strongest->other];
  return fmt::format(
      "Together: {} and {} act on each other most: the effect of {} {} against {} is multiplied by "
      "{:.2f} "
      "({:.2f} "
      "to {:.2f}) at {} {} rather than {}; {} of {} interactions are beyond chance.",
      factor.name, other.name, factor.name, factor.levels[strongest->level], factor.levels[0],
      strongest->estimate.factor, strongest->estimate.low, strongest->estimate.high, other.name,
      other.levels[strongest->other_level], other.levels[0], surviving,
      analysis.effects.interactions.size());
}

std::string crossover_sentence(const Analysis& analysis) {
  const Table& table = analysis.table;
  const Words words(table);
  std::vector<std::string> parts;
  std::size_t certain = 0;
  for (const Crossover& crossover : analysis.crossovers) {
    const Factor& factor = table.factors[crossover.factor];
    if (is_environment(factor.name) && !is_environment(table.factors[crossover.along].name)) {
      continue;
    }
    for (const Crossing& crossing : crossover.crossings) {
      if (!crossing.certain()) continue;
      ++certain;
      if (parts.size() == 2) continue;
      const Factor& along = table.factors[crossover.along];
      const std::string& below =
          factor.levels[crossing.first_wins_below ? crossover.first : crossover.second];
      const std::string& above =
          factor.levels[crossing.first_wins_below ? crossover.second : crossover.first];
      parts.push_back(fmt::format(
          "{} {} is {} below {} {} ({} to {}) and {} {} above", factor.name, below, words.less(),
          along.name, format_between(along, crossing.at), format_between(along, crossing.low),
          format_between(along, crossing.high), factor.name, above));
    }
  }
  if (parts.empty()) return "";
  return fmt::format("The answer turns: {}{}.", join(parts, "; "),
                     certain > parts.size() ? fmt::format("; {} more crossovers are beyond noise",
                                                          certain - parts.size())
                                            : "");
}

std::string scaling_sentence(const Analysis& analysis) {
  // Settings that ran on the most nodes, and of these as many as began at the same count; and the
  // line of the breakdown that takes most, over all of them.
  double from = 0, to = 0;
  for (const Scaling& scaling : analysis.scalings) to = std::max(to, scaling.points.back().nodes);
  std::map<double, std::size_t> begun;
  for (const Scaling& scaling : analysis.scalings) {
    const double first = scaling.points.front().nodes;
    if (scaling.points.back().nodes == to && ++begun[first] > begun[from]) from = first;
  }
  std::vector<double> efficiencies;
  std::map<std::string, double> lost;
  for (const Scaling& scaling : analysis.scalings) {
    const ScalingPoint& last = scaling.points.back();
    if (scaling.points.front().nodes != from || last.nodes != to) continue;
    efficiencies.push_back(last.efficiency);
    for (const auto& [name, share] : last.lost_to) lost[name] += share;
  }
  if (efficiencies.empty()) return "";
  const auto [least, most_left] = std::minmax_element(efficiencies.begin(), efficiencies.end());
  std::string text = fmt::format(
      "From {:g} to {:g} nodes {:.0f} % of the speed of each node is left "
      "(median of {} settings; {:.0f} % to {:.0f} %)",
      from, to, 100 * median(efficiencies), efficiencies.size(), 100 * *least, 100 * *most_left);
  const auto most = std::max_element(
      lost.begin(), lost.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != lost.end() && most->second > 0) {
    text += fmt::format(", lost mostly to {}", most->first);
  }
  return text + ".";
}

std::string dominated_sentence(const Analysis& analysis) {
  if (analysis.dominated.empty()) return "";
  const DominatedLayout& first = analysis.dominated.front();
  return fmt::format(
      "{} layout{} beaten, by their means, in both {} and memory wherever {} ran, {} by {} for "
      "one.",
      analysis.dominated.size(), analysis.dominated.size() == 1 ? " is" : "s are",
      is_time(analysis.table.time) ? "time" : analysis.table.time,
      analysis.dominated.size() == 1 ? "it" : "they", first.layout, first.by);
}

std::string certainty_sentence(const Analysis& analysis) {
  const Effects& effects = analysis.effects;
  std::string text;
  if (effects.noise.repeats.freedom > 0) {
    text =
        fmt::format("The same run repeated varies by {:.1f} %", 100 * (effects.noise.spread - 1));
  } else if (effects.noise.noise.freedom > 0) {
    text = fmt::format("No run was repeated; the model leaves {:.1f} % unexplained",
                       100 * (effects.noise.spread - 1));
  } else {
    text = "No run was repeated, so there are no intervals";
  }
  std::size_t surviving = 0;
  for (const MainEffect& effect : effects.main) surviving += effect.estimate.survives();
  text += fmt::format("; {} of {} main effects are beyond chance (Holm)", surviving,
                      effects.main.size());
  const Prediction& prediction = analysis.prediction;
  if (!prediction.cells.empty()) {
    text += fmt::format("; predictions were off by {:.1f} % on average (worst {:+.0f} %)",
                        100 * prediction.mean_absolute_error,
                        100 * prediction.cells[prediction.worst].error());
    if (!std::isnan(prediction.mean_regret)) {
      text +=
          fmt::format(", and choosing by them would cost {:.1f} %", 100 * prediction.mean_regret);
    }
  }
  return text + ".";
}

}  // namespace

std::vector<std::string> answer_of(const Analysis& analysis) {
  std::vector<std::string> sentences = {best_sentence(analysis), effects_sentence(analysis)};
  std::vector<std::string> findings = {interaction_sentence(analysis), crossover_sentence(analysis),
                                       scaling_sentence(analysis), dominated_sentence(analysis)};
  if (findings[0].empty() && !analysis.effects.interactions.empty()) {
    findings.push_back("No two factors act on each other beyond chance.");
  }
  if (findings[1].empty() && !analysis.crossovers.empty()) {
    findings.push_back("No crossover is beyond noise in the range that ran.");
  }
  for (const std::string& finding : findings) {
    if (!finding.empty() && sentences.size() < 4) sentences.push_back(finding);
  }
  sentences.push_back(certainty_sentence(analysis));
  std::erase(sentences, "");
  return sentences;
}

}  // namespace quintet
