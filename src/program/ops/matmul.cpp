#include "program/ops/matmul.h"

#include "base/check.h"
#include "program/op_decl.h"
#include "program/vjp.h"

namespace quintet {
namespace matmul {

Sizes sizes_of(const OpView& v) {
  const auto& attrs = v.attrs<MatmulAttrs>();
  const Shape &a = v.in(kA).shape, &b = v.in(kB).shape;
  const std::int64_t m = attrs.transpose_a ? a.cols() : a.rows();
  const std::int64_t k = attrs.transpose_a ? a.rows() : a.cols();
  const std::int64_t n = attrs.transpose_b ? b.rows() : b.cols();
  const std::int64_t k_b = attrs.transpose_b ? b.cols() : b.rows();
  QT_CHECK(k == k_b, "matmul of {}{} and {}{}: inner sizes {} and {}", a.str(),
           attrs.transpose_a ? "^T" : "", b.str(), attrs.transpose_b ? "^T" : "", k, k_b);
  return {m, n, k};
}

}  // namespace matmul

const OpDecl kMatmulDecl = {
    .kind = OpKind::kMatmul,
    .name = "matmul",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const auto& attrs = v.attrs<MatmulAttrs>();
      const matmul::Sizes s = matmul::sizes_of(v);
      const Tensor& a = v.in(matmul::kA);
      // Activations keep their leading dims; a product over tokens (A transposed) is a matrix.
      const Shape shape = attrs.transpose_a ? Shape{s.m, s.n} : a.shape.with_cols(s.n);
      if (v.has_in(matmul::kAddend)) {
        QT_CHECK(v.in(matmul::kAddend).shape == shape, "addend {} for a product {}",
                 v.in(matmul::kAddend).shape.str(), shape.str());
      }
      // A gradient may be kept in another precision than the operands.
      const DType dtype = v.has_out(matmul::kC) ? v.out(matmul::kC).dtype : a.dtype;
      return {{"", shape, dtype}};
    },
    .vjp =
        [](VjpContext& c) {
          const auto attrs = std::get<MatmulAttrs>(c.forward.attrs);
          QT_CHECK(!attrs.transpose_a && attrs.transpose_b,
                   "only linear layers are differentiated");
          const TensorId dy = c.d_out(matmul::kC);
          const TensorId d_weight = c.weight_grad(matmul::kB);
          c.builder.emit(c.grad_name(matmul::kB), OpKind::kMatmul,
                         MatmulAttrs{.transpose_a = true, .transpose_b = false},
                         {dy, c.in(matmul::kA), d_weight}, {d_weight});
          const TensorId addend = c.take_addend(matmul::kA);
          c.contribute(matmul::kA,
                       c.builder.emit_one(c.grad_name(matmul::kA), OpKind::kMatmul, MatmulAttrs{},
                                          {dy, c.in(matmul::kB), addend}));
          if (c.in(matmul::kAddend) != kNone) c.contribute(matmul::kAddend, dy);
        },
    .flops = [](const OpView& v) { return matmul::sizes_of(v).flops(); },
    .redo = Redo::kFull,
    .in_place = {{{matmul::kC, matmul::kAddend}, {}}},
};

}  // namespace quintet
