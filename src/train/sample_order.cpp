#include "train/sample_order.h"

#include <algorithm>
#include <charconv>
#include <sstream>

namespace quintet {
namespace {

constexpr std::int64_t kLargestBatch = std::int64_t{1} << 40;
constexpr std::int64_t kMostAtOnce = 1 << 20;

bool read_number(std::string_view text, std::int64_t& number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop == text.data() + text.size() && number >= 1 &&
         number <= kLargestBatch;
}

// Blanks around a number mean nothing; one inside it makes it two.
std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

}  // namespace

Result<std::vector<SampleRange>> parse_batches(const std::string& text, std::int64_t batch) {
  std::vector<SampleRange> ranges;
  std::istringstream list(text);
  for (std::string line; std::getline(list, line, ',');) {
    const std::string_view item = trimmed(line);
    const std::size_t dash = item.find('-');
    std::int64_t first = 0, last = 0;
    if (!read_number(trimmed(item.substr(0, dash)), first) ||
        !read_number(dash == std::string_view::npos ? item : trimmed(item.substr(dash + 1)),
                     last) ||
        last < first || last - first >= kMostAtOnce) {
      return usage_error(
          "train.skip_batches = \"{}\": \"{}\" is not a batch; expected numbers from 1 on, such as "
          "\"57\" or \"57, 60-64\"",
          text, item);
    }
    ranges.push_back({(first - 1) * batch, last * batch});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const SampleRange& a, const SampleRange& b) { return a.begin < b.begin; });
  std::vector<SampleRange> joined;
  for (const SampleRange& range : ranges) {
    if (!joined.empty() && range.begin <= joined.back().end) {
      joined.back().end = std::max(joined.back().end, range.end);
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

SampleOrder::SampleOrder(std::int64_t first, std::int64_t batch,
                         const std::vector<SampleRange>& left_out)
    : first_(first), batch_(batch) {
  for (const SampleRange& range : left_out) {
    if (range.end <= first_) continue;
    const std::int64_t begin = (std::max(range.begin, first_) - first_) / batch_;
    const std::int64_t end = (range.end - first_ + batch_ - 1) / batch_;
    for (std::int64_t b = begin; b < end; ++b)
      if (left_out_.empty() || b > left_out_.back()) left_out_.push_back(b);
  }
}

std::int64_t SampleOrder::begin_of(std::int64_t step) const {
  for (const std::int64_t batch : left_out_) {
    if (batch > step) break;
    ++step;
  }
  return first_ + step * batch_;
}

}  // namespace quintet
