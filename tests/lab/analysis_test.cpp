// What is built on the model: trade-offs, scaling, predictions, the reading of CSV files, and how
// all of it is told.
#include "lab/statistics/analysis.h"

#include <gtest/gtest.h>

#include "lab/statistics/csv_table.h"
#include "tests/lab/made_up.h"

namespace quintet {
namespace {

using testing::factor;
using testing::made_up;
using testing::NormalNumbers;

Observation seen(std::vector<std::size_t> level, double response, double memory = kUnknown) {
  Observation row;
  row.level = std::move(level);
  row.response = row.seconds = response;
  row.memory_bytes = memory;
  return row;
}

TEST(Tradeoffs, TheFrontAndWhatNobodyShouldUse) {
  Table table;
  table.response = "seconds";
  table.factors = {factor("bandwidth", {"1gbit", "10gbit"}), factor("zero", {"0", "1", "2", "3"})};
  const double memory[] = {100, 60, 60, 40};
  const double slow[] = {1.0, 1.1, 1.1, 2.0}, fast[] = {0.5, 0.5, 0.52, 0.6};
  for (std::size_t zero = 0; zero < 4; ++zero) {
    table.rows.push_back(seen({0, zero}, slow[zero], memory[zero]));
    table.rows.push_back(seen({1, zero}, fast[zero], memory[zero]));
  }
  const auto cells = cells_of(table);
  const auto tradeoffs = tradeoffs_of(table, cells);
  ASSERT_EQ(tradeoffs.size(), 2u);
  const auto front = [&](const Tradeoff& one) {
    std::vector<std::size_t> zeros;
    for (const auto& point : one.points) {
      if (!point.beaten_by) zeros.push_back(cells[point.cell].level[1]);
    }
    return zeros;
  };
  EXPECT_EQ(tradeoffs[0].environment, "bandwidth 1gbit");
  EXPECT_EQ(front(tradeoffs[0]), (std::vector<std::size_t>{0, 1, 2, 3}));  // 1 and 2 are equal
  EXPECT_EQ(front(tradeoffs[1]), (std::vector<std::size_t>{1, 3}));
  table.rows[4].response = table.rows[4].seconds =
      1.2;  // zero 2 on the slow network: now worse than zero 1 everywhere
  const auto again = cells_of(table);
  const auto dominated = dominated_layouts(table, again, tradeoffs_of(table, again));
  ASSERT_EQ(dominated.size(), 1u);
  EXPECT_EQ(dominated[0].layout, "zero 2");
  EXPECT_EQ(dominated[0].by, "zero 1");
  EXPECT_EQ(dominated[0].environments, 2u);
}

// What is asked about need not be a time: then time is looked up, or stands out.
TEST(Tradeoffs, GoByTimeWhateverTheResponseIs) {
  const auto csv = parse_csv(
                       "layout,tokens_per_second,memory,score\n"
                       "a,100,10,1\nb,1000,10,2\nc,500,5,3\n",
                       "t.csv")
                       .value();
  ColumnChoice columns;
  columns.response = "tokens_per_second";
  columns.factors = {"layout"};
  columns.memory = "memory";
  auto read = table_from_csv(csv, columns, {}, "t.csv").value();
  EXPECT_TRUE(read.table.more_is_better);
  const Analysis rates = analyse(read.table, read.predicted, "t").value();
  ASSERT_EQ(rates.dominated.size(), 1u);
  EXPECT_EQ(rates.dominated[0].layout, "layout a");
  EXPECT_NE(answer_of(rates)[0].find("the fastest is layout b"), std::string::npos)
      << answer_of(rates)[0];

  // A study knows its steps' seconds: memory as the response does not become the time.
  Table bytes;
  bytes.response = "memory_bytes";
  bytes.time = "step_seconds";
  bytes.factors = {factor("layout", {"a", "b"})};
  bytes.rows = {seen({0}, 10, 10), seen({1}, 20, 20)};
  bytes.rows[0].seconds = 3;
  bytes.rows[1].seconds = 2;
  EXPECT_TRUE(analyse(bytes, {}, "t").value().dominated.empty());

  columns.response = "score";
  EXPECT_FALSE(table_from_csv(csv, columns, {}, "t.csv").value().table.more_is_better);
  columns.more_is_better = true;
  read = table_from_csv(csv, columns, {}, "t.csv").value();
  EXPECT_NE(answer_of(analyse(read.table, {}, "t").value())[0].find("the largest is layout c"),
            std::string::npos);
}

TEST(Scaling, TheAnswerIsOfSettingsThatBeganAtTheSameNodes) {
  Table table;
  table.response = table.time = "step_seconds";
  table.factors = {factor("nodes", {"1", "2", "8"}, true), factor("tp", {"1", "2", "4"})};
  const auto add = [&](std::size_t nodes, std::size_t tp, double seconds) {
    table.rows.push_back(seen({nodes, tp}, seconds));
  };
  add(0, 0, 8), add(2, 0, 2);     // from 1 to 8: 50 %
  add(0, 1, 10), add(2, 1, 1.4);  // 89.3 %
  add(1, 2, 6), add(2, 2, 6);     // from 2 to 8: another question
  const Analysis analysis = analyse(table, {}, "t").value();
  bool said = false;
  for (const std::string& sentence : answer_of(analysis)) {
    said = said || sentence.starts_with(
                       "From 1 to 8 nodes 70 % of the speed of each node is left (median of 2 "
                       "settings; 50 % to 89 %)");
  }
  EXPECT_TRUE(said) << describe(analysis);
}

TEST(Scaling, EfficiencyAndWhatEatsIt) {
  Table table;
  table.response = "step_seconds";
  table.factors = {factor("nodes", {"1", "2", "4"}, true)};
  const double step[] = {8, 5, 4};
  for (std::size_t n = 0; n < 3; ++n) {
    Observation row = seen({n}, step[n]);
    const double compute = 8 / std::pow(2.0, static_cast<double>(n));
    row.breakdown = {{"compute", compute}, {"exposed data", step[n] - compute}};
    table.rows.push_back(row);
  }
  auto scalings = scaling_of(table, cells_of(table), 0);
  ASSERT_EQ(scalings.size(), 1u);
  ASSERT_EQ(scalings[0].points.size(), 3u);
  EXPECT_DOUBLE_EQ(scalings[0].points[1].speed_up, 1.6);
  EXPECT_DOUBLE_EQ(scalings[0].points[2].efficiency, 0.5);
  EXPECT_EQ(scalings[0].points[2].lost_to[0].first, "exposed data");
  EXPECT_DOUBLE_EQ(scalings[0].points[2].lost_to[0].second,
                   1.0);  // 4 nodes x 2 s of 8 node-seconds
  double sum = 0;
  for (const auto& part : scalings[0].points[2].lost_to) sum += part.second;
  EXPECT_NEAR(sum, 1 / 0.5 - 1, 1e-12);
  // Twice the work in the same time is twice the speed.
  for (std::size_t n = 0; n < 3; ++n) {
    table.rows[n].tokens_per_second = 1000 * std::pow(2.0, static_cast<double>(n)) / step[n];
  }
  scalings = scaling_of(table, cells_of(table), 0);
  EXPECT_DOUBLE_EQ(scalings[0].points[1].speed_up, 3.2);
}

TEST(Predictions, ErrorRankAndRegret) {
  Table measured;
  measured.response = "step_seconds";
  measured.factors = {factor("bandwidth", {"1", "10"}), factor("zero", {"0", "1", "2"})};
  Table predicted = measured;
  const double real[] = {1.0, 2.0, 3.0, 1.00, 1.05, 2.0};
  const double guess[] = {1.1, 2.2, 2.7, 1.20, 1.00, 2.0};
  for (std::size_t i = 0; i < 6; ++i) {
    measured.rows.push_back(seen({i / 3, i % 3}, real[i]));
    predicted.rows.push_back(seen({i / 3, i % 3}, guess[i]));
  }
  const Prediction result = compare_prediction(measured, predicted);
  ASSERT_EQ(result.cells.size(), 6u);
  EXPECT_NEAR(result.mean_error, (0.1 + 0.1 - 0.1 + 0.2 - 0.05 / 1.05 + 0) / 6, 1e-12);
  EXPECT_NEAR(result.mean_absolute_error, (0.1 + 0.1 + 0.1 + 0.2 + 0.05 / 1.05) / 6, 1e-12);
  EXPECT_EQ(result.worst, 3u);
  EXPECT_EQ(result.too_much, 3u);
  ASSERT_EQ(result.regrets.size(), 2u);
  EXPECT_NEAR(result.regrets[0].regret, 0, 1e-12);
  EXPECT_NEAR(result.regrets[1].regret, 0.05, 1e-12);
  EXPECT_EQ(result.regrets[1].chosen, "zero 1");
  EXPECT_EQ(result.regrets[1].best, "zero 0");
  EXPECT_NEAR(result.mean_regret, 0.025, 1e-12);
  // Of rates the largest is the best: a choice at a tenth of the speed takes ten times as long.
  measured.more_is_better = predicted.more_is_better = true;
  EXPECT_NEAR(compare_prediction(measured, predicted).regrets[0].regret, 0.0, 1e-12);
  predicted.rows[0].response = 100;
  EXPECT_NEAR(compare_prediction(measured, predicted).regrets[0].regret, 2.0, 1e-12);
  EXPECT_TRUE(
      compare_prediction(measured, Table{.response = "", .factors = {}, .rows = {}}).cells.empty());
}

TEST(Factors, NumbersWithUnitsAndSpacing) {
  EXPECT_EQ(numeric_value("200mbit"), 2e8);
  EXPECT_EQ(numeric_value(" 10 Gbit/s "), 1e10);
  EXPECT_EQ(numeric_value("1.5k"), 1500);
  EXPECT_EQ(numeric_value("+3"), 3);
  EXPECT_EQ(numeric_value("10gb"), 1e10);
  for (const char* bad : {"", "x", "1x", "inf", "nan", "1e999", "--1", "1 2", "1.2b", "1e308k"}) {
    EXPECT_FALSE(numeric_value(bad).has_value()) << bad;
  }
  const Factor bandwidth = factor("bandwidth", {"10gbit", "500mbit", "2gbit", "2000mbit"}, true);
  EXPECT_EQ(bandwidth.levels, (std::vector<std::string>{"500mbit", "2gbit", "10gbit"}));
  EXPECT_TRUE(bandwidth.logarithmic);
  EXPECT_EQ(find_level(bandwidth, "2000mbit"), 1u);
  EXPECT_FALSE(find_level(bandwidth, "3gbit").has_value());
  EXPECT_FALSE(make_factor("bandwidth", {"1gbit", "fast"}, true).ok());
  // Not numeric, but numbers: the smallest is what others are compared with.
  EXPECT_EQ(factor("zero", {"3", "0", "2"}).levels, (std::vector<std::string>{"0", "2", "3"}));
  EXPECT_EQ(factor("method", {"b", "a", "b"}).levels, (std::vector<std::string>{"b", "a"}));
  // And still names: these are three versions, and none is another.
  const Factor version = factor("version", {"2.2", "2.10", "2.1", "2.10"});
  EXPECT_EQ(version.levels, (std::vector<std::string>{"2.10", "2.1", "2.2"}));
  EXPECT_EQ(find_level(version, "2.1"), 1u);
  EXPECT_EQ(levels_meant(version.levels, "2.1"), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(levels_meant(version.levels, "2.100"), (std::vector<bool>{true, true, false}));
  EXPECT_EQ(factor("size", {"580m", "1.2b", "13b"}).levels[0], "580m");
  EXPECT_TRUE(is_rate("tokens_per_second") && is_rate("MB/s") && is_rate("Throughput"));
  EXPECT_FALSE(is_rate("step_seconds") || is_rate("ms/step"));
}

TEST(Csv, ReadsWhatSpreadsheetsWrite) {
  const auto table =
      parse_csv("\xef\xbb\xbf a ,\"b,\"\"c\"\"\"\r\n1,\"x\ny\"\r\n\r\n,2\r\n", "t.csv").value();
  EXPECT_EQ(table.names, (std::vector<std::string>{"a", "b,\"c\""}));
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0].fields[1], "x\ny");
  EXPECT_EQ(table.rows[1].line, 5u);
  EXPECT_EQ(csv_field(table.names[0]) + "," + csv_field(table.names[1]), "a,\"b,\"\"c\"\"\"");
  EXPECT_EQ(csv_field("x\ny"), "\"x\ny\"");
  EXPECT_EQ(table.rows[1].fields[0], "");
  EXPECT_EQ(parse_csv("a,b\n1,2", "t").value().rows.size(), 1u);
}

TEST(Csv, RefusesWhatIsNoTableAndSaysWhere) {
  const auto refused = [](const std::string& text, const std::string& expected) {
    const auto table = parse_csv(text, "t.csv");
    ASSERT_FALSE(table.ok()) << text;
    EXPECT_EQ(table.error().code, ErrorCode::kBadInput);
    EXPECT_NE(table.error().message.find(expected), std::string::npos) << table.error().message;
  };
  refused("", "is empty");
  refused("\n\n", "is empty");
  refused("a,b\n", "no rows");
  refused("a,b\n1,2\n1,2,3\n", "t.csv:3: 3 fields");
  refused("a,b\n1\n", "t.csv:2: 1 fields");
  refused("a,a\n1,2\n", "two columns are named \"a\"");
  refused("a,\n1,2\n", "column 2 has no name");
  refused("a,b\n1,\"2\n3,4\n", "t.csv:2: a quoted field begins here and never ends");
  refused("a,b\n1,\"2\"x\n", "t.csv:2: after a closing quote");
  refused("a,b\n1,2\"\n", "t.csv:2: a quote inside");
  refused("a,b\n1,\r2\n", "t.csv:2: a carriage return");
  refused(std::string("a,b\n1,\0\n", 8), "zero byte");
  refused(
      "\xff\xfe"
      "a",
      "UTF-16");
  refused("a,b\n1,caf\xe9\n", "t.csv:2: not UTF-8");
}

TEST(CsvTableOfObservations, ErrorsNameTheLineAndTheColumn) {
  const auto csv = parse_csv("zero,tp,seconds\n0,1,1.5\n1,1,\n1,2,NA\n0,2,1.25\n", "t.csv").value();
  ColumnChoice columns;
  columns.response = "seconds";
  columns.factors = {"zero", "tp"};
  const auto result = table_from_csv(csv, columns, {}, "t.csv").value();
  EXPECT_EQ(result.without_response, (std::vector<std::size_t>{3, 4}));
  EXPECT_EQ(result.table.rows.size(), 2u);
  const auto refused = [&](const std::string& text, ColumnChoice choice,
                           const std::string& expected) {
    const auto bad = table_from_csv(parse_csv(text, "t.csv").value(), choice, {}, "t.csv");
    ASSERT_FALSE(bad.ok()) << text;
    EXPECT_NE(bad.error().message.find(expected), std::string::npos) << bad.error().message;
  };
  refused("zero,tp,seconds\n0,1,fast\n", columns, "t.csv:2: seconds is \"fast\"");
  refused("zero,tp,seconds\n0,1,5 m\n", columns, "not a plain number");
  refused("zero,tp,seconds\n0,1,0\n", columns, "above zero");
  refused("zero,tp,seconds\n0,1,-3\n", columns, "above zero");
  refused("zero,tp,seconds\n0,,3\n", columns, "t.csv:2: factor tp has no value");
  refused("zero,tp,second\n0,1,3\n", columns, "did you mean \"second\"");
  refused("zero,tp,seconds\n0,1,\n", columns, "no row has a value of seconds");
  ColumnChoice numeric = columns;
  numeric.numeric = {"tp"};
  refused("zero,tp,seconds\n0,two,3\n", numeric, "\"two\" is not a number");
  ColumnChoice memory = columns;
  memory.memory = "bytes";
  refused("zero,tp,seconds,bytes\n0,1,3,0\n", memory, "t.csv:2: bytes is 0; memory is in bytes");
  ColumnChoice block = columns;
  block.block = "tp";
  refused("zero,tp,seconds\n0,1,3\n", block, "tp is a factor; it cannot be the block, too");
  block.block = "seconds";
  refused("zero,tp,seconds\n0,1,3\n", block, "seconds is the response; it cannot be the block");
  numeric.numeric = {"pp"};
  refused("zero,tp,seconds\n0,1,3\n", numeric, "numeric pp is none of the factors");
  const auto some = table_from_csv(csv, columns, {{"tp", "2.0"}}, "t.csv").value();
  EXPECT_EQ(some.table.rows.size(), 1u);
  const auto none = table_from_csv(csv, columns, {{"tp", "7"}, {"zero", "0"}}, "t.csv");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message, "t.csv: of 4 rows none has tp=7 and zero=0");
  EXPECT_FALSE(parse_condition("tp").ok());
  EXPECT_FALSE(parse_condition("=2").ok());
}

TEST(Analysis, AnswersInWordsAndJson) {
  const std::vector<Factor> factors = {
      factor("zero", {"0", "2", "3"}), factor("tp", {"1", "2"}),
      factor("bandwidth", {"500mbit", "1gbit", "2gbit", "4gbit", "8gbit"}, true)};
  Table table = made_up(
      factors, 3,
      [&](const std::vector<std::size_t>& level) {
        const double x = std::log(factors[2].values[level[2]] / 2.5e9);
        return -0.5 * x + (level[0] == 2) * (-0.3 * x) - 0.2 * (level[1] == 1);
      },
      [normal = NormalNumbers(3)]() mutable { return 0.02 * normal.next(); });
  for (Observation& row : table.rows)
    row.memory_bytes = 1e9 / static_cast<double>(1 + row.level[0]);
  const Analysis analysis =
      analyse(table, {.response = "", .factors = factors, .rows = {}}, "t").value();
  const auto sentences = answer_of(analysis);
  ASSERT_EQ(sentences.size(), 5u);
  EXPECT_NE(sentences[1].find("bandwidth explains"), std::string::npos) << sentences[1];
  EXPECT_NE(sentences[2].find("zero and bandwidth act on each other most"), std::string::npos);
  EXPECT_NE(sentences[3].find("The answer turns: "), std::string::npos) << sentences[3];
  EXPECT_NE(sentences[4].find("The same run repeated varies by"), std::string::npos);
  const std::string text = describe(analysis);
  for (const char* part : {"Main effects", "Interactions", "Noise floor", "Crossovers", "type II",
                           "Time against memory"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
  const Json json = to_json(analysis);
  EXPECT_EQ(json.at("rows"), 90);
  EXPECT_EQ(json.at("main_effects").size(), 2u + 1 + 4);
  EXPECT_EQ(json.at("interactions").size(), 2u + 8 + 4);
  EXPECT_TRUE(parse_json(to_text(json), "json").ok());
}

// The best of those that can be compared need not be the best.
TEST(Analysis, SaysWhatComparisonsLeaveOut) {
  Table measured;
  measured.response = "seconds";
  measured.factors = {factor("zero", {"0", "1", "2"})};
  measured.rows = {seen({0}, 1.0, 8e9), seen({0}, 1.1, 8e9), seen({1}, 2.0, 4e9), seen({2}, 0.5),
                   seen({2}, 0.6)};
  Table predicted = measured;
  predicted.rows = {seen({1}, 2.0), seen({2}, 0.5)};
  EXPECT_EQ(analyse(measured, predicted, "t").value().notes,
            (std::vector<std::string>{
                "2 rows without memory left out of time against memory (zero 2)",
                "2 rows without a prediction left out of predictions against measurements "
                "(zero 0)"}));
  measured.rows[4].memory_bytes = 2e9;  // of the same setting
  EXPECT_TRUE(analyse(measured, measured, "t").value().notes.empty());
}

TEST(Analysis, RefusesWhatHasNothingToCompare) {
  Table table;
  table.factors = {factor("zero", {"0"})};
  table.rows = {seen({0}, 1.0), seen({0}, 1.1)};
  const auto constant = analyse(table, {}, "t.csv");
  ASSERT_FALSE(constant.ok());
  EXPECT_NE(constant.error().message.find("nothing to compare"), std::string::npos);
  std::vector<std::string> many;
  for (int i = 0; i < 80; ++i) many.push_back(std::to_string(i));
  Table wide;
  wide.factors = {factor("a", many), factor("b", many)};
  for (std::size_t i = 0; i < 80; ++i) wide.rows.push_back(seen({i, i}, 1.0));
  const auto refused = analyse(wide, {}, "t.csv");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("so many levels"), std::string::npos);
}

}  // namespace
}  // namespace quintet
