// What is searched: configuration keys with their ranges, and when each of them counts. Samplers
// see the unit cube: every parameter is a map from [0, 1) to its values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/condition.h"

namespace quintet {

// A part of the unit interval whose points all stand for the same value.
struct UnitCell {
  double low = 0, high = 0;  // equal where values are a continuum
  double middle() const { return (low + high) / 2; }
};

struct SearchParameter {
  enum class Kind { kReal, kInteger, kChoice };
  std::string key;
  Kind kind = Kind::kReal;
  bool logarithmic = false;
  double low = 0, high = 0;               // kReal, kInteger: both included
  std::vector<TomlScalar> choices = {};   // kChoice
  std::optional<RowCondition> when = {};  // else always
  std::string origin = {};                // "file:line"

  // Whether values have neighbours: numbers, and choices of rising numbers.
  bool ordered() const;
  // How many values there are; 0: a continuum.
  std::int64_t levels() const;
  // `unit` in [0, 1). Reals have six significant digits: what is printed is what ran.
  TomlScalar value_at(double unit) const;
  UnitCell cell_of(const TomlScalar& value) const;
};

class SearchSpace {
 public:
  SearchSpace() = default;
  // `fixed`: settings that conditions may name beside parameters above them.
  SearchSpace(std::vector<SearchParameter> parameters, Settings fixed)
      : parameters_(std::move(parameters)), fixed_(std::move(fixed)) {}

  const std::vector<SearchParameter>& parameters() const { return parameters_; }
  std::size_t size() const { return parameters_.size(); }
  // The values of those parameters that count there: one whose condition does not hold, or names a
  // parameter that does not count, has none.
  Settings settings_at(const std::vector<double>& units) const;
  // The number of different settings, at most; 0: a continuum, or more than 2^53.
  double combinations() const;

 private:
  std::vector<SearchParameter> parameters_;
  Settings fixed_;
};

// The number in it; NaN of a text or a truth value.
double search_number(const TomlScalar& scalar);
// As a person reads it: 0.001, "adamw".
std::string setting_text(const TomlScalar& scalar);
// "peak=0.003 beta2=0.98"
std::string settings_text(const Settings& settings);

}  // namespace quintet
