// The MPI world and the device a test runs on (mpi_main.cpp).
#pragma once

#include "parallel/communicator.h"

namespace quintet::testing {

World& test_world();

// Whether QUINTET_TEST_DEVICE names the GPU; the CPU is the default.
bool tests_cuda();

}  // namespace quintet::testing
