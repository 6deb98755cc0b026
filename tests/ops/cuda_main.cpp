// Runs the tests of a GPU binary, or says why it does not: exit status 77 is "skipped" to ctest.
#include <cstdio>

#include <gtest/gtest.h>

#include "runtime/executor.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const auto available = quintet::cuda_available(); !available.ok()) {
    std::printf("skipped: %s\n", available.error().message.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
