// Which way to multiply matrices on the CPU: our tiles over a serial OpenBLAS, OpenBLAS's own
// threads, or oneDNN, on the shapes of a step. Prints GFLOP/s and the ratio to the first; the
// reason for runtime/cpu/gemm.cpp.
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include <cblas.h>
#include <fmt/format.h>
#include <omp.h>

#include "base/clock.h"
#include "base/philox.h"
#include "runtime/cpu/gemm.h"

#if defined(QUINTET_BENCH_ONEDNN)
#include <dnnl.h>
#endif

namespace {

struct Shape {
  const char* what;
  bool ta, tb;
  std::int64_t m, n, k;
};

// mini at 2048 source tokens, tiny, and a head of the mT5 vocabulary.
constexpr Shape kShapes[] = {
    {"mini qkv", false, true, 2048, 768, 256},
    {"mini attention out", false, true, 2048, 256, 256},
    {"mini ff in", false, true, 2048, 1280, 256},
    {"mini ff out", false, true, 2048, 256, 640},
    {"mini d(ff in)", false, false, 2048, 256, 1280},
    {"mini dW ff in", true, false, 1280, 256, 2048},
    {"mini dW out", true, false, 256, 256, 2048},
    {"mini logits", false, true, 512, 4096, 256},
    {"tiny qkv", false, true, 512, 192, 64},
    {"tiny dW", true, false, 192, 64, 512},
    {"mT5 logits", false, true, 64, 250112, 512},
};

template <class Run>
double seconds_of(const Shape& s, const Run& run) {
  const double flops =
      2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  const int inner = std::max(1, static_cast<int>(5e7 / flops));
  double best = 1e30;
  for (int i = 0; i < 15; ++i) {
    const double start = quintet::now();
    for (int j = 0; j < inner; ++j) run();
    best = std::min(best, (quintet::now() - start) / inner);
  }
  return best;
}

}  // namespace

int main() {
  const int threads = omp_get_max_threads();
  fmt::print("GFLOP/s with {} threads, best of 15\n", threads);
  fmt::print("{:<20} {:>18} {:>8} {:>18} {:>14}\n", "product", "m x n x k", "ours",
             "OpenBLAS threads", "oneDNN");
  double log_blas = 0;
  [[maybe_unused]] double log_dnn = 0;  // only where oneDNN was found
  for (const Shape& s : kShapes) {
    const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
    std::vector<float> a(size(s.m * s.k)), b(size(s.n * s.k)), c(size(s.m * s.n));
    quintet::PhiloxSequence random(1, 1);
    for (float& x : a) x = static_cast<float>(random.uniform() - 0.5);
    for (float& x : b) x = static_cast<float>(random.uniform() - 0.5);
    const std::int64_t lda = s.ta ? s.m : s.k, ldb = s.tb ? s.k : s.n;
    const double ours = seconds_of(s, [&] {
      quintet::cpu::gemm(s.ta, s.tb, s.m, s.n, s.k, 1, a.data(), lda, b.data(), ldb, 0, c.data(),
                         s.n);
    });
    openblas_set_num_threads(threads);
    const double blas = seconds_of(s, [&] {
      cblas_sgemm(CblasRowMajor, s.ta ? CblasTrans : CblasNoTrans, s.tb ? CblasTrans : CblasNoTrans,
                  static_cast<blasint>(s.m), static_cast<blasint>(s.n), static_cast<blasint>(s.k),
                  1, a.data(), static_cast<blasint>(lda), b.data(), static_cast<blasint>(ldb), 0,
                  c.data(), static_cast<blasint>(s.n));
    });
    openblas_set_num_threads(1);
    omp_set_num_threads(threads);
    const double rate =
        2e-9 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
    std::string dnn = "not found";
#if defined(QUINTET_BENCH_ONEDNN)
    const double onednn = seconds_of(s, [&] {
      dnnl_sgemm(s.ta ? 'T' : 'N', s.tb ? 'T' : 'N', s.m, s.n, s.k, 1, a.data(), lda, b.data(), ldb,
                 0, c.data(), s.n);
    });
    dnn = fmt::format("{:.0f} ({:.2f}x)", rate / onednn, ours / onednn);
    log_dnn += std::log(ours / onednn);
#endif
    log_blas += std::log(ours / blas);
    fmt::print("{:<20} {:>18} {:>8.0f} {:>18} {:>14}\n", s.what,
               fmt::format("{} x {} x {}", s.m, s.n, s.k), rate / ours,
               fmt::format("{:.0f} ({:.2f}x)", rate / blas, ours / blas), dnn);
  }
  const auto count = static_cast<double>(std::size(kShapes));
  fmt::print("geometric mean against ours: OpenBLAS threads {:.2f}x", std::exp(log_blas / count));
#if defined(QUINTET_BENCH_ONEDNN)
  fmt::print(", oneDNN {:.2f}x", std::exp(log_dnn / count));
#endif
  fmt::print("\n");
  return 0;
}
