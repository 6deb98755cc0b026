// Numbers for the characters that occur in a vocabulary, so that a trie takes one step per
// character instead of one per byte.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace quintet {

class CharCodes {
 public:
  CharCodes() : CharCodes(std::map<char32_t, double>{}) {}
  // Characters with their weights. Those of one script, and among them those of high weight, get
  // neighbouring numbers: what is used together lies together in the trie.
  explicit CharCodes(const std::map<char32_t, double>& weights);

  // From 1 on; 0 for a character that is not among them.
  std::uint32_t of(char32_t code) const {
    return codes_[pages_[code >> kPageBits] << kPageBits | (code & (kPageSize - 1))];
  }
  std::uint32_t count() const { return count_; }

 private:
  static constexpr unsigned kPageBits = 7;
  static constexpr std::uint32_t kPageSize = 1u << kPageBits;
  static constexpr std::uint32_t kCodePoints = 0x110000;

  std::vector<std::uint32_t> pages_;  // page 0 is all zeros, for what is not there
  std::vector<std::uint32_t> codes_;
  std::uint32_t count_ = 0;
};

}  // namespace quintet
