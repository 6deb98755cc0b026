// C = op(A) op(B) + addend, where op transposes or not, accumulated in float32. Leading dims of A
// are flattened into rows; a linear layer is C = X W^T with W stored [out, in].
//
// Or both operands are codes of eight bits (base/fp8.h) with rows along which is summed, and have
// units: C = unit_a unit_b A B^T + addend, in bf16 or float32.
#pragma once

#include <cstdint>

namespace quintet {

struct MatmulAttrs {
  bool transpose_a = false, transpose_b = false;
  template <class Visit>
  void visit(Visit&& visit) const {
    visit("ta", transpose_a);
    visit("tb", transpose_b);
  }
};

struct OpView;

namespace matmul {
// The addend is optional and may be C itself; operands of eight bits have units.
enum Inputs { kA, kB, kAddend, kUnitA, kUnitB };
enum Outputs { kC };

// C is m x n, summed over k.
struct Sizes {
  std::int64_t m, n, k;
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};
Sizes sizes_of(const OpView& op);
}  // namespace matmul

}  // namespace quintet
