#include "data/tokenizer/char_codes.h"

#include <algorithm>

namespace quintet {

CharCodes::CharCodes(const std::map<char32_t, double>& weights)
    : pages_(kCodePoints >> kPageBits, 0), codes_(kPageSize, 0) {
  // 1. Pages stand for scripts; the heaviest first.
  struct Page {
    double weight = 0;
    std::vector<std::pair<double, char32_t>> characters;
  };
  std::map<char32_t, Page> pages;
  for (const auto& [code, weight] : weights) {
    Page& page = pages[code >> kPageBits];
    page.weight += weight;
    page.characters.emplace_back(-weight, code);
  }
  std::vector<std::pair<double, char32_t>> order;
  for (const auto& [number, page] : pages) order.emplace_back(-page.weight, number);
  std::sort(order.begin(), order.end());
  // 2. Within a page, the heaviest characters first.
  for (const auto& [weight, number] : order) {
    auto& characters = pages[number].characters;
    std::sort(characters.begin(), characters.end());
    pages_[number] = static_cast<std::uint32_t>(codes_.size() >> kPageBits);
    codes_.resize(codes_.size() + kPageSize, 0);
    for (const auto& [ignored, code] : characters) {
      codes_[pages_[number] << kPageBits | (code & (kPageSize - 1))] = ++count_;
    }
  }
}

}  // namespace quintet
