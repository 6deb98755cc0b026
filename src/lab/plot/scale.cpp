#include "lab/plot/scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace quintet {
namespace {

// A step of 1, 2 or 5 times a power of ten that divides a range into about so many.
double round_step(double range, int about) {
  const double rough = range / std::max(about, 1);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (step * power >= rough * 0.9) return step * power;
  }
  return 10 * power;
}

std::string trimmed_number(double value) {
  // Three digits, never in powers.
  const double size = std::abs(value);
  std::string text = fmt::format("{:.{}f}", value,
                                 size >= 100  ? 0
                                 : size >= 10 ? 1
                                 : size >= 1  ? 2
                                              : 3);
  if (size > 0 && size < 0.01) text = fmt::format("{:.2g}", value);
  if (text.find('.') != std::string::npos && text.find('e') == std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

}  // namespace

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size >= 1e12) return trimmed_number(value / 1e12) + "T";
  if (size >= 1e9) return trimmed_number(value / 1e9) + "G";
  if (size >= 1e6) return trimmed_number(value / 1e6) + "M";
  if (size >= 1e4) return trimmed_number(value / 1e3) + "k";
  return trimmed_number(value);
}

std::string short_seconds(double value) {
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size >= 0.9999) return trimmed_number(value) + " s";
  if (size >= 0.9999e-3) return trimmed_number(value * 1e3) + " ms";
  return trimmed_number(value * 1e6) + " us";
}

std::string short_bytes(double value) {
  const double size = std::abs(value);
  if (size >= 1024.0 * 1024 * 1024) return trimmed_number(value / (1024.0 * 1024 * 1024)) + " GiB";
  if (size >= 1024.0 * 1024) return trimmed_number(value / (1024.0 * 1024)) + " MiB";
  if (size >= 1024.0) return trimmed_number(value / 1024.0) + " KiB";
  return trimmed_number(value);
}

std::vector<Tick> byte_ticks(double low, double high) {
  std::vector<Tick> ticks;
  if (!(low > 0) || !(high >= low)) return ticks;
  const double octaves = std::log2(high / low);
  const double every = std::max(1.0, std::ceil(octaves / 6));
  for (double power = std::floor(std::log2(low)) - 1; power <= std::log2(high); power += every) {
    ticks.push_back({std::exp2(power), short_bytes(std::exp2(power))});
    if (octaves < 3)
      ticks.push_back({1.5 * ticks.back().value, short_bytes(1.5 * ticks.back().value)});
  }
  return ticks;
}

Scale Scale::linear(double low, double high, bool from_zero) {
  if (from_zero) low = std::min(low, 0.0);
  if (!(high > low)) {
    const double room = std::max(std::abs(high), 1e-9) * 0.5;
    low -= from_zero && low == 0 ? 0 : room;
    high += room;
  }
  const double step = round_step(high - low, 5);
  Scale scale;
  scale.low_ = std::floor(low / step + 1e-9) * step;
  scale.high_ = std::min(std::ceil(high / step - 1e-9) * step, std::numeric_limits<double>::max());
  return scale;
}

Scale Scale::exactly(double low, double high) {
  Scale scale;
  scale.low_ = low;
  scale.high_ = high;
  return scale;
}

Scale Scale::logarithmic(double low, double high) {
  Scale scale;
  scale.logarithmic_ = true;
  // Differences of logarithms: ratios overflow where intervals are very wide.
  const double room = std::max(std::exp(0.05 * (std::log(high) - std::log(low))), 1.02);
  scale.low_ = std::max(low / room, std::numeric_limits<double>::min());
  scale.high_ = std::min(high * room, std::numeric_limits<double>::max());
  return scale;
}

double Scale::operator()(double value) const {
  const double share = logarithmic_
                           ? (std::log(value) - std::log(low_)) / (std::log(high_) - std::log(low_))
                           : (value - low_) / (high_ - low_);
  return from_ + share * (to_ - from_);
}

std::vector<Tick> Scale::ticks(int about, const ValueFormat& format) const {
  std::vector<Tick> ticks;
  const auto add = [&](double value) {
    if (std::isfinite(value) && value >= low_ * (low_ > 0 ? 0.999999 : 1.000001) - 1e-300 &&
        value <= high_ * (high_ > 0 ? 1.000001 : 0.999999)) {
      ticks.push_back({value, format(value)});
    }
  };
  const double decades = logarithmic_ ? std::log10(high_) - std::log10(low_) : 0;
  if (!logarithmic_ || decades < 0.7) {
    const double step = round_step(high_ - low_, about);
    const double last = std::min(high_ * (1 + 1e-9), std::numeric_limits<double>::max());
    for (double k = std::ceil(low_ / step - 1e-9); k * step <= last; ++k) {
      add(k * step + 0.0);  // never "-0"
      if (ticks.size() > 50) break;
    }
    return ticks;
  }
  // The densest of these that does not have too many.
  const std::vector<std::vector<double>> grids = {
      {1, 1.5, 2, 3, 4, 5, 6, 8}, {1, 2, 3, 5, 7}, {1, 2, 5}, {1, 3}, {1}};
  std::size_t grid = 0;
  while (grid + 1 < grids.size() &&
         static_cast<double>(grids[grid].size()) * decades > 1.4 * about) {
    ++grid;
  }
  const int every = std::max(1, static_cast<int>(decades / about));
  for (int power = static_cast<int>(std::floor(std::log10(low_)));
       power <= static_cast<int>(std::ceil(std::log10(high_))); power += every) {
    for (const double digit : grids[grid]) add(digit * std::pow(10.0, power));
  }
  return ticks;
}

double text_width(std::string_view text, double font_size) {
  double width = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xc0) == 0x80) continue;  // within a character
    if (std::string_view("ijl.,:;|'!()[]ftr I/").find(c) != std::string_view::npos) {
      width += 0.40;
    } else if (std::string_view("mwMW%@").find(c) != std::string_view::npos) {
      width += 0.98;
    } else {
      width += c >= 'A' && c <= 'Z' ? 0.72 : 0.635;
    }
  }
  return width * font_size;
}

std::string fitted_text(const std::string& text, double font_size, double width) {
  if (text_width(text, font_size) <= width) return text;
  std::string cut = text;
  while (!cut.empty() && text_width(cut, font_size) + font_size * 0.9 > width) {
    while (!cut.empty() && (static_cast<unsigned char>(cut.back()) & 0xc0) == 0x80) cut.pop_back();
    if (!cut.empty()) cut.pop_back();
  }
  return cut + "\xe2\x80\xa6";
}

}  // namespace quintet
