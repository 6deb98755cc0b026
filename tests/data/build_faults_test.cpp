// Building a corpus while the disk fails.
#include "tests/data/build_fixture.h"
#include "tests/support/faulty_store.h"

namespace quintet {
namespace {

// Every single write fails once, as on a full disk: an error, no manifest, and the next run
// continues. It is also what a killed process leaves: nothing is written after the failure.
TEST_F(BuildTest, AFullDiskAtAnyWriteIsSurvived) {
  std::int64_t operations = 0;
  {
    const TemporaryFolder folder;
    FaultyStore store(INT64_MAX);
    BuildEnvironment environment;
    environment.files = &store;
    environment.checkpoint_seconds = 0.02;
    ASSERT_TRUE(build_corpus(options(folder.path() / "out"), environment).ok());
    operations = store.operations();
  }
  PhiloxSequence random(2, 2);
  // The first operations, the last ones, and some between.
  std::vector<std::int64_t> failures;
  for (std::int64_t i = 0; i < 6; ++i) failures.push_back(i);
  for (std::int64_t i = 1; i <= 24; ++i) failures.push_back(operations - i);
  for (int i = 0; i < 8; ++i)
    failures.push_back(random.below(static_cast<std::uint32_t>(operations)));
  for (const std::int64_t failure : failures) {
    const TemporaryFolder folder;
    FaultyStore store(std::max<std::int64_t>(failure, 0));
    BuildEnvironment environment;
    environment.files = &store;
    environment.checkpoint_seconds = 0.02;
    const auto broken = build_corpus(options(folder.path() / "out"), environment);
    if (!broken.ok()) {
      EXPECT_EQ(broken.error().code, ErrorCode::kIo) << broken.error().message;
      EXPECT_NE(broken.error().message.find("No space left"), std::string::npos);
    }
    const auto report = build_corpus(options(folder.path() / "out"), {});
    ASSERT_TRUE(report.ok()) << "after failure " << failure << ": " << report.error().message;
    expect_same(folder.path() / "out", fmt::format("failure at {} of {}", failure, operations));
  }
}

}  // namespace
}  // namespace quintet
