#include <algorithm>
#include <utility>

#include "base/text.h"
#include "lab/statistics/analysis.h"

namespace quintet {
namespace {

constexpr std::size_t kMostRows = 40;  // of one table; more are counted

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string verdict(double p_holm) {
  if (std::isnan(p_holm)) return "";
  return p_holm < 0.05 ? "yes" : "no";
}

// Column widths follow the words, which in Unicode are not their bytes; names are rarely beyond it.
std::string table_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (std::size_t r = 0; r < rows.size() && r <= kMostRows; ++r) {
    std::string line = " ";
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      line += fmt::format(" {:<{}} ", rows[r][c], widths[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  if (rows.size() > kMostRows + 1) {
    text += fmt::format("  ... and {} more (--json has them all)\n", rows.size() - kMostRows - 1);
  }
  return text;
}

std::string effects_text(const Analysis& analysis) {
  const Table& table = analysis.table;
  const Effects& effects = analysis.effects;
  std::string text = "\nWhat explains the variance of the logarithm (type II sums of squares)\n";
  std::vector<std::vector<std::string>> rows = {{"", "share", "freedom", "beyond chance (Holm)"}};
  for (const Share& share : effects.shares) {
    rows.push_back({share.name, percent(share.share), fmt::format("{:.0f}", share.freedom),
                    verdict(share.p_holm)});
  }
  text += table_text(rows);
  text += fmt::format("\nMain effects: {} multiplied by, 95 % interval\n", table.response);
  rows = {{"", "against", "factor", "interval", "beyond chance (Holm)"}};
  const auto add = [&](std::string name, std::string against, const Estimate& estimate) {
    rows.push_back({std::move(name), std::move(against), fmt::format("x {:.3f}", estimate.factor),
                    estimate.has_interval()
                        ? fmt::format("{:.3f} to {:.3f}", estimate.low, estimate.high)
                        : "unknown",
                    verdict(estimate.p_holm)});
  };
  for (const MainEffect& effect : effects.main) {
    const Factor& factor = table.factors[effect.factor];
    add(factor.name + " " + factor.levels[effect.level], factor.levels[0], effect.estimate);
  }
  text += table_text(rows);
  if (!effects.interactions.empty()) {
    text +=
        "\nInteractions: the effect on the left is multiplied by, where the setting on the right "
        "holds\n";
    rows = {{"effect of", "at", "factor", "interval", "beyond chance (Holm)"}};
    std::vector<Interaction> sorted = effects.interactions;
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
      return std::abs(std::log(a.estimate.factor)) > std::abs(std::log(b.estimate.factor));
    });
    for (const Interaction& effect : sorted) {
      const Factor &factor = table.factors[effect.factor], &other = table.factors[effect.other];
      add(fmt::format("{} {} against {}", factor.name, factor.levels[effect.level],
                      factor.levels[0]),
          fmt::format("{} {} rather than {}", other.name, other.levels[effect.other_level],
                      other.levels[0]),
          effect.estimate);
    }
    text += table_text(rows);
  }
  return text;
}

std::string noise_text(const NoiseFloor& floor) {
  std::string text = "\nNoise floor: ";
  if (floor.repeats.freedom > 0) {
    text += fmt::format(
        "the same run repeated varies by {:.2f} % (one standard deviation, {:.0f} degrees of "
        "freedom);\n  two single runs must differ by x {:.3f} to be told apart",
        100 * (floor.spread - 1), floor.repeats.freedom, floor.resolution);
  } else if (floor.noise.freedom > 0) {
    text += fmt::format(
        "no run was repeated; what the model leaves over varies by {:.2f} % ({:.0f} degrees of "
        "freedom)",
        100 * (floor.spread - 1), floor.noise.freedom);
  } else {
    text += "unknown: no run was repeated, and there are no more runs than effects";
  }
  if (!std::isnan(floor.block_spread)) {
    text += fmt::format("\n  slowest block over fastest: x {:.3f} (taken out of all effects)",
                        floor.block_spread);
  }
  if (const std::string intervals = intervals_text(floor); !intervals.empty())
    text += "\n  " + intervals;
  return text + "\n";
}

std::string tradeoff_text(const Analysis& analysis) {
  const Table& table = analysis.table;
  std::string text = fmt::format("\n{} against memory: layouts on the front\n",
                                 is_time(table.time) ? "Time" : table.time);
  const auto layout = part_factors(table).second;
  std::vector<std::vector<std::string>> rows;
  for (const Tradeoff& one : analysis.tradeoffs) {
    for (const TradeoffPoint& point : one.points) {
      if (point.beaten_by) continue;
      const Cell& cell = analysis.cells[point.cell];
      rows.push_back({one.environment, table.describe(cell.level, layout),
                      table.time == table.response ? format_response(table.response, cell.response)
                                                   : format_response(table.time, cell.seconds),
                      human_bytes(cell.memory_bytes)});
    }
  }
  rows.insert(rows.begin(), std::vector<std::string>{"where", "layout", table.time, "memory"});
  text += table_text(rows);
  if (analysis.dominated.empty()) return text;
  text +=
      "\nLayouts nobody should use: another was as good in both and better in one, everywhere\n";
  rows = {{"layout", "beaten by", "environments"}};
  for (const DominatedLayout& one : analysis.dominated) {
    rows.push_back({one.layout, one.by, fmt::format("{}", one.environments)});
  }
  return text + table_text(rows);
}

std::string scaling_text(const Analysis& analysis) {
  std::string text = "\nScaling over nodes\n";
  std::vector<std::vector<std::string>> rows = {
      {"setting", "nodes", "speed-up", "efficiency", "lost mostly to"}};
  for (const Scaling& scaling : analysis.scalings) {
    for (const ScalingPoint& point : scaling.points) {
      std::string lost;
      if (&point != &scaling.points.front() && !point.lost_to.empty() &&
          point.lost_to.front().second > 0) {
        lost = fmt::format("{} ({})", point.lost_to.front().first,
                           percent(point.lost_to.front().second));
      }
      rows.push_back({scaling.setting, fmt::format("{:g}", point.nodes),
                      fmt::format("{:.2f}", point.speed_up), percent(point.efficiency), lost});
    }
  }
  return text + table_text(rows);
}

std::string prediction_text(const Analysis& analysis) {
  const Prediction& prediction = analysis.prediction;
  const PredictedCell& worst = prediction.cells[prediction.worst];
  std::string text = fmt::format(
      "\nPredictions against measurements, {} settings\n"
      "  error {:+.1f} % on average, {:.1f} % without sign, worst {:+.1f} % ({}); too much in {} "
      "of "
      "{}\n  rank correlation {:.3f} (Spearman), {:.3f} (Kendall)\n",
      prediction.cells.size(), 100 * prediction.mean_error, 100 * prediction.mean_absolute_error,
      100 * worst.error(), analysis.compared.describe(worst.level, analysis.compared.all_factors()),
      prediction.too_much, prediction.cells.size(), prediction.spearman, prediction.kendall);
  for (const Regret& regret : prediction.regrets) {
    text += fmt::format("  {}{}regret {:.1f} %: {} was predicted best of {}, {} was\n",
                        regret.environment, regret.environment.empty() ? "" : ": ",
                        100 * regret.regret, regret.chosen, regret.layouts, regret.best);
  }
  return text;
}

}  // namespace

std::string intervals_text(const NoiseFloor& floor) {
  if (floor.repeats.freedom <= 0) return "";
  const auto percents = [](const Noise& noise) {
    return fmt::format("{:.2f} %, {:.0f} degrees of freedom",
                       100 * std::expm1(std::sqrt(noise.variance)), noise.freedom);
  };
  if (floor.missed.freedom > 0) {
    return fmt::format(
        "settings stray from what pairs of factors tell by more than repeats vary ({}); the table "
        "is not complete, so some of it gets into effects, whose intervals are the wider",
        percents(floor.missed));
  }
  if (floor.noise.from == Noise::From::kRepeats) return "";
  return fmt::format("repeats are few: intervals rest on what the model leaves over ({})",
                     percents(floor.noise));
}

std::string format_response(const std::string& response, double value) {
  if (response.find("tokens_per_second") != std::string::npos) return human_count(value) + "/s";
  if (response.find("second") != std::string::npos || response == "time") {
    if (value >= 99.95) return fmt::format("{:.0f} s", value);
    if (value >= 0.9995) return fmt::format("{:.3g} s", value);
    if (value >= 0.9995e-3) return fmt::format("{:.3g} ms", value * 1e3);
    return fmt::format("{:.3g} us", value * 1e6);
  }
  if (response.find("bytes") != std::string::npos || response.find("memory") != std::string::npos) {
    return human_bytes(value);
  }
  return fmt::format("{:.4g}", value);
}

std::string format_estimate(const Estimate& estimate) {
  if (!estimate.has_interval()) return fmt::format("x {:.2f}", estimate.factor);
  // As many digits as tell the ends from each other.
  const int digits = estimate.high - estimate.low < 0.02 ? 3 : 2;
  return fmt::format("x {:.{}f} ({:.{}f} to {:.{}f})", estimate.factor, digits, estimate.low,
                     digits, estimate.high, digits);
}

std::string format_between(const Factor& factor, double value) {
  const bool plain = std::all_of(factor.levels.begin(), factor.levels.end(), [](const auto& level) {
    return level.find_first_not_of("0123456789.+-eE ") == std::string::npos;
  });
  if (plain) return fmt::format("{:.3g}", value);
  const bool bits = std::all_of(factor.levels.begin(), factor.levels.end(), [](const auto& level) {
    return level.find("bit") != std::string::npos;
  });
  const char* unit = bits ? "bit" : "";
  if (value >= 1e9) return fmt::format("{:.3g}g{}", value / 1e9, unit);
  if (value >= 1e6) return fmt::format("{:.3g}m{}", value / 1e6, unit);
  if (value >= 1e3) return fmt::format("{:.3g}k{}", value / 1e3, unit);
  return fmt::format("{:.3g}{}", value, unit);
}

std::string describe(const Table& table, const Crossover& crossover) {
  const Factor& factor = table.factors[crossover.factor];
  const Factor& along = table.factors[crossover.along];
  const std::string &first = factor.levels[crossover.first],
                    &second = factor.levels[crossover.second];
  std::string text = fmt::format("{} {} and {} along {}: ", factor.name, first, second, along.name);
  if (crossover.the_same()) return text + "none: no difference anywhere";
  if (crossover.crossings.empty()) {
    double least = crossover.ratios.front().factor, most = least;
    for (const Estimate& ratio : crossover.ratios) {
      least = std::min(least, ratio.factor);
      most = std::max(most, ratio.factor);
    }
    // Of the smaller one over the other.
    const bool first_wins = crossover.first_wins();
    if (first_wins) least = 1 / std::exchange(most, 1 / least);
    return text +
           fmt::format("none in the range; {} {} is smaller throughout, x {:.2f} to x {:.2f}{}",
                       factor.name, first_wins ? first : second, least, most,
                       crossover.clear_throughout() ? "" : ", not beyond noise everywhere");
  }
  std::vector<std::string> parts;
  for (const Crossing& crossing : crossover.crossings) {
    parts.push_back(fmt::format(
        "at {} ({}{} to {}{}), {} {} is smaller below{}", format_between(along, crossing.at),
        format_between(along, crossing.low), crossing.open_low ? " or less" : "",
        format_between(along, crossing.high), crossing.open_high ? " or more" : "", factor.name,
        crossing.first_wins_below ? first : second, crossing.certain() ? "" : "; uncertain"));
  }
  return text + join(parts, "; ");
}

std::string describe(const Analysis& analysis) {
  const Table& table = analysis.table;
  std::string text = fmt::format("{}: {} {} rows, {} settings, {} block{}\n\n", table.response,
                                 table.rows.size(), analysis.simulated ? "simulated" : "measured",
                                 analysis.cells.size(), table.blocks, table.blocks == 1 ? "" : "s");
  for (const std::string& sentence : answer_of(analysis)) text += "  " + sentence + "\n";
  if (!analysis.constant_factors.empty()) {
    text += fmt::format("\nOne level only, left out: {}\n", join(analysis.constant_factors, ", "));
  }
  text += effects_text(analysis);
  text += noise_text(analysis.effects.noise);
  if (!analysis.crossovers.empty()) {
    text += "\nCrossovers\n";
    for (const Crossover& one : analysis.crossovers) text += "  " + describe(table, one) + "\n";
  }
  if (!analysis.scalings.empty()) text += scaling_text(analysis);
  if (!analysis.tradeoffs.empty()) text += tradeoff_text(analysis);
  if (!analysis.prediction.cells.empty()) text += prediction_text(analysis);
  if (!analysis.effects.not_estimated.empty()) {
    text += "\nNot estimated\n";
    for (const std::string& one : analysis.effects.not_estimated) text += "  " + one + "\n";
  }
  return text;
}

}  // namespace quintet
