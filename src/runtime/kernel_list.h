// Every op kind that computes, with the name of its kernel: the one list behind each device's
// kernels.cpp. Communication is not here; executors carry it on streams of their own.
#pragma once

#define QT_FOR_EACH_KERNEL(X)                  \
  X(kEmbedding, embedding)                     \
  X(kEmbeddingBackward, embedding_backward)    \
  X(kRmsNorm, rms_norm)                        \
  X(kRmsNormBackward, rms_norm_backward)       \
  X(kQuantize, quantize)                       \
  X(kQuantizeWeights, quantize_weights)        \
  X(kMatmul, matmul)                           \
  X(kAttention, attention)                     \
  X(kAttentionBackward, attention_backward)    \
  X(kActivation, activation)                   \
  X(kActivationBackward, activation_backward)  \
  X(kDropout, dropout)                         \
  X(kAdd, add)                                 \
  X(kCountLabels, count_labels)                \
  X(kLinearCrossEntropy, linear_cross_entropy) \
  X(kSquaredNorm, squared_norm)                \
  X(kUpdateScale, update_scale)                \
  X(kAdamW, adamw)                             \
  X(kAdafactorSums, adafactor_sums)            \
  X(kAdafactorMoments, adafactor_moments)      \
  X(kAdafactorRms, adafactor_rms)              \
  X(kAdafactorApply, adafactor_apply)          \
  X(kZero, zero)                               \
  X(kSum, sum)                                 \
  X(kCachedAttention, cached_attention)        \
  X(kTopLogits, top_logits)                    \
  X(kCopy, copy)
