#include "program/ops/generation.h"

#include "base/check.h"
#include "program/op_decl.h"

namespace quintet {

const OpDecl kCachedAttentionDecl = {
    .kind = OpKind::kCachedAttention,
    .name = "cached_attention",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const auto& attrs = v.attrs<CachedAttentionAttrs>();
      const Tensor& qkv = v.in(cached_attention::kQkv);
      const Tensor& cache = v.in(cached_attention::kCache);
      const std::int64_t width = std::int64_t{attrs.heads} * attrs.head_dim;
      QT_CHECK(attrs.head_dim <= cached_attention::kMaxHeadDim, "a head of {}", attrs.head_dim);
      QT_CHECK(qkv.shape.rank() == 3 && qkv.shape[1] == 1 && qkv.shape[2] == 3 * width,
               "one token's q, k and v expected");
      QT_CHECK(cache.shape.rank() == 3 && cache.shape[0] == qkv.shape[0] &&
                   cache.shape[2] == 2 * width && cache.dtype == qkv.dtype,
               "the cache does not fit the rows");
      return {{"", {qkv.shape[0], 1, width}, qkv.dtype}, {"cache", cache.shape, cache.dtype}};
    },
};

const OpDecl kTopLogitsDecl = {
    .kind = OpKind::kTopLogits,
    .name = "top_logits",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor& logits = v.in(top_logits::kLogits);
      const std::int64_t count = v.attrs<TopLogitsAttrs>().count;
      QT_CHECK(count >= 1 && count <= top_logits::kMaxCount && count <= logits.shape.cols(),
               "the {} best of {}", count, logits.shape.cols());
      return {{"words", {logits.shape.rows(), count}, DType::kI32},
              {"log_probabilities", {logits.shape.rows(), count}, DType::kF32}};
    },
};

}  // namespace quintet
