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

namespace {

// Of a linear layer whose operands are rounded to eight bits: so is the gradient, and both products
// sum along rows of transposed copies. That of the activation was made in the forward; that of the
// weight is made in the backward, as a byte a parameter would wait for it.
void vjp_in_fp8(VjpContext& c) {
  const Program& program = c.builder.program();
  const Op x = *program.producer(c.in(kA));
  const TensorId dy = c.d_out(kC), weight = weight_of_codes(program, c.in(kB));
  const auto d = c.builder.emit(
      program.tensor(dy).name, OpKind::kQuantize, QuantizeAttrs{kGradientFormat},
      {dy, kNone, largest_of(program, dy, c.forward.tag.unit)}, {kCreate, kCreate, kCreate});
  const TensorId d_weight = program.tensor(weight).grad;
  QT_CHECK(d_weight != kNone, "{} has no gradient tensor", program.tensor(weight).name);
  const MatmulAttrs along_rows{.transpose_a = false, .transpose_b = true};
  c.builder.emit("d." + program.tensor(weight).name, OpKind::kMatmul, along_rows,
                 {d[quantize::kTransposed], x.outputs[quantize::kTransposed], d_weight,
                  d[quantize::kUnit], x.outputs[quantize::kUnit]},
                 {d_weight});
  const TensorId turned = transposed_weight(c.builder, c.in(kB));
  const TensorId addend = c.take_addend(kA);
  c.contribute(kA, c.builder.emit_one(
                       c.grad_name(kA), OpKind::kMatmul, along_rows,
                       {d[quantize::kCodes], turned, addend, d[quantize::kUnit], c.in(kUnitB)}));
  if (c.in(kAddend) != kNone) c.contribute(kAddend, dy);
}

}  // namespace
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
      const bool fp8 = is_fp8(a.dtype);
      QT_CHECK(fp8 == is_fp8(v.in(matmul::kB).dtype) && fp8 == v.has_in(matmul::kUnitA) &&
                   fp8 == v.has_in(matmul::kUnitB) &&
                   (!fp8 || (!attrs.transpose_a && attrs.transpose_b)),
               "a product of {} and {}", name_of(a.dtype), name_of(v.in(matmul::kB).dtype));
      // A gradient may be kept in another precision than the operands.
      const DType dtype = v.has_out(matmul::kC) ? v.out(matmul::kC).dtype
                          : fp8                 ? DType::kBF16
                                                : a.dtype;
      return {{"", shape, dtype}};
    },
    .vjp =
        [](VjpContext& c) {
          const auto attrs = std::get<MatmulAttrs>(c.forward.attrs);
          if (c.in(matmul::kUnitA) != kNone) return matmul::vjp_in_fp8(c);
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
