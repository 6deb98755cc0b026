// Runs GoogleTest on every rank of an MPI world: all ranks run the same tests in the same order, so
// collectives meet; rank 0 reports, and any rank's failure is everybody's.
#include <gtest/gtest.h>

#include "parallel/communicator.h"
#include "tests/parallel/world.h"

namespace quintet::testing {

World& test_world() {
  static const std::unique_ptr<World> world = join_world().value();
  return *world;
}

}  // namespace quintet::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  auto& world = quintet::testing::test_world();
  if (world.rank() != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  const int result = RUN_ALL_TESTS();
  return world.minimum(result == 0 ? 1 : 0) == 1 ? 0 : 1;
}
