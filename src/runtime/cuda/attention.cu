// Who computes an attention: the one place where that is decided.
#include "runtime/cuda/attention.h"

namespace quintet::cuda {

void attention(const OpContext& op) {
  plain_attention(op);
}

void attention_backward(const OpContext& op) {
  plain_attention_backward(op);
}

}  // namespace quintet::cuda
