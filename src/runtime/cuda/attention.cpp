// Who computes an attention: the Hopper kernels what they take, the plain ones everything else.
#include "runtime/cuda/attention.h"

#include <algorithm>

#include "program/ops/attention.h"
#include "runtime/cuda/check.h"
#ifdef QUINTET_HAS_SM90
#include "runtime/cuda/attention_sm90.h"
#include "runtime/cuda/largest.h"
#endif

namespace quintet::cuda {

#ifdef QUINTET_HAS_SM90
namespace {

static_assert(sm90::kLargestSlots == quantize::kSlots);

struct Slots {
  int q, kv, bias, lengths, query_segments, key_segments;
};

// Whether the Hopper kernels take this op; `a` is then the op as they see it.
bool for_hopper(const OpContext& op, const Slots& slots, sm90::Attention& a) {
  const auto& attrs = op.attrs<AttentionAttrs>();
  if (op.in(slots.q).dtype != DType::kBF16 || attrs.head_dim != sm90::kHeadDim) return false;
  if (attrs.dropout_rate > 0 || attrs.max_distance > sm90::kBiasBand) return false;
  if (attrs.buckets > sm90::RelativeBias::kMaxBuckets) return false;
  const std::int64_t width = std::int64_t{attrs.heads} * attrs.head_dim;
  const bool cross = op.has_in(slots.kv);
  const Shape &q = op.in(slots.q).shape, &kv = cross ? op.in(slots.kv).shape : q;
  a.batch = static_cast<int>(q[0]);
  a.heads = attrs.heads;
  a.queries = static_cast<int>(q[1]);
  a.keys = static_cast<int>(kv[1]);
  a.causal = attrs.causal;
  const auto* q_data = op.in_data<std::uint16_t>(slots.q);
  const auto* kv_data = cross ? op.in_data<std::uint16_t>(slots.kv) : q_data + width;
  a.q = q_data;
  a.k = kv_data;
  a.v = kv_data + width;
  a.q_ld = cross ? width : 3 * width;
  a.kv_ld = cross ? 2 * width : 3 * width;
  a.lengths = op.in_data<std::int32_t>(slots.lengths);
  a.query_segments = op.in_data<std::int32_t>(slots.query_segments);
  a.key_segments = op.in_data<std::int32_t>(slots.key_segments);
  if (op.has_in(slots.bias)) {
    a.bias.table = op.in_data<void>(slots.bias);
    a.bias.buckets = attrs.buckets;
    for (int i = 0; i <= 2 * sm90::kBiasBand; ++i) {
      a.bias.bucket[i] = static_cast<std::uint8_t>(
          bias_bucket(i - sm90::kBiasBand, attrs.causal, attrs.buckets, attrs.max_distance));
    }
  }
  return sm90::supported(a);
}

}  // namespace

void attention(const OpContext& op) {
  namespace slots = quintet::attention;
  sm90::Attention a;
  if (!for_hopper(op,
                  {slots::kQ, slots::kKv, slots::kBias, slots::kLengths, slots::kQuerySegments,
                   slots::kKeySegments},
                  a))
    return plain_attention(op);
  QT_CUDA(sm90::forward(a, op.out_data<void>(slots::kOut), op.out_data<float>(slots::kLogSumExp),
                        empty_slots(op, slots::kLargest, op.in(slots::kQ).dtype), op.stream()));
}

void attention_backward(const OpContext& op) {
  namespace slots = quintet::attention_backward;
  sm90::Attention a;
  if (!for_hopper(op,
                  {slots::kQ, slots::kKv, slots::kBias, slots::kLengths, slots::kQuerySegments,
                   slots::kKeySegments},
                  a))
    return plain_attention_backward(op);
  QT_CHECK(sm90::backward_workspace(a) <= op.program.tensor(op.op.workspace).bytes(),
           "attention wants {} bytes of scratch and was given {}", sm90::backward_workspace(a),
           op.program.tensor(op.op.workspace).bytes());
  const std::int64_t width = std::int64_t{a.heads} * sm90::kHeadDim;
  auto* dq = op.out_data<std::uint16_t>(slots::kDQ);
  auto* dk = op.has_in(slots::kKv) ? op.out_data<std::uint16_t>(slots::kDKv) : dq + width;
  sm90::AttentionBackward b;
  b.d_out = op.in_data<void>(slots::kDOut);
  b.out = op.in_data<void>(slots::kOut);
  b.lse = op.in_data<float>(slots::kLogSumExp);
  b.d_q = dq;
  b.d_k = dk;
  b.d_v = dk + width;
  if (op.has_out(slots::kDBias)) {
    b.d_bias = op.out_data<void>(slots::kDBias);
    b.d_bias_f32 = op.out(slots::kDBias).dtype == DType::kF32;
    b.add_to_d_bias = op.has_in(slots::kDBiasAddend);
  }
  const DType dtype = op.in(slots::kQ).dtype;
  b.d_q_largest = empty_slots(op, slots::kDQLargest, dtype);
  b.d_kv_largest =
      op.has_in(slots::kKv) ? empty_slots(op, slots::kDKvLargest, dtype) : b.d_q_largest;
  QT_CUDA(sm90::backward(a, b, op.scratch<void>(), op.stream()));
}

#else

void attention(const OpContext& op) {
  plain_attention(op);
}
void attention_backward(const OpContext& op) {
  plain_attention_backward(op);
}

#endif

}  // namespace quintet::cuda
