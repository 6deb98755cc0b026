// Which of its kernels OpenBLAS runs. It chooses by the processor's model number: a processor newer
// than the library is taken for one of 2004, and products take four to five times as long (Debian
// 12's 0.3.21 does so on the Xeons beside today's GPUs).
#pragma once

#include <string>
#include <string_view>

namespace quintet {

// The name of better kernels than `chosen` for a processor with these instructions; empty where
// there are none.
std::string better_kernels(std::string_view chosen, bool avx2, bool avx512);

// The same for this process: what the environment variable OPENBLAS_CORETYPE should have been when
// it was started. Empty where OpenBLAS chose well, or the user did.
std::string better_blas_kernels();

// What it runs, for people: "Haswell kernels of OpenBLAS, as OPENBLAS_CORETYPE says".
std::string blas_kernels_text();

// Sets that variable. Returns whether the process should be started again: OpenBLAS read it when it
// was loaded, before main.
bool set_better_blas_kernels();

}  // namespace quintet
