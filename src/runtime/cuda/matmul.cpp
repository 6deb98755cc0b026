#include "program/ops/matmul.h"

#include "runtime/cuda/gemm.h"
#include "runtime/cuda/kernel.h"

namespace quintet::cuda {

void matmul(const OpContext& op) {
  const auto& attrs = op.attrs<MatmulAttrs>();
  const Shape &a = op.in(matmul::kA).shape, &b = op.in(matmul::kB).shape;
  Product p;
  p.ta = attrs.transpose_a;
  p.tb = attrs.transpose_b;
  p.m = p.ta ? a.cols() : a.rows();
  p.k = p.ta ? a.rows() : a.cols();
  p.n = p.tb ? b.rows() : b.cols();
  p.a = op.in(matmul::kA).dtype;
  p.b = op.in(matmul::kB).dtype;
  p.out = op.out(matmul::kC).dtype;
  p.lda = a.cols();
  p.ldb = b.cols();
  p.ldc = p.n;
  QT_CHECK(p.a == p.b || is_fp8(p.a), "operands of different types");
  op.device().gemm->run(
      p,
      {op.in_data<void>(matmul::kA), op.in_data<void>(matmul::kB),
       op.in_data<void>(matmul::kAddend), op.out_data<void>(matmul::kC), 1, op.scratch<void>(),
       op.in_data<float>(matmul::kUnitA), op.in_data<float>(matmul::kUnitB)},
      op.stream());
}

}  // namespace quintet::cuda
