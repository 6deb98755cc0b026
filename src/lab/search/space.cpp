#include "lab/search/space.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/text.h"
#include "lab/factor_name.h"

namespace quintet {
namespace {

// What an integer's cell ends at: halves between neighbours, so that logarithmic integers get the
// share of the interval that is theirs.
double unit_of_number(const SearchParameter& p, double number) {
  const bool integer = p.kind == SearchParameter::Kind::kInteger;
  const double low = integer ? p.low - 0.5 : p.low, high = integer ? p.high + 0.5 : p.high;
  const double at =
      p.logarithmic ? std::log(number / low) / std::log(high / low) : (number - low) / (high - low);
  return std::clamp(at, 0.0, 1.0);
}

}  // namespace

double search_number(const TomlScalar& scalar) {
  if (const auto* integer = std::get_if<std::int64_t>(&scalar))
    return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&scalar)) return *real;
  return std::nan("");
}

bool SearchParameter::ordered() const {
  if (kind != Kind::kChoice) return true;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (std::isnan(search_number(choices[i]))) return false;
    if (i > 0 && search_number(choices[i]) <= search_number(choices[i - 1])) return false;
  }
  return true;
}

std::int64_t SearchParameter::levels() const {
  if (kind == Kind::kChoice) return std::ssize(choices);
  return kind == Kind::kInteger ? static_cast<std::int64_t>(high - low) + 1 : 0;
}

TomlScalar SearchParameter::value_at(double unit) const {
  if (kind == Kind::kChoice) {
    const auto count = static_cast<double>(choices.size());
    return choices[static_cast<std::size_t>(std::clamp(unit * count, 0.0, count - 1))];
  }
  const bool integer = kind == Kind::kInteger;
  const double from = integer ? low - 0.5 : low, to = integer ? high + 0.5 : high;
  const double number = logarithmic ? from * std::pow(to / from, unit) : from + (to - from) * unit;
  if (integer) return static_cast<std::int64_t>(std::clamp(std::round(number), low, high));
  const double rounded = std::strtod(fmt::format("{:.6g}", number).c_str(), nullptr);
  return std::clamp(rounded, low, high);
}

UnitCell SearchParameter::cell_of(const TomlScalar& value) const {
  if (kind == Kind::kChoice) {
    const auto at =
        static_cast<double>(std::find(choices.begin(), choices.end(), value) - choices.begin());
    const auto count = static_cast<double>(choices.size());
    return {at / count, (at + 1) / count};
  }
  const double number = search_number(value);
  if (kind == Kind::kReal) {
    const double unit = unit_of_number(*this, number);
    return {unit, unit};
  }
  return {unit_of_number(*this, number - 0.5), unit_of_number(*this, number + 0.5)};
}

Settings SearchSpace::settings_at(const std::vector<double>& units) const {
  Settings counted, known = fixed_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const SearchParameter& parameter = parameters_[i];
    if (parameter.when) {
      const auto names = parameter.when->names();
      const bool all_count = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
        return known.count(name) != 0;
      });
      if (!all_count || !parameter.when->holds(known).value()) continue;
    }
    counted[parameter.key] = known[parameter.key] = parameter.value_at(units[i]);
  }
  return counted;
}

double SearchSpace::combinations() const {
  double count = 1;
  for (const SearchParameter& parameter : parameters_) {
    count *= static_cast<double>(parameter.levels());
  }
  return count <= 0x1p53 ? count : 0;
}

std::string setting_text(const TomlScalar& scalar) {
  if (const auto* text = std::get_if<std::string>(&scalar)) return *text;
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, scalar);
}

std::string settings_text(const Settings& settings) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : settings)
    parts.push_back(short_factor_name(key) + "=" + setting_text(value));
  return join(parts, " ");
}

}  // namespace quintet
