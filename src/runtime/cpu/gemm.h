// The one way to the BLAS library: row-major single-precision matrix products.
//
// The library runs on one thread; the team is ours. A product is cut into tiles of C, one a thread,
// never along the inner dim: faster than OpenBLAS's own threads on a model's shapes (bench/gemm),
// no allocation at each call, and every element is summed in the same order whatever the number of
// threads.
#pragma once

#include <cstdint>

namespace quintet::cpu {

// C = alpha op(A) op(B) + beta C; C is m x n, the inner size k; ld* are row strides. Uses the
// OpenMP team, or only the calling thread inside a parallel region.
void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
          float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
          float beta, float* c, std::int64_t ldc);

}  // namespace quintet::cpu
