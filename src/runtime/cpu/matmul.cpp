#include "program/ops/matmul.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/kernel.h"
#include "runtime/cpu/vector_math.h"

namespace quintet::cpu {
namespace {

struct Problem {
  bool ta, tb;
  std::int64_t m, n, k;
};

void in_float32(const OpContext& op, const Problem& p) {
  auto* c = op.out_data<float>(matmul::kC);
  const auto* addend = op.in_data<float>(matmul::kAddend);
  if (addend != nullptr && addend != c) {
    parallel_for(p.m * p.n, kElementGrain, [&](std::int64_t begin, std::int64_t end, int) {
      std::memcpy(c + begin, addend + begin, static_cast<std::size_t>(end - begin) * sizeof(float));
    });
  }
  gemm(p.ta, p.tb, p.m, p.n, p.k, 1, op.in_data<float>(matmul::kA), p.ta ? p.m : p.k,
       op.in_data<float>(matmul::kB), p.tb ? p.k : p.n, addend == nullptr ? 0.0f : 1.0f, c, p.n);
}

// Copies rows [first, first + count) of op(X), of `inner` elements each, to float32 rows; `stored`
// is the row length X has in memory.
template <class T>
void widen_rows(const T* x, bool transposed, std::int64_t stored, std::int64_t first,
                std::int64_t count, std::int64_t inner, float* to) {
  parallel_for(count, row_grain(inner), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      if (!transposed) {
        widen(x + (first + r) * stored, to + r * inner, inner);
      } else {
        for (std::int64_t i = 0; i < inner; ++i) {
          to[r * inner + i] = static_cast<float>(x[i * stored + first + r]);
        }
      }
    }
  });
}

// Tile by tile through float32 copies; each element of C is rounded once.
template <class A, class B, class C>
void widened(const OpContext& op, const Problem& p) {
  const auto* a = op.in_data<A>(matmul::kA);
  const auto* b = op.in_data<B>(matmul::kB);
  const auto* addend = op.in_data<C>(matmul::kAddend);
  auto* c = op.out_data<C>(matmul::kC);
  // Powers of two: it does not matter when they are multiplied with.
  const auto *unit_a = op.in_data<float>(matmul::kUnitA),
             *unit_b = op.in_data<float>(matmul::kUnitB);
  const float unit = unit_a == nullptr ? 1.0f : *unit_a * *unit_b;
  const auto tile = matmul::WidenTile::of(p.m, p.n, p.k);
  float* a_rows = op.scratch();               // [tile.m, k]
  float* b_rows = a_rows + tile.m * tile.k;   // [tile.n, k]: op(B) transposed
  float* product = b_rows + tile.n * tile.k;  // [tile.m, tile.n]
  for (std::int64_t m0 = 0; m0 < p.m; m0 += tile.m) {
    const std::int64_t rows = std::min(tile.m, p.m - m0);
    widen_rows(a, p.ta, p.ta ? p.m : p.k, m0, rows, p.k, a_rows);
    for (std::int64_t n0 = 0; n0 < p.n; n0 += tile.n) {
      const std::int64_t cols = std::min(tile.n, p.n - n0);
      widen_rows(b, !p.tb, p.tb ? p.k : p.n, n0, cols, p.k, b_rows);
      gemm(false, true, rows, cols, p.k, unit, a_rows, p.k, b_rows, p.k, 0, product, cols);
      parallel_for(rows, row_grain(cols), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t r = begin; r < end; ++r) {
          C* out = c + (m0 + r) * p.n + n0;
          const C* add = addend == nullptr ? nullptr : addend + (m0 + r) * p.n + n0;
          for (std::int64_t j = 0; j < cols; ++j) {
            const float value = product[r * cols + j];
            out[j] = static_cast<C>(add == nullptr ? value : value + static_cast<float>(add[j]));
          }
        }
      });
    }
  }
}

}  // namespace

void matmul(const OpContext& op) {
  const auto& attrs = op.attrs<MatmulAttrs>();
  const Shape &a = op.in(matmul::kA).shape, &b = op.in(matmul::kB).shape;
  const Problem p{attrs.transpose_a, attrs.transpose_b, attrs.transpose_a ? a.cols() : a.rows(),
                  attrs.transpose_b ? b.rows() : b.cols(), attrs.transpose_a ? a.rows() : a.cols()};
  const DType dtype = op.in(matmul::kA).dtype, out = op.out(matmul::kC).dtype;
  if (dtype == DType::kF32 && op.in(matmul::kB).dtype == DType::kF32 && out == DType::kF32) {
    in_float32(op, p);
    return;
  }
  if (is_fp8(dtype)) {
    with_fp8_type(dtype, [&]<class A>(A) {
      with_fp8_type(op.in(matmul::kB).dtype, [&]<class B>(B) {
        with_float_type(out, [&]<class C>(C) { widened<A, B, C>(op, p); });
      });
    });
    return;
  }
  QT_CHECK(dtype == op.in(matmul::kB).dtype, "operands of different types");
  with_float_type(dtype, [&]<class T>(T) {
    with_float_type(out, [&]<class C>(C) { widened<T, T, C>(op, p); });
  });
}

}  // namespace quintet::cpu
