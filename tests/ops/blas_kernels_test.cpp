#include "runtime/cpu/blas_kernels.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace quintet {
namespace {

TEST(BlasKernels, OnlyAProcessorTakenForAnOldOneGetsBetterOnes) {
  EXPECT_EQ(better_kernels("Prescott", true, true), "SkylakeX");
  EXPECT_EQ(better_kernels("Prescott", true, false), "Haswell");
  EXPECT_EQ(better_kernels("Nehalem", false, false), "") << "it is one";
  for (const char* good : {"Haswell", "Zen", "SkylakeX", "Cooperlake", "Sapphirerapids", "armv8"})
    EXPECT_EQ(better_kernels(good, true, true), "") << good;
}

TEST(BlasKernels, TheUsersChoiceStands) {
  ::setenv("OPENBLAS_CORETYPE", "Prescott", 1);
  EXPECT_EQ(better_blas_kernels(), "");
  ::unsetenv("OPENBLAS_CORETYPE");
}

}  // namespace
}  // namespace quintet
