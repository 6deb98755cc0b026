// C = op(A) op(B) + addend, where op transposes or not, accumulated in float32. Leading dims of A
// are flattened into rows; a linear layer is C = X W^T with W stored [out, in].
#pragma once

#include <algorithm>
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

namespace matmul {
enum Inputs { kA, kB, kAddend };  // the addend is optional and may be C itself
enum Outputs { kC };

// What a device's matrix library may use beside the operands.
inline constexpr std::int64_t kDeviceWorkspace = std::int64_t{32} << 20;

// The CPU kernel's scratch for bf16: float32 copies of a block of A's rows, of B's columns and of
// C.
struct WidenTile {
  std::int64_t m, n, k;
  static WidenTile of(std::int64_t m, std::int64_t n, std::int64_t k) {
    return {std::min<std::int64_t>(m, 512), std::min<std::int64_t>(n, 512), k};
  }
  std::int64_t bytes() const { return 4 * (m * k + n * k + m * n); }
};
}  // namespace matmul

}  // namespace quintet
