#include "runtime/cpu/blas_kernels.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include <cblas.h>
#include <fmt/format.h>

namespace quintet {

static constexpr const char* kChoice = "OPENBLAS_CORETYPE";

std::string better_kernels(std::string_view chosen, bool avx2, bool avx512) {
  // All that OpenBLAS has for processors without AVX2.
  static constexpr std::array<std::string_view, 20> kOld = {
      "Katmai", "Coppermine", "Northwood",   "Prescott",     "Banias",
      "Core2",  "Penryn",     "Nano",        "Dunnington",   "Nehalem",
      "Athlon", "Opteron",    "Barcelona",   "Opteron_SSE3", "Atom",
      "Bobcat", "Bulldozer",  "Sandybridge", "Piledriver",   "Steamroller"};
  if (!avx2 || std::find(kOld.begin(), kOld.end(), chosen) == kOld.end()) return "";
  return avx512 ? "SkylakeX" : "Haswell";
}

std::string better_blas_kernels() {
#ifdef __x86_64__
  if (std::getenv(kChoice) != nullptr) return "";
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return better_kernels(openblas_get_corename(), __builtin_cpu_supports("avx2"), avx512);
#else
  return "";
#endif
}

bool set_better_blas_kernels() {
  const std::string kernels = better_blas_kernels();
  return !kernels.empty() && ::setenv(kChoice, kernels.c_str(), 1) == 0;
}

std::string blas_kernels_text() {
  return fmt::format("{} kernels of OpenBLAS{}", openblas_get_corename(),
                     std::getenv(kChoice) == nullptr ? "" : fmt::format(", as {} says", kChoice));
}

}  // namespace quintet
