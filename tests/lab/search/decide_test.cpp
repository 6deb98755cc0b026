// What a search decides: halving step by step against a list made by hand, budgets, the ladder, and
// the journal that the decisions rest on.
#include <functional>

#include <gtest/gtest.h>

#include "lab/search/importance.h"
#include "lab/search/journal.h"
#include "lab/search/ladder.h"
#include "tests/support/command.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

SearchFile search_of(const std::string& search, const std::string& rest) {
  // Where it does not matter, one that costs nothing: these tests are about what follows.
  const bool matters = search.find("sampler") != std::string::npos;
  const std::string sampler = matters ? "" : "sampler = \"sobol\"\n";
  auto parsed = SearchFile::parse(
      "[search]\nquestion = \"which?\"\n" + sampler + search +
          "\n[space]\nschedule.peak = {log = [1e-5, 1e-1]}\nschedule.warmup_steps = {integer = [1, "
          "9]}\n[fixed]\nbatch.micro_batch = 2\nbatch.source = 16\n" +
          rest,
      "s.toml");
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return std::move(parsed).value();
}

using Objective = std::function<double(const Trial&, std::int64_t rung)>;

// Plays a search, one job at a time, with results made up; returns its decisions as words.
std::vector<std::string> play(const SearchFile& search, const Objective& objective,
                              std::vector<Trial>& trials) {
  std::vector<std::string> decisions;
  while (decisions.size() < 10000) {
    const SearchDecision decision = decide(search, trials, 1);
    EXPECT_NE(decision.kind, SearchDecision::Kind::kWait);
    if (decision.kind == SearchDecision::Kind::kDone) return decisions;
    const bool begins = decision.kind == SearchDecision::Kind::kBegin;
    if (begins) {
      trials.push_back(
          {std::ssize(trials) + 1, decision.level, decision.parent, decision.settings, {}});
    }
    Trial& trial = begins ? trials.back() : trials[static_cast<std::size_t>(decision.trial) - 1];
    RungResult result;
    result.rung = decision.rung;
    result.steps = search.plan_of(trial.settings, trial.level, 1)
                       .value()
                       .rung_steps[static_cast<std::size_t>(decision.rung)];
    result.value = objective(trial, decision.rung);
    result.status = std::isfinite(result.value) ? "done" : "diverged";
    trial.rungs.push_back(result);
    decisions.push_back(begins ? fmt::format("begin {}", trial.id)
                               : fmt::format("{} to {}", trial.id, decision.rung));
  }
  ADD_FAILURE() << "the search does not end";
  return decisions;
}

TEST(Halving, GoesAsByHand) {
  const SearchFile search = search_of("trials = 9", "[budget]\nsteps = 9\nrungs = 3\n");
  EXPECT_EQ(search.plan_of({}, 0, 1).value().rung_steps, (std::vector<std::int64_t>{1, 3, 9}));
  const double losses[] = {5, 4, 3, 2, 1, 6, 7, 8, 0};
  std::vector<Trial> trials;
  const auto decisions = play(
      search, [&](const Trial& trial, std::int64_t) { return losses[trial.id - 1]; }, trials);
  // A third of those at a rung goes on: one of three, the fourth and fifth because each is the best
  // so far; with three at the second rung, its best goes to the end. The ninth overtakes all.
  EXPECT_EQ(decisions,
            (std::vector<std::string>{"begin 1", "begin 2", "begin 3", "3 to 1", "begin 4",
                                      "4 to 1", "begin 5", "5 to 1", "5 to 2", "begin 6", "begin 7",
                                      "begin 8", "begin 9", "9 to 1", "9 to 2"}));
  EXPECT_EQ(best_trial(trials)->id, 9);
  EXPECT_EQ(ranking(trials, 0)[1]->id, 5);
  EXPECT_EQ(steps_begun(trials, 0), 9 * 1 + 4 * 2 + 2 * 6);
}

TEST(Halving, SparesTheFirst) {
  const SearchFile search =
      search_of("trials = 8", "[budget]\nsteps = 4\nrungs = 2\nreduction = 4\nspared = 2\n");
  std::vector<Trial> trials;
  const auto decisions = play(
      search, [](const Trial& trial, std::int64_t) { return static_cast<double>(trial.id); },
      trials);
  // Two go on unconditionally; from then on one in four, of whom the best already have.
  EXPECT_EQ(decisions,
            (std::vector<std::string>{"begin 1", "1 to 1", "begin 2", "2 to 1", "begin 3",
                                      "begin 4", "begin 5", "begin 6", "begin 7", "begin 8"}));
}

TEST(Halving, TrialsThatFailAreNeverContinuedAndCountAsTheWorst) {
  const double inf = std::numeric_limits<double>::infinity();
  const SearchFile search = search_of("trials = 12", "[budget]\nsteps = 9\nrungs = 2\n");
  std::vector<Trial> trials;
  play(
      search,
      [&](const Trial& trial, std::int64_t rung) {
        if (trial.id % 2 == 0) return inf;
        return rung == 1 && trial.id == 1 ? inf : static_cast<double>(trial.id);
      },
      trials);
  for (const Trial& trial : trials) {
    if (trial.id % 2 == 0) {
      EXPECT_EQ(trial.rungs.size(), 1u);
    }
  }
  EXPECT_TRUE(trials[0].failed());
  EXPECT_EQ(best_trial(trials)->id, 3);
  std::vector<Trial> none;
  const auto decisions = play(
      search, [&](const Trial&, std::int64_t) { return inf; }, none);
  EXPECT_EQ(decisions.size(), 12u);
  EXPECT_EQ(best_trial(none), nullptr);
}

TEST(Halving, AFewTrialsStillGetToTheEnd) {
  const SearchFile search = search_of("trials = 2", "[budget]\nsteps = 27\nrungs = 4\n");
  std::vector<Trial> trials;
  play(
      search, [](const Trial& trial, std::int64_t) { return static_cast<double>(trial.id); },
      trials);
  EXPECT_EQ(best_trial(trials)->reached(), 3);
}

TEST(Halving, KeepsToItsBudgetAndBringsOneToTheEnd) {
  for (const std::int64_t total : {9, 20, 61, 100, 1000}) {
    const SearchFile search = search_of(
        "trials = 50", fmt::format("[budget]\nsteps = 9\nrungs = 3\ntotal_steps = {}\n", total));
    for (const double sign : {1.0, -1.0}) {
      std::vector<Trial> trials;
      play(
          search,
          [&](const Trial& trial, std::int64_t) { return sign * static_cast<double>(trial.id); },
          trials);
      EXPECT_LE(steps_begun(trials, 0), total);
      EXPECT_EQ(best_trial(trials)->reached(), 2) << total;
    }
  }
}

TEST(Halving, WaitsForWhatRuns) {
  const SearchFile search = search_of("trials = 1", "[budget]\nsteps = 9\nrungs = 2\n");
  Trial trial{1, 0, 0, {}, {}};
  trial.rungs.push_back({1, 0, 3, "running", "", 0, 0, 0, ""});
  EXPECT_EQ(decide(search, std::vector<Trial>{trial}, 1).kind, SearchDecision::Kind::kWait);
}

TEST(Ladder, TheBestGoUpInTheirOrder) {
  const SearchFile search =
      search_of("trials = 6",
                "[budget]\nsteps = 4\n[ladder]\nmodels = [\"tiny\", \"mini\"]\npromote "
                "= 3\ngrowth = 2\n");
  EXPECT_EQ(search.plan_of({}, 1, 1).value().config.model.name, "mini");
  EXPECT_EQ(search.plan_of({}, 1, 1).value().config.train.steps, 8);
  std::vector<Trial> trials;
  play(
      search,
      [](const Trial& trial, std::int64_t) {
        return trial.level == 0 ? std::abs(static_cast<double>(trial.id) - 4.1)
                                : static_cast<double>(trial.parent);
      },
      trials);
  ASSERT_EQ(trials.size(), 9u);
  EXPECT_EQ(trials[6].parent, 4);
  EXPECT_EQ(trials[7].parent, 5);
  EXPECT_EQ(trials[8].parent, 3);
  EXPECT_EQ(trials[8].settings, trials[2].settings);
  EXPECT_EQ(best_trial(trials)->id, 9);
}

TEST(Ladder, SaysWhatTheSmallTellsAboutTheLarge) {
  const SearchFile search =
      search_of("trials = 24\nsampler = \"sobol\"",
                "[budget]\nsteps = 4\n[ladder]\nmodels = [\"tiny\", \"mini\"]\npromote = 24\n");
  // On the large model the best rate is a tenth of the range lower, and otherwise all is the same.
  const SearchParameter& peak = search.space.parameters()[0];
  const auto bowl_at = [&](const Trial& trial, double best) {
    const double off = peak.cell_of(trial.settings.at("schedule.peak")).low - best;
    return 1 + off * off;
  };
  std::vector<Trial> trials;
  play(
      search,
      [&](const Trial& trial, std::int64_t) {
        return bowl_at(trial, trial.level == 0 ? 0.6 : 0.5);
      },
      trials);
  const auto steps = ladder_steps(search, trials, [](std::int64_t) {
    return std::vector<CurveStep>{{1, 3.0, std::nan(""), 0.1}};
  });
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].trials, 24u);
  EXPECT_GT(steps[0].spearman, 0.7);
  EXPECT_LT(steps[0].low, steps[0].spearman);
  EXPECT_GT(steps[0].high, steps[0].spearman);
  EXPECT_TRUE(steps[0].in_top_quarter()) << steps[0].best_was;
  EXPECT_NEAR(steps[0].moved[0].quarter, -0.1, 0.04);
  EXPECT_GE(steps[0].next_trials, static_cast<std::int64_t>(steps[0].best_was));
  // Turned round, the small model misleads.
  for (Trial& trial : trials) {
    if (trial.level == 1)
      trial.rungs[0].value = 10 - trials[static_cast<std::size_t>(trial.parent) - 1].value_at(0);
  }
  const auto turned =
      ladder_steps(search, trials, [](std::int64_t) { return std::vector<CurveStep>{}; });
  EXPECT_NEAR(turned[0].spearman, -1, 1e-12);
  EXPECT_EQ(turned[0].best_was, 24u);
  EXPECT_FALSE(turned[0].in_top_quarter());
  EXPECT_EQ(turned[0].next_share, 1);
}

TEST(ImportanceOfParameters, IsFoundInMadeUpData) {
  const SearchSpace space({{"a.strong", SearchParameter::Kind::kReal, false, 0, 1},
                           {"a.weak", SearchParameter::Kind::kInteger, false, 1, 20},
                           {"a.none", SearchParameter::Kind::kReal, false, 0, 1},
                           {"a.word",
                            SearchParameter::Kind::kChoice,
                            false,
                            0,
                            0,
                            {std::string("x"), std::string("y")}}},
                          {});
  std::vector<TriedSettings> all;
  for (std::int64_t t = 0; t < 80; ++t) {
    const auto settings = propose(space, {"random", 5, 10}, t, all);
    const double strong = search_number(settings->at("a.strong"));
    const double weak = search_number(settings->at("a.weak")) / 20;
    // A bowl: no slope, which a correlation would not see.
    double loss = 4 * std::abs(strong - 0.5) + 0.4 * weak;
    if (t % 20 == 0) loss = std::numeric_limits<double>::infinity();
    all.push_back({*settings, 0, loss});
  }
  const auto found = importances(space, all);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].key, "a.strong");
  EXPECT_GT(found[0].share, 0.5);
  EXPECT_LT(found[0].chance, 1e-6);
  for (const Importance& one : found) {
    if (one.key == "a.none" || one.key == "a.word") {
      EXPECT_LT(one.share, 0.1) << one.key;
      EXPECT_GT(one.chance, 0.01) << one.key;
    }
  }
  EXPECT_TRUE(importances(space, std::span(all).first(5)).empty());
}

TEST(Journal, KeepsEverything) {
  const TemporaryFolder folder;
  const SearchFile search = search_of("trials = 3", "[budget]\nsteps = 9\nrungs = 2\n");
  std::vector<Trial> trials;
  {
    auto journal = SearchJournal::open(folder.path(), true);
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    EXPECT_FALSE(journal.value().holds_search().value());
    ASSERT_TRUE(journal.value().begin(search, 3).ok());
    EXPECT_EQ(SearchJournal::open(folder.path(), true).error().code, ErrorCode::kUsage) << "locked";
    for (int i = 0; i < 3; ++i) {
      const SearchDecision decision = decide(search, trials, 1);
      ASSERT_TRUE(journal.value().decided(decision, 3, "train", trials).ok());
      if (i == 2) break;  // was running when the program ended
      RungResult result;
      result.status = i == 0 ? "done" : "diverged";
      result.reason = i == 0 ? "" : "loss nan";
      if (i == 0) result.value = 0.1 + 0.2;  // every bit counts
      result.seconds = 1.5;
      ASSERT_TRUE(journal.value().finished(trials.back(), result, i == 0 ? 0 : 5).ok());
    }
  }
  auto again = SearchJournal::open(folder.path(), false);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again.value().get("threads").value(), "3");
  EXPECT_EQ(again.value().get("hash").value(), search.hash);
  const auto read = again.value().trials();
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read.value().size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read.value()[i].settings, trials[i].settings);
    EXPECT_EQ(read.value()[i].rungs[0].value, trials[i].rungs[0].value);
    EXPECT_EQ(read.value()[i].rungs[0].status, trials[i].rungs[0].status);
  }
  EXPECT_TRUE(read.value()[2].pending());
  // Whoever reads the journal decides the same.
  const SearchDecision before = decide(search, trials, 1), after = decide(search, read.value(), 1);
  EXPECT_EQ(before.kind, after.kind);
  EXPECT_EQ(before.settings, after.settings);
}

TEST(Journal, OtherDatabasesAreLeftAlone) {
  const TemporaryFolder folder;
  {
    auto other =
        SqlDatabase::open((folder.path() / "search.sqlite").string(), SqlDatabase::Mode::kCreate);
    ASSERT_TRUE(other.value().run("CREATE TABLE mine(x)").ok());
  }
  EXPECT_EQ(SearchJournal::open(folder.path(), false).value().holds_search().error().code,
            ErrorCode::kBadInput);
  EXPECT_FALSE(SearchJournal::view(folder.path()).ok());
  EXPECT_FALSE(SearchJournal::view(folder.path() / "nowhere").ok());
}

}  // namespace
}  // namespace quintet
