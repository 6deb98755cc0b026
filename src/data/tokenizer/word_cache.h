// Remembers how short stretches of text were split. An entry holds, beside the ids, the range of
// running scores for which a fresh computation is certain to find the same split (unigram.h says
// why there is such a range). One cache line an entry, two entries a set, the older one replaced.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/large_array.h"

namespace quintet {

// A text of at most 32 bytes as four words, zeros after its end.
struct WordKey {
  static constexpr std::size_t kMaxLength = 32;
  std::array<std::uint64_t, 4> words{};
  std::uint64_t hash = 0;

  WordKey() = default;
  // Reads 32 bytes from `text`, whatever its length.
  WordKey(const char* text, std::size_t length) {
    static constexpr auto kMasks = [] {
      std::array<std::array<std::uint64_t, 4>, kMaxLength + 1> masks{};
      for (std::size_t n = 0; n <= kMaxLength; ++n) {
        for (std::size_t i = 0; i < n; ++i) masks[n][i / 8] |= std::uint64_t{0xFF} << (i % 8 * 8);
      }
      return masks;
    }();
    for (std::size_t i = 0; i < 4; ++i) {
      std::memcpy(&words[i], text + 8 * i, 8);
      words[i] &= kMasks[length][i];
    }
    hash = words[0] * 0x9E3779B97F4A7C15 ^ std::rotl(words[1] * 0xD6E8FEB86659FD93, 32);
    hash ^= std::rotl(words[2] * 0xA0761D6478BD642F ^ words[3] * 0xE7037ED1A0B428DB, 16);
    // The low bits choose the set; let the high ones take part.
    hash = (hash ^ hash >> 32) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 29;
  }
};

class WordCache {
 public:
  static constexpr std::size_t kMaxIds = 6;
  struct alignas(64) Entry {
    std::array<std::uint64_t, 4> key{};
    float limit = 0;  // valid while the running score's magnitude is below it
    std::uint8_t length = 0, count = 0;
    std::array<std::int32_t, kMaxIds> ids{};
  };

  // `entries` must be a power of two.
  explicit WordCache(std::size_t entries) : entries_(entries), mask_(entries - 2) {}

  void prefetch(std::uint64_t hash) const {
    const Entry* set = &entries_[hash & mask_];
    __builtin_prefetch(set);
    __builtin_prefetch(set + 1);
  }
  const Entry* find(const WordKey& key, std::size_t length) {
    Entry* set = &entries_[key.hash & mask_];
    if (matches(set[0], key, length)) return set;
    if (!matches(set[1], key, length)) return nullptr;
    std::swap(set[0], set[1]);
    return set;
  }
  // The entry to fill for a key that find() did not find; its key is set.
  Entry& insert(const WordKey& key, std::size_t length) {
    Entry* set = &entries_[key.hash & mask_];
    set[1] = set[0];
    set[0].key = key.words;
    set[0].length = static_cast<std::uint8_t>(length);
    return set[0];
  }

 private:
  static bool matches(const Entry& entry, const WordKey& key, std::size_t length) {
    std::uint64_t differs = entry.length ^ length;
    for (std::size_t i = 0; i < 4; ++i) differs |= entry.key[i] ^ key.words[i];
    return differs == 0;
  }
  LargeArray<Entry> entries_;
  std::size_t mask_;
};

}  // namespace quintet
