// C = op(A) op(B) + addend, where op transposes or not, accumulated in float32. Leading dims of A
// are flattened into rows; a linear layer is C = X W^T with W stored [out, in].
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
enum Inputs { kA, kB, kAddend };  // the addend is optional and may be C itself
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
