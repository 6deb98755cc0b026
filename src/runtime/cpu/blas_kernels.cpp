#include "runtime/cpu/blas_kernels.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include <cblas.h>

namespace quintet {

std::string better_kernels(std::string_view chosen, bool avx2, bool avx512) {
  // All that OpenBLAS has for processors without AVX2.
  static constexpr std::array<std::string_view, 17> kOld = {
      "Katmai", "Coppermine", "Northwood", "Prescott", "Banias",     "Core2",
      "Penryn", "Dunnington", "Nehalem",   "Athlon",   "Opteron",    "Opteron_SSE3",
      "Bobcat", "Barcelona",  "Atom",      "Nano",     "Sandybridge"};
  if (!avx2 || std::find(kOld.begin(), kOld.end(), chosen) == kOld.end()) return "";
  return avx512 ? "SkylakeX" : "Haswell";
}

std::string better_blas_kernels() {
#ifdef __x86_64__
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr) return "";
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return better_kernels(openblas_get_corename(), __builtin_cpu_supports("avx2"), avx512);
#else
  return "";
#endif
}

}  // namespace quintet
