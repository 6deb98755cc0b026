#include "passes/buckets.h"

#include <algorithm>
#include <cctype>

#include "base/index.h"

namespace quintet {
namespace {

constexpr std::int64_t kPartAlignment =
    8;  // elements; parts start where kernels can use wide accesses

// "encoder.7" and "decoder.0", not the embedding, the head or the bias tables.
bool is_layer(const std::string& name) {
  return std::isdigit(static_cast<unsigned char>(name.back())) != 0;
}

// Makes `tensor` and all views of it views of `base`, shifted by some elements.
void move_into(Program& program, TensorId tensor, TensorId base, std::int64_t elements) {
  const std::int64_t shift = elements * size_of(program.tensor(tensor).dtype);
  for (Tensor& t : program.tensors) {
    if (t.base != tensor) continue;
    t.base = base;
    t.base_offset += shift;
  }
  program.tensor(tensor).base = base;
  program.tensor(tensor).base_offset = shift;
}

}  // namespace

std::vector<Bucket> make_buckets(Program& program, std::int32_t parts, const LayoutConfig& layout) {
  std::vector<Bucket> buckets;
  for (std::size_t u = 0; u < program.units.size(); ++u) {
    const Unit& unit = program.units[u];
    if (unit.params == kNone) continue;
    const bool whole = parts == 1 || unit.size < layout.whole_below;
    Bucket* last = buckets.empty() ? nullptr : &buckets.back();
    const bool join = !whole && last != nullptr && last->parts > 1 && is_layer(unit.name) &&
                      is_layer(program.units[index(last->units.back())].name) &&
                      program.units[index(last->units.back())].chunk == unit.chunk &&
                      last->size < layout.bucket;
    if (!join) {
      buckets.emplace_back();
      last = &buckets.back();
      last->parts = whole ? 1 : parts;
      last->name = unit.name;
    }
    last->units.push_back(static_cast<std::int32_t>(u));
    last->unit_offsets.push_back(last->size);
    last->size += unit.size;
  }
  for (Bucket& bucket : buckets) {
    const std::int64_t multiple = bucket.parts > 1 ? bucket.parts * kPartAlignment : 1;
    bucket.size = (bucket.size + multiple - 1) / multiple * multiple;
    if (bucket.units.size() > 1) bucket.name += fmt::format("(+{})", bucket.units.size() - 1);
    const Unit& first = program.units[index(bucket.units.front())];
    const auto joined = [&](TensorId like, const char* suffix, TensorId Unit::*of) {
      if (like == kNone) return kNone;  // a program without gradients
      Tensor whole = program.tensor(like);
      whole.shape = Shape{bucket.size};
      whole.name = bucket.name + suffix;
      const TensorId tensor = program.add_tensor(std::move(whole));
      for (std::size_t i = 0; i < bucket.units.size(); ++i)
        move_into(program, program.units[index(bucket.units[i])].*of, tensor,
                  bucket.unit_offsets[i]);
      return tensor;
    };
    bucket.params = joined(first.params, ".params", &Unit::params);
    bucket.grads = joined(first.grads, ".grads", &Unit::grads);
  }
  return buckets;
}

std::vector<Run> gaps_of(const Program& program, const Bucket& bucket) {
  std::vector<Run> gaps;
  std::int64_t end = 0;
  const auto until = [&](std::int64_t begin) {
    if (begin > end) gaps.push_back({end, begin});
  };
  for (std::size_t i = 0; i < bucket.units.size(); ++i) {
    for (const Weight& weight : program.units[index(bucket.units[i])].weights) {
      until(bucket.unit_offsets[i] + weight.offset);
      end = bucket.unit_offsets[i] + weight.offset + weight.size();
    }
  }
  until(bucket.size);
  return gaps;
}

std::vector<ShardPiece> pieces_of(const Program& program, const Bucket& bucket, std::int64_t begin,
                                  std::int64_t end) {
  std::vector<ShardPiece> pieces;
  for (std::size_t i = 0; i < bucket.units.size(); ++i) {
    const Unit& unit = program.units[index(bucket.units[i])];
    for (std::size_t w = 0; w < unit.weights.size(); ++w) {
      const std::int64_t at = bucket.unit_offsets[i] + unit.weights[w].offset;
      const std::int64_t from = std::max(begin, at),
                         to = std::min(end, at + unit.weights[w].size());
      if (from >= to) continue;
      ShardPiece piece;
      piece.unit = bucket.units[i];
      piece.weight = static_cast<std::int32_t>(w);
      piece.first = from - at;
      piece.count = to - from;
      piece.offset = from - begin;
      pieces.push_back(piece);
    }
  }
  return pieces;
}

}  // namespace quintet
