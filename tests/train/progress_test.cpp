// What a run tells while it runs, on a terminal and in a log.
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include "tests/support/temporary_folder.h"
#include "train/metrics.h"

namespace quintet {
namespace {

void show_steps(int descriptor, double seconds) {
  const int kept = ::dup(STDERR_FILENO);
  ::dup2(descriptor, STDERR_FILENO);
  {
    Progress progress(30, 10, 1 << 20);
    for (int step = 1; step <= 30; ++step) {
      StepMetrics metrics;
      metrics.step = step;
      metrics.loss = 5;
      metrics.seconds = seconds;
      metrics.tokens = 1000 * seconds;
      metrics.flops = 1e9;
      progress.step(metrics);
    }
    progress.finish();
  }
  ::dup2(kept, STDERR_FILENO);
  ::close(kept);
}

TEST(Progress, OneLineThatIsRedrawnOnATerminal) {
  int master = -1, slave = -1;
  struct winsize size = {24, 60, 0, 0};
  ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, &size), 0);
  show_steps(slave, 0.25);
  std::string text(1 << 16, '\0');
  text.resize(static_cast<std::size_t>(::read(master, text.data(), text.size())));
  ::close(slave);
  ::close(master);
  // A single end of line, at the end; and nothing wider than the terminal.
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_EQ(text.back(), '\n');
  std::size_t drawn = 0;
  for (std::size_t at = text.find("\r\033[K"); at != std::string::npos;) {
    const std::size_t next = text.find("\r\033[K", at + 1);
    EXPECT_LT(std::min(next, text.size() - 2) - at - 4, 60U);
    at = next;
    ++drawn;
  }
  EXPECT_EQ(drawn, 30U);
  EXPECT_NE(text.find("step 30/30"), std::string::npos) << text;
  EXPECT_NE(text.find("loss 5.0000  1000 tok/s  left 7 s"), std::string::npos) << text;
}

TEST(Progress, LinesInALog) {
  const TemporaryFolder folder;
  std::FILE* file = std::fopen((folder.path() / "log").c_str(), "w");
  show_steps(::fileno(file), 0.25);
  std::fclose(file);
  const std::string text = read_file(folder.path() / "log").value();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.rfind("step 10/30  loss 5.0000  1000 tok/s", 0), 0U) << text;
}

}  // namespace
}  // namespace quintet
