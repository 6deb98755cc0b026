// Runs GoogleTest on every rank of an MPI world: all ranks run the same tests in the same order, so
// collectives meet; rank 0 reports, others only what failed, and any rank's failure is everybody's.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "parallel/communicator.h"
#include "runtime/executor.h"
#include "tests/parallel/world.h"

namespace quintet::testing {

World& test_world() {
  static const std::unique_ptr<World> world = join_world().value();
  return *world;
}

bool tests_cuda() {
  const char* device = std::getenv("QUINTET_TEST_DEVICE");
  return device != nullptr && std::string(device) == "cuda";
}

class FailuresOnly : public ::testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(int rank) : rank_(rank) {}

 private:
  void OnTestStart(const ::testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d, %s: %s:%d: %s\n", rank_, test_.c_str(),
                 result.file_name() != nullptr ? result.file_name() : "?", result.line_number(),
                 result.summary());
  }

  std::string test_;
  const int rank_;
};

}  // namespace quintet::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (quintet::testing::tests_cuda()) {
    if (const auto available = quintet::cuda_available(); !available.ok()) {
      std::printf("skipped: %s\n", available.error().message.c_str());
      return 77;
    }
  }
  auto& world = quintet::testing::test_world();
  if (world.rank() != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new quintet::testing::FailuresOnly(world.rank()));
  }
  const int result = RUN_ALL_TESTS();
  return world.minimum(result == 0 ? 1 : 0) == 1 ? 0 : 1;
}
