// Small helpers for the texts people read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quintet {

// "1.50 GiB"; below 1 KiB plain bytes.
std::string human_bytes(double bytes);
// "582.4 M", "12.9 B".
std::string human_count(double count);
// "1 h 02 min", "3 min 20 s", "12 s".
std::string human_duration(double seconds);
// "12,921,057,280".
std::string with_commas(std::int64_t number);

// The candidate nearest to `word` by edit distance, or "" when none is near enough to be meant.
std::string nearest(std::string_view word, std::span<const std::string> candidates);
std::string join(std::span<const std::string> parts, std::string_view separator);

}  // namespace quintet
