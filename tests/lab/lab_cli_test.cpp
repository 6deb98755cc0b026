// study analyse, study report and report as users meet them; and the pages in a real browser, where
// there is one.
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "tests/lab/study_fixture.h"
#include "tests/support/command.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

using testing::Outcome;
using testing::quintet;
using testing::run_shell;
using testing::StudyFixture;

TEST(StudyCli, AnalysesACsvFile) {
  const std::string table = QUINTET_SOURCE_DIR "/tests/lab/fixtures/unbalanced.csv";
  const std::string call = "study analyse " + table +
                           " --response seconds --factors zero,tp,bandwidth "
                           "--numeric bandwidth --block block";
  const Outcome text = quintet(call);
  EXPECT_EQ(text.exit_code, 0) << text.output;
  EXPECT_TRUE(text.says("zero 2 is faster below bandwidth 4.6")) << text.output;
  EXPECT_TRUE(text.says("zero 1 together with tp 2: not all four combinations ran"));
  const Outcome json = quintet(call + " --where tp=1 --json");
  ASSERT_EQ(json.exit_code, 0) << json.output;
  const Json parsed = parse_json(json.output, "output").value();
  EXPECT_EQ(parsed.at("constant_factors").at(0), "tp");
  EXPECT_EQ(quintet("study analyse " + table).exit_code, 2);
  const Outcome column = quintet("study analyse " + table + " --response second --factors zero");
  EXPECT_EQ(column.exit_code, 2);
  EXPECT_TRUE(column.says("did you mean \"seconds\"")) << column.output;
  EXPECT_EQ(quintet("study analyse /no/such/file.csv --response a --factors b").exit_code, 3);
  const Outcome nowhere = quintet("study analyse /no/such/folder");
  EXPECT_EQ(nowhere.exit_code, 3);
  EXPECT_TRUE(nowhere.says("no such file or folder")) << nowhere.output;
}

TEST(StudyCli, AnalysesAndReportsAStudy) {
  const TemporaryFolder folder;
  {
    StudyFixture fixture((folder.path() / "study.sqlite").string());
    fixture.fill();
  }
  const std::string place = folder.path().string();
  const Outcome text = quintet("study analyse " + place);
  EXPECT_EQ(text.exit_code, 0) << text.output;
  EXPECT_TRUE(text.says("Predictions against measurements, 15 settings")) << text.output;
  EXPECT_EQ(quintet("study analyse " + place + " --response memory_bytes --factors parallel.zero")
                .exit_code,
            0);
  const Outcome wrong = quintet("study analyse " + place + " --factors zeros");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_TRUE(wrong.says("did you mean \"zero\"")) << wrong.output;
  const Outcome response = quintet("study analyse " + place + " --response speed");
  EXPECT_EQ(response.exit_code, 2);
  for (const auto& [options, says] : std::vector<std::pair<std::string, std::string>>{
           {"--numeric nonsense", "has no factor \"nonsense\""},
           {"--factors zero --numeric nodes", "numeric nodes is none of the factors zero"},
           {"--factors zero,parallel.zero", "factor zero is named twice"}}) {
    const Outcome refused = quintet("study analyse " + place + " " + options);
    EXPECT_EQ(refused.exit_code, 2) << options;
    EXPECT_TRUE(refused.says(says)) << refused.output;
  }
  for (const auto& [options, says] : std::vector<std::pair<std::string, std::string>>{
           {"--where zero=7", "none has zero=7; the study has 45 done, 3 impossible"},
           {"--where zero=3 --where nodes=4 --where bandwidth=8gbit",
            "3 impossible with zero=3 and nodes=4 and bandwidth=8gbit; run 16 is impossible: "
            "needs <8> ranks"}}) {
    const Outcome none = quintet("study analyse " + place + " " + options);
    EXPECT_EQ(none.exit_code, 3) << options;
    EXPECT_TRUE(none.says("no rows to analyse") && none.says(says)) << none.output;
  }
  const Outcome page = quintet("study report " + place);
  EXPECT_EQ(page.exit_code, 0) << page.output;
  EXPECT_TRUE(page.says("report.html"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "report.html"));
  EXPECT_EQ(quintet("study report " + place + "/nowhere").exit_code, 3);
  EXPECT_EQ(quintet("report " + place).exit_code, 3);
  EXPECT_EQ(quintet("study report " + place + " --out /no/such/folder/x.html").exit_code, 7);
}

// What Chromium says when it opens a page: its console, the finished page, the requests it made.
struct Visit {
  Outcome outcome;
  std::string requests;
  // Chromium asks its makers for this and that; a page in a file asks as "null".
  bool page_asked() const { return requests.find("\"initiator\":\"null\"") != std::string::npos; }
};
Visit visit(const std::string& folder, const std::string& page) {
  Visit visit;
  visit.outcome = run_shell(fmt::format(
      "HOME={0} timeout 120 chromium --headless --no-sandbox --disable-gpu --no-first-run "
      "--disable-background-networking --disable-component-update --disable-dev-shm-usage "
      "--user-data-dir={0}/profile --enable-logging=stderr --log-net-log={0}/net.json "
      "--window-size=390,800 --dump-dom file://{0}/{1}",
      folder, page));
  visit.requests = read_file(folder + "/net.json").value();
  return visit;
}

TEST(Browser, PagesRunWithoutErrorsAndRequests) {
  if (run_shell("command -v chromium").exit_code != 0) GTEST_SKIP() << "no chromium";
  const TemporaryFolder folder;
  {
    StudyFixture fixture((folder.path() / "study.sqlite").string());
    fixture.fill();
  }
  const std::string place = folder.path().string();
  ASSERT_EQ(quintet("study report " + place).exit_code, 0);
  const Visit report = visit(place, "report.html");
  ASSERT_EQ(report.outcome.exit_code, 0) << report.outcome.output.substr(0, 2000);
  EXPECT_TRUE(report.outcome.says("id=\"theme\"")) << "the script did not run";
  EXPECT_TRUE(report.outcome.says("<th scope=\"col\"><button type=\"button\">term</button>"));
  EXPECT_FALSE(report.outcome.says("CONSOLE")) << report.outcome.output.substr(0, 2000);
  EXPECT_FALSE(report.page_asked());
  // A page that does ask is found out, and so is one that complains.
  ASSERT_TRUE(write_file(folder.path() / "asks.html",
                         "<img src=\"http://127.0.0.1:1/x\"><script>console.error(1)</script>")
                  .ok());
  const Visit asks = visit(place, "asks.html");
  EXPECT_TRUE(asks.page_asked());
  EXPECT_TRUE(asks.outcome.says("CONSOLE"));
}

}  // namespace
}  // namespace quintet
