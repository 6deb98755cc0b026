#include "runtime/cpu/gemm.h"

#include <cblas.h>

namespace quintet::cpu {

void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
          float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
          float beta, float* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;
  const auto narrow = [](std::int64_t value) { return static_cast<blasint>(value); };
  cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
              transpose_b ? CblasTrans : CblasNoTrans, narrow(m), narrow(n), narrow(k), alpha, a,
              narrow(lda), b, narrow(ldb), beta, c, narrow(ldc));
}

}  // namespace quintet::cpu
