// What a run tells while it runs, on a terminal and in a log.
#include <algorithm>
#include <thread>

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include "base/files.h"
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
  // The reader runs beside the writer: a terminal hands over what it has in pieces, and holds only
  // so much.
  std::string text;
  std::thread reader([&] {
    char piece[4096];
    for (ssize_t got = 0; (got = ::read(master, piece, sizeof piece)) > 0;)
      text.append(piece, static_cast<std::size_t>(got));
  });
  show_steps(slave, 0.25);
  ::close(slave);  // the reader's end of file, once it has all
  reader.join();
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

TEST(Metrics, SpikesAndSmoothedValidationsSurviveAResume) {
  const auto write = [](MetricsFile& file, std::int64_t from, std::int64_t to) {
    for (std::int64_t step = from; step <= to; ++step) {
      StepMetrics metrics;
      metrics.step = step;
      metrics.loss = step == 60 ? 9 : 4;
      metrics.grad_norm = step == 70 ? 11 : 1;
      metrics.seconds = 1;
      ValidationResult validation;
      validation.total = {step == 20 ? 5.0 : 6.0, 1, 1, 0};
      const bool validates = step % 20 == 0;
      ASSERT_TRUE(file.append(metrics, validates ? &validation : nullptr).ok());
    }
  };
  const TemporaryFolder whole, parts;
  {
    auto file = MetricsFile::open(whole.path(), 0);
    write(file.value(), 1, 80);
  }
  {
    auto file = MetricsFile::open(parts.path(), 0);
    write(file.value(), 1, 64);
  }
  auto again = MetricsFile::open(parts.path(), 55);
  write(again.value(), 56, 80);
  const std::string text = read_file(whole.path() / "metrics.jsonl").value();
  EXPECT_EQ(read_file(parts.path() / "metrics.jsonl").value(), text);
  // 5, then 5 + 0.3, then 5.3 + 0.3 * 0.7.
  for (const char* part :
       {"\"smoothed\":5.0}", "\"smoothed\":5.3}", "\"smoothed\":5.51}",
        "\"spike\":\"loss 9 is 2.2 times", "\"spike\":\"gradient norm 11 is 11.0"})
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
  std::size_t spikes = 0;
  for (std::size_t at = text.find("\"spike\""); at != std::string::npos;
       at = text.find("\"spike\"", at + 1))
    ++spikes;
  EXPECT_EQ(spikes, 2U);
}

}  // namespace
}  // namespace quintet
