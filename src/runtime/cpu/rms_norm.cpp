#include "program/ops/rms_norm.h"

#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "runtime/cpu/codes.h"
#include "runtime/cpu/kernel.h"
#include "runtime/cpu/largest.h"

namespace quintet::cpu {
namespace {

template <class T>
void normalize(const OpContext& op) {
  const auto* x = op.in_data<T>(rms_norm::kX);
  const auto* weight = op.in_data<T>(rms_norm::kWeight);
  auto* y = result_of<T>(op);
  auto* rstd = op.out_data<float>(rms_norm::kRstd);
  const Shape& shape = op.in(rms_norm::kX).shape;
  const std::int64_t d = shape.cols();
  const float epsilon = op.attrs<RmsNormAttrs>().epsilon;
  parallel_for(shape.rows(), row_grain(d), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* xr = x + r * d;
      T* yr = y + r * d;
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = 0; i < d; ++i)
        sum += static_cast<float>(xr[i]) * static_cast<float>(xr[i]);
      const float inverse = 1.0f / std::sqrt(sum / static_cast<float>(d) + epsilon);
      rstd[r] = inverse;
#pragma omp simd
      for (std::int64_t i = 0; i < d; ++i) {
        yr[i] = static_cast<T>(static_cast<float>(xr[i]) * inverse * static_cast<float>(weight[i]));
      }
    }
  });
}

// With n = x rstd and g = dy w:  dx = rstd (g - n mean(g n)),  dw = sum over rows of dy n.
template <class T, class G>
void normalize_backward(const OpContext& op) {
  const auto* dy = op.in_data<T>(rms_norm_backward::kDy);
  const auto* x = op.in_data<T>(rms_norm_backward::kX);
  const auto* weight = op.in_data<T>(rms_norm_backward::kWeight);
  const auto* rstd = op.in_data<float>(rms_norm_backward::kRstd);
  const auto* addend = op.in_data<T>(rms_norm_backward::kAddend);
  auto* dx = op.out_data<T>(rms_norm_backward::kDx);
  auto* dw = op.out_data<G>(rms_norm_backward::kDWeight);
  const bool accumulate = op.has_in(rms_norm_backward::kDWeightAddend);
  const Shape& shape = op.in(rms_norm_backward::kX).shape;
  const std::int64_t rows = shape.rows(), d = shape.cols();
  const std::int64_t blocks = rms_norm_backward::row_blocks(rows);
  float* partial = op.scratch();  // [blocks, d]
  parallel_for(
      blocks, row_grain((rows + blocks - 1) / blocks * d),
      [&](std::int64_t first, std::int64_t last, int) {
        for (std::int64_t block = first; block < last; ++block) {
          float* sums = partial + block * d;
          std::memset(sums, 0, static_cast<std::size_t>(d) * sizeof(float));
          for (std::int64_t r = rows * block / blocks; r < rows * (block + 1) / blocks; ++r) {
            const T *dyr = dy + r * d, *xr = x + r * d;
            const T* ar = addend == nullptr ? nullptr : addend + r * d;
            T* dxr = dx + r * d;
            const float inverse = rstd[r];
            float dot = 0;
#pragma omp simd reduction(+ : dot)
            for (std::int64_t i = 0; i < d; ++i) {
              const float g = static_cast<float>(dyr[i]);
              const float n = static_cast<float>(xr[i]) * inverse;
              dot += g * static_cast<float>(weight[i]) * n;
              sums[i] += g * n;
            }
            const float mean = dot / static_cast<float>(d);
        // dx may lie where dy or the addend did: each element is read before it is written.
#pragma omp simd
            for (std::int64_t i = 0; i < d; ++i) {
              const float g = static_cast<float>(dyr[i]) * static_cast<float>(weight[i]);
              const float n = static_cast<float>(xr[i]) * inverse;
              const float own = inverse * (g - n * mean);
              dxr[i] = static_cast<T>(ar == nullptr ? own : own + static_cast<float>(ar[i]));
            }
          }
        }
      });
  for (std::int64_t i = 0; i < d; ++i) {
    float sum = accumulate ? static_cast<float>(dw[i]) : 0.0f;
    for (std::int64_t block = 0; block < blocks; ++block) sum += partial[block * d + i];
    dw[i] = static_cast<G>(sum);
  }
}

}  // namespace

void rms_norm(const OpContext& op) {
  with_float_type(op.in(rms_norm::kX).dtype, [&]<class T>(T) {
    normalize<T>(op);
    leave_codes_or_largest<T>(op);
  });
}

void rms_norm_backward(const OpContext& op) {
  with_float_type(op.in(rms_norm_backward::kX).dtype, [&]<class T>(T) {
    with_float_type(op.out(rms_norm_backward::kDWeight).dtype,
                    [&]<class G>(G) { normalize_backward<T, G>(op); });
    leave_largest<T>(op, rms_norm_backward::kDx, rms_norm_backward::kLargest);
  });
}

}  // namespace quintet::cpu
