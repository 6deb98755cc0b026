#include "runtime/cpu/gemm.h"

#include <limits>

#include <cblas.h>

#include "base/parallel_for.h"

namespace quintet::cpu {
namespace {

// Tile edges fall on multiples of this, which the library's inner kernels like.
constexpr std::int64_t kEdge = 16;
// Products smaller than this are done before a second thread would have woken up.
constexpr std::int64_t kWorthSharing = 1 << 20;

struct Grid {
  std::int64_t rows, cols;
};

// Of all ways to cut C into `tiles` tiles, the one in which a tile reads least of A and B.
Grid best_grid(std::int64_t tiles, std::int64_t m, std::int64_t n) {
  Grid best{tiles, 1};
  double least = std::numeric_limits<double>::max();
  for (std::int64_t rows = 1; rows <= tiles; ++rows) {
    if (tiles % rows != 0) continue;
    const std::int64_t cols = tiles / rows;
    const double read = static_cast<double>(m) / static_cast<double>(rows) +
                        static_cast<double>(n) / static_cast<double>(cols);
    if (read < least) {
      least = read;
      best = {rows, cols};
    }
  }
  return best;
}

// Where part i of `parts` of a dim begins.
std::int64_t edge(std::int64_t size, std::int64_t i, std::int64_t parts) {
  return i == parts ? size : size * i / parts / kEdge * kEdge;
}

// While it lives, the library finds one thread to work with: it follows OpenMP's setting at every
// call, and with more than one it would start a team of its own and allocate memory for it.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() { omp_set_num_threads(before_); }

 private:
  int before_;
};

void serial(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
            const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta,
            float* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;
  const OneThread one;
  const auto narrow = [](std::int64_t value) { return static_cast<blasint>(value); };
  cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
              narrow(m), narrow(n), narrow(k), alpha, a, narrow(lda), b, narrow(ldb), beta, c,
              narrow(ldc));
}

}  // namespace

void gemm(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
          const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
          std::int64_t ldc) {
  const std::int64_t threads = m * n * k < kWorthSharing ? 1 : thread_count();
  if (threads == 1) return serial(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  const Grid grid = best_grid(threads, m, n);
  parallel_for(threads, 1, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t tile = first; tile < last; ++tile) {
      const std::int64_t row = tile / grid.cols, col = tile % grid.cols;
      const std::int64_t m0 = edge(m, row, grid.rows), m1 = edge(m, row + 1, grid.rows);
      const std::int64_t n0 = edge(n, col, grid.cols), n1 = edge(n, col + 1, grid.cols);
      serial(ta, tb, m1 - m0, n1 - n0, k, alpha, ta ? a + m0 : a + m0 * lda, lda,
             tb ? b + n0 * ldb : b + n0, ldb, beta, c + m0 * ldc + n0, ldc);
    }
  });
}

}  // namespace quintet::cpu
