#include "lab/statistics/table.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>

#include "base/text.h"

namespace quintet {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

// A number and what follows it, in small letters.
std::optional<std::pair<double, std::string>> number_and_unit(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return std::nullopt;
  std::string unit = lower(text.substr(static_cast<std::size_t>(end - text.data())));
  unit.erase(0, unit.find_first_not_of(' '));
  return std::pair(value, std::move(unit));
}

// How uneven the steps between sorted values are: standard deviation over mean.
double unevenness(const std::vector<double>& values) {
  double mean = 0, square = 0;
  const auto steps = static_cast<double>(values.size() - 1);
  for (std::size_t i = 1; i < values.size(); ++i) mean += (values[i] - values[i - 1]) / steps;
  for (std::size_t i = 1; i < values.size(); ++i) {
    const double off = values[i] - values[i - 1] - mean;
    square += off * off / steps;
  }
  return std::sqrt(square) / mean;
}

// With two levels nothing speaks of their spacing: a ratio of three or more is taken for one.
bool spaced_by_ratio(const std::vector<double>& values) {
  if (values.size() < 2 || values.front() <= 0) return false;
  if (values.size() == 2) return values[1] / values[0] >= 3;
  std::vector<double> logs;
  for (const double v : values) logs.push_back(std::log(v));
  return unevenness(logs) < unevenness(values);
}

}  // namespace

std::optional<std::size_t> Table::find(std::string_view name) const {
  for (std::size_t f = 0; f < factors.size(); ++f) {
    if (factors[f].name == name) return f;
  }
  return std::nullopt;
}

std::vector<std::size_t> Table::all_factors() const {
  std::vector<std::size_t> all(factors.size());
  for (std::size_t f = 0; f < all.size(); ++f) all[f] = f;
  return all;
}

std::string Table::describe(const std::vector<std::size_t>& level,
                            const std::vector<std::size_t>& of_factors) const {
  std::vector<std::string> parts;
  for (const std::size_t f : of_factors) {
    parts.push_back(factors[f].name + " " + factors[f].levels[level[f]]);
  }
  return join(parts, ", ");
}

bool is_rate(std::string_view response) {
  const std::string name = lower(response);
  return name.find("per_sec") != std::string::npos || name.ends_with("/s") ||
         name.ends_with("/sec") || name.find("throughput") != std::string::npos;
}

bool is_time(std::string_view response) {
  return response.find("second") != std::string_view::npos && !is_rate(response);
}

std::optional<double> plain_number(std::string_view text) {
  const auto parsed = number_and_unit(text);
  return parsed && parsed->second.empty() ? std::optional(parsed->first) : std::nullopt;
}

std::optional<double> numeric_value(std::string_view text) {
  const auto parsed = number_and_unit(text);
  if (!parsed) return std::nullopt;
  auto [value, unit] = *parsed;
  static const std::map<char, double> kScales = {{'k', 1e3}, {'m', 1e6}, {'g', 1e9}, {'t', 1e12}};
  const auto scale = unit.empty() ? kScales.end() : kScales.find(unit[0]);
  if (scale != kScales.end()) {
    value *= scale->second;
    unit.erase(0, 1);
  }
  // (A "b" by itself is more often a billion than a bit.)
  const bool known = unit.empty() || unit == "bit" || unit == "bit/s" || unit == "bits" ||
                     (unit == "b" && scale != kScales.end());
  return known && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

Result<Factor> make_factor(const std::string& name, std::vector<std::string> levels, bool numeric) {
  Factor factor;
  factor.name = name;
  factor.numeric = numeric;
  std::vector<std::pair<double, std::string>> sorted;
  for (const std::string& level : levels) {
    const auto value = numeric_value(level);
    if (!value) {
      if (numeric) {
        return usage_error("factor {} is to be numeric, but its level \"{}\" is not a number", name,
                           level);
      }
      sorted.clear();
      break;
    }
    sorted.emplace_back(*value, level);
  }
  if (sorted.empty()) {
    for (const std::string& level : levels) {
      if (std::find(factor.levels.begin(), factor.levels.end(), level) == factor.levels.end()) {
        factor.levels.push_back(level);
      }
    }
    return factor;
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [value, level] : sorted) {
    const auto same_level = [&](std::size_t i) { return numeric || factor.levels[i] == level; };
    bool known = false;
    for (std::size_t i = factor.values.size(); i-- > 0 && factor.values[i] == value;)
      known = known || same_level(i);
    if (known) continue;
    factor.values.push_back(value);
    factor.levels.push_back(level);
  }
  if (numeric) {
    factor.logarithmic = spaced_by_ratio(factor.values);
  } else {
    factor.values.clear();
  }
  return factor;
}

std::optional<std::size_t> find_level(const Factor& factor, const std::string& level) {
  const auto found = std::find(factor.levels.begin(), factor.levels.end(), level);
  if (found != factor.levels.end()) return static_cast<std::size_t>(found - factor.levels.begin());
  const auto value = numeric_value(level);
  if (!value || !factor.numeric) return std::nullopt;
  for (std::size_t i = 0; i < factor.levels.size(); ++i) {
    if (numeric_value(factor.levels[i]) == value) return i;
  }
  return std::nullopt;
}

std::vector<bool> levels_meant(const std::vector<std::string>& levels, const std::string& written) {
  std::vector<bool> meant;
  for (const std::string& level : levels) meant.push_back(level == written);
  const auto value = numeric_value(written);
  if (!value || std::find(meant.begin(), meant.end(), true) != meant.end()) return meant;
  for (std::size_t i = 0; i < levels.size(); ++i) meant[i] = numeric_value(levels[i]) == value;
  return meant;
}

std::vector<Cell> cells_of(const Table& table) {
  std::vector<Cell> cells;
  std::map<std::vector<std::size_t>, std::size_t> places;
  struct Sums {
    double logs = 0, seconds = 0, memory = 0, tokens = 0;
    std::size_t memories = 0, rates = 0, breakdowns = 0;
  };
  std::vector<Sums> sums;
  for (const Observation& row : table.rows) {
    const auto [place, fresh] = places.try_emplace(row.level, cells.size());
    if (fresh) {
      cells.push_back({.level = row.level, .breakdown = {}});
      sums.emplace_back();
    }
    Cell& cell = cells[place->second];
    Sums& sum = sums[place->second];
    ++cell.count;
    sum.logs += std::log(row.response);
    sum.seconds += std::log(row.seconds);  // unknown if one is
    if (!std::isnan(row.memory_bytes)) sum.memory += row.memory_bytes, ++sum.memories;
    if (!std::isnan(row.tokens_per_second)) sum.tokens += row.tokens_per_second, ++sum.rates;
    if (row.breakdown.empty()) continue;
    ++sum.breakdowns;
    for (const auto& [name, seconds] : row.breakdown) {
      const auto line = std::find_if(cell.breakdown.begin(), cell.breakdown.end(),
                                     [&](const auto& part) { return part.first == name; });
      if (line == cell.breakdown.end()) {
        cell.breakdown.emplace_back(name, seconds);
      } else {
        line->second += seconds;
      }
    }
  }
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Sums& sum = sums[i];
    cells[i].response = std::exp(sum.logs / static_cast<double>(cells[i].count));
    cells[i].seconds = std::exp(sum.seconds / static_cast<double>(cells[i].count));
    if (sum.memories > 0) cells[i].memory_bytes = sum.memory / static_cast<double>(sum.memories);
    if (sum.rates > 0) cells[i].tokens_per_second = sum.tokens / static_cast<double>(sum.rates);
    for (auto& part : cells[i].breakdown) part.second /= static_cast<double>(sum.breakdowns);
  }
  std::sort(cells.begin(), cells.end(),
            [](const Cell& a, const Cell& b) { return a.level < b.level; });
  return cells;
}

bool is_environment(std::string_view factor) {
  static constexpr std::string_view kNames[] = {
      "nodes",      "ranks", "ranks_per_node", "bandwidth", "machine", "model",
      "model.name", "host",  "gpus",           "devices",   "cluster", "train.device"};
  return std::find(std::begin(kNames), std::end(kNames), factor) != std::end(kNames);
}

std::pair<std::vector<std::size_t>, std::vector<std::size_t>> part_factors(const Table& table) {
  std::pair<std::vector<std::size_t>, std::vector<std::size_t>> parts;
  for (std::size_t f = 0; f < table.factors.size(); ++f) {
    (is_environment(table.factors[f].name) ? parts.first : parts.second).push_back(f);
  }
  return parts;
}

std::vector<std::string> drop_constant_factors(Table& table) {
  std::vector<std::string> dropped;
  for (std::size_t f = table.factors.size(); f-- > 0;) {
    // Levels that no row has (left) are not levels of this table.
    Factor& factor = table.factors[f];
    std::vector<std::size_t> place(factor.levels.size(), SIZE_MAX);
    for (const Observation& row : table.rows) place[row.level[f]] = 0;
    Factor kept = factor;
    kept.levels.clear();
    kept.values.clear();
    for (std::size_t level = 0; level < place.size(); ++level) {
      if (place[level] == SIZE_MAX) continue;
      place[level] = kept.levels.size();
      kept.levels.push_back(factor.levels[level]);
      if (!factor.values.empty()) kept.values.push_back(factor.values[level]);
    }
    if (kept.levels.size() < 2) {
      dropped.insert(dropped.begin(), factor.name);
      table.factors.erase(table.factors.begin() + static_cast<std::ptrdiff_t>(f));
      for (Observation& row : table.rows) {
        row.level.erase(row.level.begin() + static_cast<std::ptrdiff_t>(f));
      }
      continue;
    }
    factor = std::move(kept);
    for (Observation& row : table.rows) row.level[f] = place[row.level[f]];
  }
  return dropped;
}

}  // namespace quintet
