// add, zero, copy, count_labels: kernels too small for a file each.
#include <cstring>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "runtime/cpu/kernel.h"

namespace quintet::cpu {

void add(const OpContext& op) {
  with_float_type(op.in(0).dtype, [&]<class T>(T) {
    const auto *a = op.in_data<T>(0), *b = op.in_data<T>(1);
    auto* c = op.out_data<T>(0);  // may be a or b itself
    parallel_for(op.in(0).shape.numel(), kElementGrain,
                 [&](std::int64_t begin, std::int64_t end, int) {
#pragma omp simd
                   for (std::int64_t i = begin; i < end; ++i) {
                     c[i] = static_cast<T>(static_cast<float>(a[i]) + static_cast<float>(b[i]));
                   }
                 });
  });
}

void zero(const OpContext& op) {
  std::memset(op.out_data<std::byte>(0), 0, static_cast<std::size_t>(op.out(0).bytes()));
}

void copy(const OpContext& op) {
  parallel_for(op.in(0).bytes(), 1 << 20, [&](std::int64_t begin, std::int64_t end, int) {
    std::memcpy(op.out_data<std::byte>(0) + begin, op.in_data<std::byte>(0) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

void count_labels(const OpContext& op) {
  const auto* labels = op.in_data<std::int32_t>(0);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < op.in(0).shape.numel(); ++i) count += labels[i] >= 0 ? 1 : 0;
  *op.out_data<float>(0) = static_cast<float>(count);
}

}  // namespace quintet::cpu
