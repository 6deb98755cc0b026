// What an op's time depends on, and nothing else: its kind, a variant (precisions, options, which
// optional operands are there) and a few sizes. Two ops with the same key take the same time on
// the same device; two with the same kind and variant can be compared by their sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"

namespace quintet {

struct OpKey {
  OpKind kind{};
  std::string variant;              // no spaces; never empty
  std::vector<std::int64_t> sizes;  // at least one, all positive

  bool operator==(const OpKey&) const = default;
  auto operator<=>(const OpKey&) const = default;
  // "matmul nt:bf16:bf16 1024x768x2048".
  std::string str() const;
};

// How many sizes a kind's key has.
int size_count(OpKind kind);

// Not for communication, whose time is not its own.
OpKey key_of(const Program& program, const Op& op);

// Ops whose time follows the same few properties of a device.
enum class OpClass : std::uint8_t { kProduct, kAttention, kLoss, kMemory, kLookup, kUpdate, kCopy };
inline constexpr int kOpClassCount = 7;
constexpr std::string_view name_of(OpClass op_class) {
  constexpr std::string_view kNames[kOpClassCount] = {"product", "attention", "loss", "memory",
                                                      "lookup",  "update",    "copy"};
  return kNames[static_cast<int>(op_class)];
}
OpClass class_of(OpKind kind);

// Bytes an op moves at least: operands once, but of a table only the rows that are looked up.
double moved_bytes(const Program& program, const Op& op);

}  // namespace quintet
