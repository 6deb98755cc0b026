#include "program/ops/embedding.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "runtime/cpu/kernel.h"
#include "runtime/cpu/vector_math.h"

namespace quintet::cpu {

void embedding(const OpContext& op) {
  const Tensor& table = op.in(embedding::kTable);
  const auto* ids = op.in_data<std::int32_t>(embedding::kIds);
  const std::int64_t first = op.attrs<EmbeddingAttrs>().first_row, count = table.shape.rows();
  const std::int64_t row_bytes = table.shape.cols() * size_of(table.dtype);
  const auto* rows = op.in_data<std::byte>(embedding::kTable);
  auto* out = op.out_data<std::byte>(embedding::kOut);
  parallel_for(op.in(embedding::kIds).shape.numel(), row_grain(table.shape.cols()),
               [&](std::int64_t begin, std::int64_t end, int) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   const std::int64_t row = ids[i] - first;
                   std::byte* to = out + i * row_bytes;
                   if (row >= 0 && row < count) {
                     std::memcpy(to, rows + row * row_bytes, static_cast<std::size_t>(row_bytes));
                   } else {
                     std::memset(to, 0, static_cast<std::size_t>(row_bytes));
                   }
                 }
               });
}

namespace {

template <class T, class G>
void scatter(const OpContext& op) {
  const auto* dy = op.in_data<T>(embedding_backward::kDy);
  const auto* ids = op.in_data<std::int32_t>(embedding_backward::kIds);
  auto* table = op.out_data<G>(embedding_backward::kDTable);
  const Shape& shape = op.out(embedding_backward::kDTable).shape;
  const std::int64_t tokens = op.in(embedding_backward::kIds).shape.numel(), width = shape.cols();
  if (!op.has_in(embedding_backward::kAddend)) {
    parallel_for(shape.numel(), 1 << 16, [&](std::int64_t begin, std::int64_t end, int) {
      std::fill(table + begin, table + end, G(0.0f));
    });
  }
  // 1. Sort the tokens by id, keeping their order within an id.
  auto* order = reinterpret_cast<std::int64_t*>(op.scratch());
  for (std::int64_t i = 0; i < tokens; ++i) order[i] = (std::int64_t{ids[i]} << 32) | i;
  std::sort(order, order + tokens);
  // 2. Each run of one id is summed in float32 and added to its row once. A run belongs to the
  // piece
  //    it starts in.
  const std::int64_t first = op.attrs<EmbeddingAttrs>().first_row;
  parallel_for(tokens, row_grain(width), [&](std::int64_t begin, std::int64_t end, int) {
    const auto id_at = [&](std::int64_t i) { return order[i] >> 32; };
    while (begin > 0 && begin < end && id_at(begin) == id_at(begin - 1)) ++begin;
    while (begin < end) {
      std::int64_t last = begin + 1;
      while (last < tokens && id_at(last) == id_at(begin)) ++last;
      const std::int64_t at = id_at(begin) - first;
      const bool mine = at >= 0 && at < shape.rows();
      G* row = table + at * width;
      constexpr std::int64_t kBlock = 256;
      for (std::int64_t c = 0; mine && c < width; c += kBlock) {
        const std::int64_t n = std::min(kBlock, width - c);
        float sum[kBlock];
        widen(row + c, sum, n);
        for (std::int64_t i = begin; i < last; ++i) {
          const T* from = dy + (order[i] & 0xffffffff) * width + c;
#pragma omp simd
          for (std::int64_t j = 0; j < n; ++j) sum[j] += static_cast<float>(from[j]);
        }
        narrow(sum, row + c, n);
      }
      begin = last;
    }
  });
}

}  // namespace

void embedding_backward(const OpContext& op) {
  with_float_type(op.in(embedding_backward::kDy).dtype, [&]<class T>(T) {
    with_float_type(op.out(embedding_backward::kDTable).dtype,
                    [&]<class G>(G) { scatter<T, G>(op); });
  });
}

}  // namespace quintet::cpu
