#include "program/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "program/op_decl.h"
#include "program/vjp.h"

namespace quintet {

int bias_bucket(std::int64_t distance, bool causal, int buckets, int max_distance) {
  int first = 0;
  if (!causal) {
    buckets /= 2;
    if (distance > 0) first = buckets;
  }
  const std::int64_t n = causal ? std::max<std::int64_t>(-distance, 0) : std::abs(distance);
  const int exact = buckets / 2;
  if (n < exact) return first + static_cast<int>(n);
  // Single precision, in this order, on purpose: the reference computes it so, and at the boundary
  // between two buckets the last bit decides.
  const float range = std::log(static_cast<float>(max_distance) / static_cast<float>(exact));
  const auto step = static_cast<int>(std::log(static_cast<float>(n) / static_cast<float>(exact)) /
                                     range * static_cast<float>(buckets - exact));
  return first + std::min(exact + step, buckets - 1);
}

namespace {

void check_operands(const OpView& v, const Shape& q, bool cross, int kv_slot) {
  const auto& a = v.attrs<AttentionAttrs>();
  const std::int64_t width = std::int64_t{a.heads} * a.head_dim;
  QT_CHECK(q.rank() == 3 && q.cols() == (cross ? 1 : 3) * width, "q {} for {} heads of {}", q.str(),
           a.heads, a.head_dim);
  if (!cross) return;
  const Shape& kv = v.in(kv_slot).shape;
  QT_CHECK(kv.rank() == 3 && kv.cols() == 2 * width && kv[0] == q[0], "kv {} for q {}", kv.str(),
           q.str());
}

double attention_flops(const OpView& v, const Shape& q, const Shape& keys, double products) {
  const auto& a = v.attrs<AttentionAttrs>();
  return products * 2 * static_cast<double>(q[0]) * a.heads * a.head_dim *
         static_cast<double>(q[1]) * static_cast<double>(keys[1]);
}

}  // namespace

const OpDecl kAttentionDecl = {
    .kind = OpKind::kAttention,
    .name = "attention",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const auto& a = v.attrs<AttentionAttrs>();
      const Tensor& q = v.in(attention::kQ);
      check_operands(v, q.shape, v.has_in(attention::kKv), attention::kKv);
      return {{"", q.shape.with_cols(std::int64_t{a.heads} * a.head_dim), q.dtype},
              {"lse", Shape{q.shape[0], a.heads, q.shape[1]}, DType::kF32},
              {"largest", Shape{quantize::kSlots}, DType::kI32}};
    },
    .vjp =
        [](VjpContext& c) {
          const TensorId bias = c.in(attention::kBias);
          const TensorId d_bias = bias == kNone ? kNone : c.weight_grad(attention::kBias);
          const bool cross = c.in(attention::kKv) != kNone;
          const TensorId largest = c.out(attention::kLargest) == kNone ? kNone : kCreate;
          const auto out = c.builder.emit(
              c.grad_name(attention::kQ), OpKind::kAttentionBackward, c.forward.attrs,
              {c.d_out(attention::kOut), c.in(attention::kQ), c.in(attention::kKv), bias,
               c.in(attention::kLengths), c.in(attention::kStep), c.out(attention::kOut),
               c.out(attention::kLogSumExp), d_bias, c.in(attention::kQuerySegments),
               c.in(attention::kKeySegments)},
              {kCreate, cross ? kCreate : kNone, d_bias, largest, cross ? largest : kNone});
          c.contribute(attention::kQ, out[attention_backward::kDQ]);
          if (cross) c.contribute(attention::kKv, out[attention_backward::kDKv]);
        },
    .flops =
        [](const OpView& v) {
          const Shape& q = v.in(attention::kQ).shape;
          return attention_flops(v, q, v.has_in(attention::kKv) ? v.in(attention::kKv).shape : q,
                                 2);
        },
    .redo = Redo::kFull,
};

const OpDecl kAttentionBackwardDecl = {
    .kind = OpKind::kAttentionBackward,
    .name = "attention_backward",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor& q = v.in(attention_backward::kQ);
      const bool cross = v.has_in(attention_backward::kKv);
      check_operands(v, q.shape, cross, attention_backward::kKv);
      const Tensor& keys = cross ? v.in(attention_backward::kKv) : q;
      const auto& a = v.attrs<AttentionAttrs>();
      const DType bias_dtype = v.has_out(attention_backward::kDBias)
                                   ? v.out(attention_backward::kDBias).dtype
                                   : DType::kF32;
      return {{"", q.shape, q.dtype},
              {"kv", keys.shape, keys.dtype},
              {"bias", Shape{a.buckets, a.heads}, bias_dtype},
              {"largest", Shape{quantize::kSlots}, DType::kI32},
              {"kv.largest", Shape{quantize::kSlots}, DType::kI32}};
    },
    .flops =
        [](const OpView& v) {
          const Shape& q = v.in(attention_backward::kQ).shape;
          return attention_flops(
              v, q, v.has_in(attention_backward::kKv) ? v.in(attention_backward::kKv).shape : q, 4);
        },
};

}  // namespace quintet
