// The MPI world a test runs in (mpi_main.cpp).
#pragma once

#include "parallel/communicator.h"

namespace quintet::testing {

World& test_world();

}  // namespace quintet::testing
