// What search files may say.
#include "lab/search/search_file.h"

#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace quintet {
namespace {

const std::string kSearchHead =
    "[search]\nquestion = \"which rate?\"\ntrials = 4\n[budget]\nsteps = 9\n";
const std::string kSearchSpace = "[space]\nschedule.peak = {log = [1e-4, 1e-1]}\n";

Result<SearchFile> search_from(const std::string& text) {
  return SearchFile::parse(text, "s.toml");
}

TEST(SearchFiles, AreRead) {
  const auto read = search_from(
      "[search]\nquestion = \"?\"\n[budget]\ntokens = 10_000\nrungs = 2\nreduction = 4\n"
      "[fixed]\nbatch.source = 16\nschedule.kind = \"constant\"\n"
      "[space]\nschedule.peak = {log = [1e-4, 1e-1]}\n"
      "optimizer.name = {choice = [\"adamw\", \"adafactor\"]}\n"
      "optimizer.beta2 = {linear = [0.9, 0.999], when = \"optimizer.name == 'adamw'\"}\n"
      "batch.micro_batch = {integer = [2, 16], log = true}\n");
  ASSERT_TRUE(read.ok()) << read.error().message;
  const SearchFile& search = read.value();
  EXPECT_EQ(search.search.name, "s");
  ASSERT_EQ(search.space.size(), 4u);
  EXPECT_TRUE(search.space.parameters()[3].logarithmic);
  // Twice the batch, half the steps: the same number of tokens.
  const auto small = search.plan_of({{"batch.micro_batch", std::int64_t{4}}}, 0, 2).value();
  const auto large = search.plan_of({{"batch.micro_batch", std::int64_t{8}}}, 0, 2).value();
  EXPECT_EQ(small.config.train.threads, 2);
  EXPECT_EQ(small.config.validate.sequences, 256);
  EXPECT_NEAR(static_cast<double>(small.rung_steps[1]),
              2.0 * static_cast<double>(large.rung_steps[1]), 1);
  EXPECT_EQ(small.rung_steps[0], (small.rung_steps[1] + 3) / 4);
}

TEST(SearchFiles, BadOnesAreRefusedWithTheLine) {
  struct Bad {
    std::string text;
    std::vector<std::string> says;
  };
  const std::string head = kSearchHead + "[space]\n";  // so that the next line is 7
  const std::vector<Bad> cases = {
      {head + "schedule.peak = {log = [1e-1, 1e-4]}\n", {"s.toml:7", "inverted"}},
      {head + "schedule.peak = {linear = [0.1, 0.1]}\n", {"s.toml:7", "equal", "[fixed]"}},
      {head + "schedule.peak = {log = [0, 1e-1]}\n", {"s.toml:7", "no logarithm of zero"}},
      {head + "schedule.peak = {log = [-1, 1e-1]}\n", {"s.toml:7", "negative"}},
      {head + "schedule.peak = {log = [1, inf]}\n", {"s.toml:7", "finite"}},
      {head + "schedule.peak = {linear = [0.1, 200]}\n", {"s.toml:7", "between 0 and 100"}},
      {head + "schedule.peek = {log = [1e-4, 1e-1]}\n", {"s.toml:7", "did you mean schedule.peak"}},
      {head + "peak = {log = [1e-4, 1e-1]}\n", {"s.toml:7", "did you mean schedule.peak"}},
      {head + "schedule.peak = {lag = [1e-4, 1e-1]}\n", {"s.toml:7", "did you mean log"}},
      {head + "schedule.peak = 0.1\n", {"s.toml:7", "no range", "[fixed]"}},
      {head + "schedule.peak = {when = \"1 < 2\"}\n", {"s.toml:7", "no range"}},
      {head + "schedule.peak = {log = [1, 2], linear = [1, 2]}\n", {"s.toml:7", "more than one"}},
      {head + "schedule.peak = {log = [1, 2, 3]}\n", {"s.toml:7", "two numbers"}},
      {head + "schedule.peak = {log = true}\n", {"s.toml:7", "no range"}},
      {head + "schedule.peak = {linear = [1, 2], log = true}\n", {"s.toml:7", "integer"}},
      {head + "schedule.warmup_steps = {log = [1, 9]}\n",
       {"s.toml:7", "takes integers", "log = true"}},
      {head + "schedule.warmup_steps = {integer = [1, 9.5]}\n", {"s.toml:7", "two integers"}},
      {head + "optimizer.name = {choice = [\"adamw\"]}\n", {"s.toml:7", "at least two"}},
      {head + "optimizer.name = {choice = [\"adamw\", \"adam\"]}\n", {"s.toml:7", "adafactor"}},
      {head + "optimizer.name = {choice = [\"adamw\", \"adamw\"]}\n", {"s.toml:7", "twice"}},
      {head + "model.name = {choice = [\"tiny\", \"tinny\"]}\n", {"s.toml:7", "tinny"}},
      // No layout of one rank has two pipeline stages.
      {head + "parallel.pp = {choice = [1, 2]}\n", {"s.toml:7", "no run can have parallel.pp = 2"}},
      {head + "train.steps = {integer = [1, 9]}\n", {"s.toml:7", "set by the search"}},
      {head + "batch.micro_batch = {integer = [1, 9]}\n", {"s.toml:7", "unequal", "tokens"}},
      {head + "batch.source = {choice = [16, 32]}\n", {"s.toml:7", "cannot be searched"}},
      {head + "data.branching = {choice = [2, 4]}\n", {"s.toml:7", "cannot be searched"}},
      {head + "schedule.peak = {log = [1, 2], when = \"beta == 1\"}\n", {"s.toml:7", "beta"}},
      {head + "schedule.peak = {log = [1, 2], when = 3}\n", {"s.toml:7", "in quotes"}},
      {kSearchHead, {"[space] is empty"}},
      {kSearchHead + "[fixed]\nschedule.peak = 1\n" + kSearchSpace, {"s.toml:9", "[fixed]"}},
      {kSearchHead + "[fixed]\nschedule.peek = 1\n" + kSearchSpace,
       {"s.toml:7", "did you mean schedule.peak"}},
      {kSearchHead + "[fixed]\noutput.folder = \"x\"\n" + kSearchSpace,
       {"s.toml:7", "set by the search"}},
      {kSearchHead + "rungs = 2\n[fixed]\nschedule.kind = \"cosine\"\n" + kSearchSpace,
       {"s.toml:8", "half-way", "wsd"}},
      {kSearchHead +
           "rungs = 2\nreduction = 2\n[fixed]\nschedule.kind = \"wsd\"\n"
           "schedule.warmup_steps = 1\nschedule.decay_steps = 8\n" +
           kSearchSpace,
       {"decay"}},
      {kSearchHead + "rungs = 2\n[space]\nschedule.kind = {choice = [\"constant\", \"linear\"]}\n",
       {"s.toml:8", "no run can have schedule.kind"}},
      {kSearchHead + "rungs = 9\n" + kSearchSpace, {"too short", "9 rungs"}},
      {"[search]\ntrials = 2\n[budget]\nsteps = 9\n" + kSearchSpace, {"question"}},
      {"[search]\nquestion = \"?\"\n" + kSearchSpace, {"steps = N or tokens = N"}},
      {"[search]\nquestion = \"?\"\nname = \"a/b\"\n[budget]\nsteps = 2\n" + kSearchSpace,
       {"name"}},
      {kSearchHead + "tokens = 9\n" + kSearchSpace, {"one of them"}},
      {kSearchHead + "step = 9\n" + kSearchSpace, {"s.toml:6", "did you mean budget.steps"}},
      {kSearchHead + "[ladder]\nmodels = [\"tiny\", \"mimi\"]\n" + kSearchSpace,
       {"s.toml:7", "mimi"}},
      {kSearchHead + "[ladder]\nmodels = [\"tiny\"]\n[fixed]\nmodel.name = \"mini\"\n" +
           kSearchSpace,
       {"s.toml:9", "[ladder]"}},
      {"[search]\nquestion = \"?\"\nobjective = \"step_seconds\"\n" + kSearchSpace,
       {"machine = FILE"}},
      {"[search]\nquestion = \"?\"\nobjective = \"step_seconds\"\n[place]\nmachine = "
       "\"nosuch.toml\"\n" +
           kSearchSpace,
       {"nosuch.toml", "exists"}},
      {kSearchHead + "[place]\nmachine = \"m.toml\"\n" + kSearchSpace, {"step_seconds"}},
      {"x = 1\n", {"outside a section"}},
  };
  for (const Bad& bad : cases) {
    const auto search = search_from(bad.text);
    ASSERT_FALSE(search.ok()) << bad.text;
    EXPECT_EQ(search.error().code, ErrorCode::kUsage) << search.error().message;
    for (const std::string& part : bad.says)
      EXPECT_TRUE(testing::contains(search.error().message, part))
          << bad.text << search.error().message;
  }
}

TEST(SearchFiles, TimeIsComparedAtTheSameGlobalBatch) {
  const std::string text =
      "[search]\nquestion = \"?\"\nobjective = \"step_seconds\"\n[place]\nranks_per_node = "
      "2\nmachine = \"" QUINTET_SOURCE_DIR
      "/machines/h200.toml\"\n[space]\nparallel.tp = {choice = [1, 2]}\n";
  const auto unequal = search_from(text);
  ASSERT_FALSE(unequal.ok());
  EXPECT_TRUE(testing::contains(unequal.error().message, "s.toml:8")) << unequal.error().message;
  EXPECT_TRUE(testing::contains(unequal.error().message, "batch.global"));
  EXPECT_TRUE(search_from(text + "[fixed]\nbatch.global = 32\n").ok());
}

}  // namespace
}  // namespace quintet
