// The pages: what is in them, what never may be, and what damaged files do to them.
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "lab/plot/chart.h"
#include "lab/plot/markup.h"
#include "lab/report/figures.h"
#include "lab/report/page.h"
#include "lab/report/run_report.h"
#include "lab/report/study_data.h"
#include "lab/report/study_report.h"
#include "lab/report/trace_line.h"
#include "tests/lab/markup_check.h"
#include "tests/lab/study_fixture.h"
#include "tests/support/mutate.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

using testing::markup_error;
using testing::StudyFixture;

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Nothing that could make a browser ask for anything.
void expect_self_contained(const std::string& html) {
  EXPECT_EQ(markup_error(html), "");
  for (const char* part : {"http:", "https:", " src=", "href=", "url(", "@import", "<link",
                           "<iframe", "<img", "<object", "NaN", "\"nan", "\"inf", "\"-nan"}) {
    EXPECT_FALSE(holds(html, part)) << part;
  }
}

TEST(Markup, EverythingFromOutsideIsEscaped) {
  EXPECT_EQ(escape_markup("<a href=\"x\">'&'</a>"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(escape_markup("a\xff"
                          "b\x01"
                          "c\n"),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd"
            "c\n");
  EXPECT_EQ(escape_markup("\xe2\x82\xac"), "\xe2\x82\xac");
}

TEST(Scale, TicksAreRoundAndInRange) {
  const Scale linear = Scale::linear(0.13, 9.7);
  EXPECT_EQ(linear.low(), 0);
  EXPECT_EQ(linear.high(), 10);
  std::vector<double> at;
  for (const Tick& tick : linear.ticks(5, short_number)) at.push_back(tick.value);
  EXPECT_EQ(at, (std::vector<double>{0, 2, 4, 6, 8, 10}));
  for (const auto& [low, high] : {std::pair{1e-4, 3.0}, std::pair{0.9, 1.1}, std::pair{5e8, 1e10},
                                  std::pair{2.0, 2.0}, std::pair{1e-9, 1e9}}) {
    const Scale scale = Scale::logarithmic(low, high);
    const auto ticks = scale.ticks(6, short_number);
    EXPECT_GE(ticks.size(), 2u) << low << " " << high;
    EXPECT_LE(ticks.size(), 14u) << low << " " << high;
    for (const Tick& tick : ticks) {
      EXPECT_GE(tick.value, scale.low() * 0.99999);
      EXPECT_LE(tick.value, scale.high() * 1.00001);
    }
  }
  const Scale flat = Scale::linear(3, 3);
  EXPECT_LT(flat.low(), 3);
  EXPECT_GT(flat.high(), 3);
  EXPECT_EQ(short_number(0.25), "0.25");
  EXPECT_EQ(short_number(12000), "12k");
  EXPECT_EQ(short_seconds(0.25), "250 ms");
  EXPECT_EQ(short_bytes(1536.0 * 1024 * 1024), "1.5 GiB");
}

TEST(Charts, AreWellFormedWhateverTheyShow) {
  XyChart xy;
  xy.title = "\"<hostile> & title";
  xy.x = {.label = "</text>", .logarithmic = true};
  xy.y = {.label = "y", .logarithmic = true};
  Series series;
  series.name = "<script>";
  series.points = {{1, 2, 1.5, 2.5, "<b>"}, {2, 3, 2.5, 3.5, ""}, {4, std::nan(""), 1, 2, ""}};
  xy.series = {series, {}};
  xy.marks = {{1.5, 1.2, 1.9, "<1.5>", "&"}};
  xy.diagonal = true;
  xy.level = 2;
  BarChart bars;
  bars.parts = {"<p>", "q"};
  bars.bars = {{.label = "<group>", .heading = true},
               {.label = std::string(200, 'w'), .parts = {1, 2}, .value = "<3>"},
               {.label = "zero", .parts = {0, 0}}};
  TimeLine line;
  line.rows = {"<compute>"};
  line.kinds = {"<k>"};
  line.spans = {{0, 0, 0, 1, "<tip>"}, {0, 0, 1, 1, ""}};
  for (const double width : {340.0, 860.0}) {
    for (const std::string& svg :
         {draw(xy, width), draw(bars, width), draw(line, width), draw(XyChart{}, width),
          draw(BarChart{}, width), draw(TimeLine{}, width)}) {
      EXPECT_EQ(markup_error(svg), "") << svg;
      EXPECT_TRUE(holds(svg, "role=\"img\" aria-label="));
      for (const char* part : {"nan", "inf"}) EXPECT_FALSE(holds(svg, part)) << svg;
    }
  }
  EXPECT_TRUE(holds(draw(xy, 860), "<title>&lt;b&gt;</title>"));
}

// Intervals from few runs are as wide as numbers go, and wider.
TEST(Charts, IntervalsWithoutEndStayInsideThePlot) {
  constexpr double kInf = INFINITY;
  for (const auto& [low, high] :
       {std::pair{0.0, kInf}, std::pair{1e-200, 1e200}, std::pair{1.0, kInf}, std::pair{0.0, 3.0},
        std::pair{5e-324, 1.7e308}, std::pair{std::nan(""), 3.0}}) {
    for (const bool logarithmic : {false, true}) {
      for (const bool band : {false, true}) {
        XyChart chart;
        chart.y.logarithmic = logarithmic;
        chart.series = {
            {.name = "", .points = {{1, 2, low, high, ""}, {2, 1, 0.5, 2, ""}}, .band = band}};
        BarChart bars;
        bars.parts = {"p"};
        bars.bars = {{.label = "b", .parts = {2}, .low = low, .high = high}};
        for (const std::string& svg : {draw(chart, 860), draw(bars, 860)}) {
          for (const char* part : {"nan", "inf"}) EXPECT_FALSE(holds(svg, part)) << svg;
        }
      }
    }
  }
  XyChart chart;
  chart.y.logarithmic = true;
  chart.series = {{.name = "", .points = {{1, 2, 0, kInf, ""}, {2, 1, 0.5, 4, ""}}}};
  std::size_t bars = 0;
  const std::string svg = draw(chart, 860);
  for (std::size_t at = 0; (at = svg.find("\"eb ", at)) != std::string::npos; ++at) ++bars;
  EXPECT_EQ(bars, 2u) << "one of them from edge to edge";
}

TEST(Charts, LabelsDoNotOverlap) {
  XyChart chart;
  for (int i = 0; i < 12; ++i) {
    chart.x.ticks.push_back({static_cast<double>(i), fmt::format("a long level {}", i)});
  }
  Series series;
  for (int i = 0; i < 12; ++i) series.points.push_back({static_cast<double>(i), 1.0 + i, 1, 2, ""});
  chart.series = {series};
  const std::string svg = draw(chart, 340);
  std::size_t labels = 0;
  for (std::size_t at = 0; (at = svg.find("a long level", at)) != std::string::npos; ++at) ++labels;
  EXPECT_GE(labels, 2u);
  EXPECT_LE(labels, 4u);  // of about 90 pixels each
}

TEST(Figures, BreakdownsAreJoinedButAddUp) {
  std::vector<Breakdown> rows(2);
  for (int i = 0; i < 12; ++i) {
    rows[0].emplace_back(fmt::format("part {}", i), 1.0 + i);
    rows[1].emplace_back(fmt::format("part {}", i), i == 3 ? 1.0 : 0.001);
  }
  const StackedParts stacked = stacked_parts(rows);
  EXPECT_LE(stacked.names.size(), kColours);
  EXPECT_EQ(stacked.names.back(), "other");
  double sum = 0;
  for (const double part : stacked.rows[0]) sum += part;
  EXPECT_NEAR(sum, 78, 1e-9);
}

TEST(StudyReport, TellsTheStudy) {
  const TemporaryFolder folder;
  {
    StudyFixture fixture((folder.path() / "study.sqlite").string());
    fixture.fill();
  }
  const auto study = read_study(folder.path());
  ASSERT_TRUE(study.ok()) << study.error().message;
  EXPECT_EQ(study.value().runs.size(), 48u);
  EXPECT_EQ(study.value().factors[0].levels, (std::vector<std::string>{"0", "3"}));
  EXPECT_EQ(study.value().runs[0].beside.size(), 1u);
  ASSERT_TRUE(write_file(folder.path() / "trace.json",
                         R"({"traceEvents":[{"ph":"M","pid":0,"tid":0,"name":"thread_name",)"
                         R"("args":{"name":"compute"}},{"ph":"X","pid":0,"tid":0,"name":"matmul",)"
                         R"("cat":"compute","ts":10,"dur":5,"args":{"step":3}}]})")
                  .ok());
  const auto page = study_report(folder.path());
  ASSERT_TRUE(page.ok()) << page.error().message;
  const std::string& html = page.value();
  expect_self_contained(html);
  for (const char* part :
       {"What does sharding cost on slow networks?", "The answer turns: zero 0 is faster below",
        "Where the time goes", "Predicted against measured", "Memory against time",
        "needs &lt;8&gt; ranks", "quintet launch -n 2 -- train --set parallel.zero=3", "490 Mbit/s",
        "Noise floor", "Step 3 on rank 0", "What more nodes bring", "lost mostly to exposed data",
        "What choosing by prediction costs"}) {
    EXPECT_TRUE(holds(html, part)) << part;
  }
  EXPECT_EQ(study_report(folder.path()).value(), html);  // the same study, the same page
}

TEST(StudyReport, HostileTextsStayTexts) {
  const TemporaryFolder folder;
  {
    StudyFixture fixture((folder.path() / "study.sqlite").string());
    fixture.fill();
    fixture.execute("UPDATE study SET value = '</title><script>alert(1)</script>' || x'ff'");
    fixture.execute(
        "UPDATE runs SET command = '<img src=x onerror=alert(1)>', reason = '\"><svg onload=x>'");
  }
  const auto page = study_report(folder.path());
  ASSERT_TRUE(page.ok()) << page.error().message;
  EXPECT_EQ(markup_error(page.value()), "");
  EXPECT_FALSE(holds(page.value(), "<script>alert"));
  EXPECT_FALSE(holds(page.value(), "<img"));
  EXPECT_FALSE(holds(page.value(), "<svg onload"));
}

TEST(StudyReport, WhatIsNoStudyIsRefused) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& expected) {
    const auto page = study_report(folder.path());
    ASSERT_FALSE(page.ok());
    EXPECT_EQ(page.error().code, ErrorCode::kBadInput);
    EXPECT_TRUE(holds(page.error().message, expected)) << page.error().message;
  };
  refused("there is no study here");
  ASSERT_TRUE(write_file(folder.path() / "study.sqlite", "not a database, but long enough").ok());
  refused("cannot be read as the store of a study");
  std::filesystem::remove(folder.path() / "study.sqlite");
  StudyFixture fixture((folder.path() / "study.sqlite").string());
  refused("no rows to analyse: the study has none");
  fixture.fill();
  fixture.execute("UPDATE runs SET status = 'planned'");
  refused("no rows to analyse: 48 planned");
  fixture.execute("UPDATE runs SET status = 'failed', reason = 'killed' WHERE id < 41");
  refused("no rows to analyse: 40 failed, 8 planned; run 1 is failed: killed");
  fixture.execute("UPDATE runs SET status = 'done', settings = '{\"bandwidth\":\"3gbit\"}'");
  refused("parallel.zero is missing");
  fixture.execute(
      R"(UPDATE runs SET settings = '{"parallel.zero":9,"bandwidth":"1gbit","nodes":2}')");
  refused("none of the study's levels");
  fixture.execute("UPDATE factors SET levels = '[0,'");
  refused("not valid JSON");
}

TEST(StudyReport, DamagedStoresAreReadOrRefused) {
  const TemporaryFolder folder;
  const Path file = folder.path() / "study.sqlite";
  {
    StudyFixture fixture(file.string());
    fixture.fill();
  }
  const std::string bytes = read_file(file).value();
  PhiloxSequence random(5, 5);
  for (int round = 0; round < 60; ++round) {
    ASSERT_TRUE(write_file(file, mutate(bytes, random)).ok());
    const auto page = study_report(folder.path());
    EXPECT_EQ(page.ok() ? markup_error(page.value()) : "", "");
  }
}

TEST(TimeLines, OfOddTraces) {
  EXPECT_FALSE(parse_time_line("{}", "t").ok());
  EXPECT_FALSE(parse_time_line("{\"traceEvents\":[]}", "t").ok());
  EXPECT_FALSE(parse_time_line("[1,2", "t").ok());
  const std::string trace =
      R"({"traceEvents":[{"ph":"X","pid":1,"tid":2,"name":"a","cat":"zero","ts":1,"dur":2,)"
      R"("args":{"step":4}},{"ph":"X","pid":0,"tid":0,"name":"b","ts":5,"dur":2,"args":{"step":4}},)"
      R"({"ph":"X","pid":0,"tid":1,"name":"c","ts":7,"dur":1,"args":{"step":5}}]})";
  const auto line = parse_time_line(trace, "t");
  ASSERT_TRUE(line.ok());
  ASSERT_EQ(line.value().spans.size(), 1u);  // rank 0, step 4
  EXPECT_NEAR(line.value().spans[0].end, 2e-6, 1e-12);
  PhiloxSequence random(6, 6);
  for (int round = 0; round < 3000; ++round) {
    const auto any = parse_time_line(mutate(trace, random), "t");
    EXPECT_EQ(any.ok() ? markup_error(draw(any.value(), 340)) : "", "");
  }
}

TEST(RunReport, OneRunAndSeveral) {
  const TemporaryFolder folder;
  std::string metrics;
  for (int step = 1; step <= 900; ++step) {
    metrics += fmt::format(
        R"({{"step":{},"loss":{},"grad_norm":{},"lr":{},"seconds":0.5,"data_seconds":0.01,"tokens_per_second":{}}})"
        "\n",
        step, 10.0 / std::sqrt(step), 1 + 1.0 / step, 1e-4 * std::min(step, 100), 2000 + step % 7);
  }
  metrics +=
      R"({"step":900,"loss":0.3,"validation":{"loss":0.4321,"bits_per_byte":1.5,"languages":{"d<e":{"loss":0.4567,"sequences":7},"x":3}}})"
      "\n"
      R"({"step":900,"loss":0.3,"validation":7})"
      "\n";
  metrics += "{\"step\": 901, \"loss\": null}\nnot json\n{\"step\":";
  const std::string summary =
      R"({"model":"mini <x>","layout":"dp 2","steps":900,"step_seconds":0.5,"final_loss":0.33,"ranks":[]})";
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directory(folder.path() / name);
    ASSERT_TRUE(write_file(folder.path() / name / "metrics.jsonl", metrics).ok());
  }
  ASSERT_TRUE(write_file(folder.path() / "a" / "summary.json", summary).ok());
  const auto one = run_report({folder.path() / "a/"});
  ASSERT_TRUE(one.ok()) << one.error().message;
  expect_self_contained(one.value());
  for (const char* part :
       {"mini &lt;x&gt;", "Loss", "Learning rate", "Gradient norm", "Throughput", "Validation loss",
        "Bits per byte", "d&lt;e", "0.4567", "2 lines of metrics.jsonl could not be read"}) {
    EXPECT_TRUE(holds(one.value(), part)) << part;
  }
  EXPECT_LT(one.value().size(), 400000u);  // curves are thinned out
  const auto two = run_report({folder.path() / "a", folder.path() / "b"});
  ASSERT_TRUE(two.ok()) << two.error().message;
  expect_self_contained(two.value());
  EXPECT_TRUE(holds(two.value(), "2 runs side by side"));
  EXPECT_TRUE(holds(two.value(), "the run has not ended"));
  const auto none = run_report({folder.path()});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kBadInput);
  ASSERT_TRUE(write_file(folder.path() / "b" / "metrics.jsonl", "").ok());
  EXPECT_FALSE(run_report({folder.path() / "b"}).ok());
}

}  // namespace
}  // namespace quintet
