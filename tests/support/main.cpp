// GoogleTest's main for programs that multiply matrices: with the kernels that quintet would
// choose, as a test of five minutes takes one and a half on processors that OpenBLAS does not know.
#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/cpu/blas_kernels.h"

int main(int argc, char** argv) {
  if (quintet::set_better_blas_kernels()) ::execv("/proc/self/exe", argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
