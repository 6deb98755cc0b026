// How often a run is looked at op by op.
#include "train/looks.h"

#include <gtest/gtest.h>

namespace quintet {
namespace {

// Plays a run in which a step takes `plain` seconds, and so much longer when looked at.
Looks run_with_looks(std::int64_t steps, double plain, double cost) {
  Looks looks(2);
  for (std::int64_t step = 2; step <= steps; ++step) {
    const bool due = looks.is_due(step);
    looks.add(plain + (due ? cost : 0), due);
  }
  return looks;
}

TEST(Looks, CostStaysBelowItsShareOfTheRun) {
  for (const double cost : {0.001, 0.01, 0.1, 0.5}) {
    const Looks looks = run_with_looks(5000, 0.2, cost);
    EXPECT_GE(looks.count(), 2) << cost;
    EXPECT_LE(looks.cost_share(), 0.005) << cost;
  }
}

TEST(Looks, FirstStepIsAlwaysSeen) {
  EXPECT_EQ(run_with_looks(5, 0.2, 10).count(), 1);
  EXPECT_GT(run_with_looks(5, 0.2, 10).cost_share(), 0.5);
}

TEST(Looks, FreeLooksAreStillNotTakenAtEveryStep) {
  const Looks looks = run_with_looks(1001, 0.2, 0);
  EXPECT_EQ(looks.count(), (1000 + Looks::kFewestSteps) / (Looks::kFewestSteps + 1));
  EXPECT_DOUBLE_EQ(looks.cost_share(), 0);
}

}  // namespace
}  // namespace quintet
