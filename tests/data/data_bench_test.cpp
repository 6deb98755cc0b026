// `quintet data bench` runs, measures everything it should, and cleans up. Its figures are for
// people.
#include <gtest/gtest.h>

#include "tests/data/models.h"
#include "tests/support/command.h"
#include "tests/support/folders.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

TEST(DataBench, MeasuresEverything) {
  const TemporaryFolder folder, text;
  put_file(text.path() / "lines.txt", sample_lines(3, 1 << 16));
  const testing::Outcome outcome = testing::run_shell(
      QUINTET_BINARY
      " data bench --vocabulary 2000 --megabytes 4 --rounds 1 --threads 2 --folder " +
      folder.path().string() + " --text " + (text.path() / "lines.txt").string());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  for (const char* part : {"one language  ", "many languages  ", "lines.txt  ", "2 threads: ",
                           "parse JSON", "write shards", "processor", "samples/s", "opens in"}) {
    EXPECT_TRUE(outcome.says(part)) << part << "\n" << outcome.output;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace quintet
