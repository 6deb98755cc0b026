// A double-array trie over numbered characters, laid out for the inner loop of tokenization: one
// step is one load of 16 bytes that hold the transition, its check and the score of the key that
// ends there. Immutable after building; safe to share between threads.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/large_array.h"

namespace quintet {

struct TrieKey {
  std::vector<std::uint32_t> labels;  // at least one, each from 1 to the largest
  float score = 0;                    // anything but kNoKey
  std::int32_t value = 0;
};

class Trie {
 public:
  static constexpr float kNoKey = -std::numeric_limits<float>::infinity();
  static constexpr std::uint32_t kNobody = UINT32_MAX;
  struct Node {
    std::uint32_t base = 0;         // the child by label l, if any, is node base + l
    std::uint32_t label = kNobody;  // by which this node is reached
    float score = kNoKey;           // of the key that ends here
    std::uint32_t children = 0;     // bit l % 32: there may be a child by label l

    // To be asked before nodes()[base + child] is looked at, whose label then tells. Most walks end
    // here, and spare the load of a node that is not theirs.
    bool may_have(std::uint32_t child) const { return (children >> (child % 32) & 1) != 0; }
  };

  Trie() = default;
  // Keys must differ. `labels` is the largest label that will ever be asked for. The likelier a key
  // (the higher its score), the nearer to the front its path lies, so that hot nodes share cache
  // lines.
  Trie(std::vector<TrieKey> keys, std::uint32_t labels);

  // nodes()[0 + label] are the children of the root. Every base + label is in range, 0 too, which
  // is nobody's label. Node 0, the root, is nobody's child.
  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size()}; }
  // The value of the key that ends at a node; only where its score is not kNoKey.
  std::int32_t value(std::size_t node) const { return values_[node]; }

 private:
  LargeArray<Node> nodes_;
  std::vector<std::int32_t> values_;
};

}  // namespace quintet
