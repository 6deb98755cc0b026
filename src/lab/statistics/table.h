// What the statistics work on: observations of a response under settings of factors, in blocks.
// Made from a CSV file (csv_table.h) or from the runs of a study.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace quintet {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct Factor {
  std::string name;
  std::vector<std::string> levels;  // the first is what others are compared with
  bool numeric = false;             // levels have an order and a distance: crossovers can be found
  std::vector<double> values;       // of a numeric factor's levels, ascending
  bool logarithmic = false;         // steps of a numeric factor are ratios rather than differences
};

// One run: what was set, and what was seen. What was not seen is kUnknown.
struct Observation {
  std::vector<std::size_t> level;  // for each factor
  // Tells apart what was set besides: only rows of the same levels and setting are repetitions.
  std::size_t setting = 0;
  std::size_t block = 0;
  double response = kUnknown;  // > 0
  double seconds = kUnknown;   // what a step takes, or what stands for it (Table::time)
  double memory_bytes = kUnknown;
  double tokens_per_second = kUnknown;
  // Seconds of a step by what they were spent on; what went on beside is not in it.
  std::vector<std::pair<std::string, double>> breakdown;
};

struct Table {
  std::string response;  // its name, e.g. "step_seconds"
  // Of two settings the one with more of it is the better; else the one with less.
  bool more_is_better = false;
  // What rows' seconds are called: "step_seconds", or the response they were taken from.
  std::string time{};
  std::vector<Factor> factors;
  std::size_t blocks = 1;
  std::vector<Observation> rows;

  // The factor of that name, or none.
  std::optional<std::size_t> find(std::string_view name) const;
  // "zero 3, tp 2": the levels of some factors.
  std::string describe(const std::vector<std::size_t>& level,
                       const std::vector<std::size_t>& of_factors) const;
  std::vector<std::size_t> all_factors() const;
};

// Whether a response of this name is a rate ("tokens_per_second", "MB/s", "throughput").
bool is_rate(std::string_view response);
// Whether it is a time ("step_seconds").
bool is_time(std::string_view response);

// The value of a number without a unit.
std::optional<double> plain_number(std::string_view text);
// The value of a numeric level, with units: "512", "1e9", "200mbit", "10 Gbit/s", "1.5k".
std::optional<double> numeric_value(std::string_view text);

// A factor from the levels seen, in the order in which they were given. Numeric ones are sorted by
// value, and the same value is the same level; others are names (version 2.1 is not 2.10), sorted
// by value where all have one, so that the smallest is the reference. An error names a level that
// is no number.
Result<Factor> make_factor(const std::string& name, std::vector<std::string> levels, bool numeric);
// The position of a level, which may be written differently ("1.0" for "1") where it is numeric.
std::optional<std::size_t> find_level(const Factor& factor, const std::string& level);
// Which of these levels are meant by one that somebody wrote: those written alike or, where there
// are none, those of the same value.
std::vector<bool> levels_meant(const std::vector<std::string>& levels, const std::string& written);

// Repetitions of one setting, taken together.
struct Cell {
  std::vector<std::size_t> level;
  std::size_t count = 0;
  double response = kUnknown, seconds = kUnknown;  // geometric means
  double memory_bytes = kUnknown, tokens_per_second = kUnknown;
  std::vector<std::pair<std::string, double>> breakdown;  // means
};
// In the order of the factors' levels.
std::vector<Cell> cells_of(const Table& table);

// Factors that describe where a run takes place (nodes, bandwidth, model, ...), not how it is laid
// out: layouts are compared with each other within one such environment.
bool is_environment(std::string_view factor);
// The table's factors, parted: environment first.
std::pair<std::vector<std::size_t>, std::vector<std::size_t>> part_factors(const Table& table);

// Factors with a single level say nothing: drops them, and levels that no row has; returns the
// names of dropped factors.
std::vector<std::string> drop_constant_factors(Table& table);

}  // namespace quintet
