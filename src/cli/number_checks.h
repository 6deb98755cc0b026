// Checks of options that are numbers. CLI11's own take a whole number that is too large for the
// largest there is, without a word, and nan for a number in any range; and they spell the bounds of
// NonNegativeNumber out in 300 digits.
#pragma once

#include <charconv>
#include <limits>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace quintet {

template <class T>
CLI::Validator whole_number(T least, T most = std::numeric_limits<T>::max()) {
  return CLI::Validator(
      [least, most](const std::string& text) -> std::string {
        T value = 0;
        const char* const end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc() && stop == end && value >= least && value <= most) return "";
        return fmt::format("{}: expected a whole number from {} to {}", text, least, most);
      },
      "", "whole number");
}

inline CLI::Validator number_between(double least, double most) {
  return CLI::Validator(
      [least, most](const std::string& text) -> std::string {
        double value = 0;
        const char* const end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc() && stop == end && value >= least && value <= most) return "";
        return fmt::format("{}: expected a number between {} and {}", text, least, most);
      },
      "", "number");
}

}  // namespace quintet
