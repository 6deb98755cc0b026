#include "base/check.h"
#include "program/op_decl.h"
#include "runtime/cuda/kernel.h"

namespace quintet::cuda {

// Each is defined in the file of its kind.
void embedding(const OpContext&);
void embedding_backward(const OpContext&);
void rms_norm(const OpContext&);
void rms_norm_backward(const OpContext&);
void matmul(const OpContext&);
void attention(const OpContext&);
void attention_backward(const OpContext&);
void activation(const OpContext&);
void activation_backward(const OpContext&);
void dropout(const OpContext&);
void add(const OpContext&);
void count_labels(const OpContext&);
void linear_cross_entropy(const OpContext&);
void squared_norm(const OpContext&);
void update_scale(const OpContext&);
void adamw(const OpContext&);
void adafactor_sums(const OpContext&);
void adafactor_moments(const OpContext&);
void adafactor_rms(const OpContext&);
void adafactor_apply(const OpContext&);
void zero(const OpContext&);
void sum(const OpContext&);

Kernel kernel_of(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbedding:
      return embedding;
    case OpKind::kEmbeddingBackward:
      return embedding_backward;
    case OpKind::kRmsNorm:
      return rms_norm;
    case OpKind::kRmsNormBackward:
      return rms_norm_backward;
    case OpKind::kMatmul:
      return matmul;
    case OpKind::kAttention:
      return attention;
    case OpKind::kAttentionBackward:
      return attention_backward;
    case OpKind::kActivation:
      return activation;
    case OpKind::kActivationBackward:
      return activation_backward;
    case OpKind::kDropout:
      return dropout;
    case OpKind::kAdd:
      return add;
    case OpKind::kCountLabels:
      return count_labels;
    case OpKind::kLinearCrossEntropy:
      return linear_cross_entropy;
    case OpKind::kSquaredNorm:
      return squared_norm;
    case OpKind::kUpdateScale:
      return update_scale;
    case OpKind::kAdamW:
      return adamw;
    case OpKind::kAdafactorSums:
      return adafactor_sums;
    case OpKind::kAdafactorMoments:
      return adafactor_moments;
    case OpKind::kAdafactorRms:
      return adafactor_rms;
    case OpKind::kAdafactorApply:
      return adafactor_apply;
    case OpKind::kZero:
      return zero;
    case OpKind::kSum:
      return sum;
    case OpKind::kAllReduce:
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kSend:
    case OpKind::kRecv:
      return nullptr;
  }
  QT_CHECK(false, "no CUDA kernel for op kind {}", static_cast<int>(kind));
}

}  // namespace quintet::cuda
