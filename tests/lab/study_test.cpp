// Studies: what their files may say, which rows they make, and that these survive whatever ends the
// program.
#include <csignal>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "lab/design.h"
#include "lab/study_store.h"
#include "tests/support/command.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

using testing::Outcome;

constexpr const char* kHead =
    "[study]\nquestion = \"what does it cost?\"\nglobal_batch = 8\n[fixed]\nmodel.name = \"tiny\"\n"
    "batch.source = 16\n";

Result<StudyFile> study_from(const std::string& text) {
  return StudyFile::parse(text, "s.toml");
}
StudyFile good_study(const std::string& text) {
  auto study = study_from(text);
  EXPECT_TRUE(study.ok()) << study.error().message;
  return std::move(study).value();
}

TEST(Conditions, AreEvaluated) {
  const Settings settings = {{"parallel.tp", std::int64_t{2}},
                             {"parallel.zero", std::int64_t{3}},
                             {"train.recompute", std::string("full")},
                             {"ranks", std::int64_t{8}},
                             {"bandwidth", 0.5},
                             {"train.graph", true}};
  for (const auto& [text, expected] : std::map<std::string, bool>{
           {"parallel.tp * 4 == ranks", true},
           {"tp + 1 < zero", false},
           {"tp + 1 <= zero", true},
           {"1 + 2 * 3 == 7", true},
           {"(1 + 2) * 3 == 9", true},
           {"10 - 2 - 3 == 5", true},
           {"8 / 2 / 2 == 2 and 7 % 4 == 3", true},
           {"-tp < -1", true},
           {"recompute == 'full' and not (zero == 3)", false},
           {"recompute != \"none\" or 1 > 2", true},
           {"graph", true},
           {"not graph or bandwidth >= 0.5", true},
           {"true == (1 < 2)", true},
       }) {
    const auto condition = RowCondition::parse(text, settings, "here");
    ASSERT_TRUE(condition.ok()) << condition.error().message;
    EXPECT_EQ(condition.value().holds(settings).value(), expected) << text;
  }
}

TEST(Conditions, BadOnesAreRefused) {
  const Settings settings = {
      {"a.x", std::int64_t{1}}, {"b.x", std::int64_t{2}}, {"s", std::string("t")}};
  for (const char* text : {"", "1", "x == 1", "a.y == 1", "s < 1", "s == 1", "a.x ==", "(a.x == 1",
                           "a.x == 1)", "a.x = 1", "not 1", "1 and 2", "'open", "a.x == 1 and",
                           "-s == 1", "a.x == 1 2", "==", "$"}) {
    const auto condition = RowCondition::parse(text, settings, "here");
    ASSERT_FALSE(condition.ok()) << text;
    EXPECT_EQ(condition.error().code, ErrorCode::kUsage);
    EXPECT_TRUE(testing::contains(condition.error().message, "here")) << condition.error().message;
  }
  EXPECT_FALSE(RowCondition::parse(std::string(5000, '(') + "1==1", settings, "here").ok());
  std::string chain = "1";
  for (int i = 0; i < 5000; ++i) chain += "+1";
  EXPECT_FALSE(RowCondition::parse(chain + " > 0", settings, "here").ok());
}

// Each says what is wrong with a study file, and where.
struct BadStudy {
  std::string text;
  std::vector<std::string> says;
};

TEST(StudyFiles, BadOnesAreRefusedWithTheReason) {
  const std::string head = kHead;
  const std::vector<BadStudy> cases = {
      {"[factors]\nzero = [0, 1]\n", {"s.toml:2", "unknown factor zero", "parallel.zero"}},
      {"[factors]\nnodez = [1, 2]\n", {"unknown factor nodez", "nodes"}},
      {"[factors]\nparallel.zeros = [0]\n", {"parallel.zeros", "did you mean parallel.zero"}},
      {"[factors]\nparallel.zero = [0, 7]\n", {"s.toml:2", "parallel.zero = 7"}},
      {"[factors]\nparallel.zero = [0, \"one\"]\n", {"parallel.zero", "an integer"}},
      {"[factors]\nparallel.zero = 1\n", {"list of levels", "[fixed]"}},
      {"[factors]\nparallel.zero = []\n", {"no level"}},
      {"[factors]\nparallel.zero = [1, 1]\n", {"twice"}},
      {"[factors]\nmodel.name = [\"tiny\", \"tinny\"]\n", {"s.toml:2", "tinny"}},
      {"[factors]\ntrain.steps = [1, 2]\n", {"train.steps", "set by the study itself"}},
      {"[factors]\nbatch.global = [16, 32]\n",
       {"s.toml:2", "batch.global", "[study] global_batch"}},
      {head + "batch.global = 32\n[factors]\nparallel.zero = [0, 1]\n", {"batch.global"}},
      {"[factors]\nbandwidth = [\"1gbit\", \"fast\"]\n", {"s.toml:2", "fast"}},
      {"[factors]\nbandwidth = [1]\n", {"1gbit"}},
      {"[factors]\nnodes = [0]\n", {"nodes = 0"}},
      {"[factors]\nmachine = [\"nosuch.toml\"]\n", {"machine", "exists"}},
      {head, {"no factor"}},
      {"[study]\nglobal_batch = 8\n[factors]\nparallel.zero = [0, 1]\n", {"question"}},
      {"[study]\nquestion = \"?\"\n[factors]\nparallel.zero = [0, 1]\n", {"global_batch"}},
      {head + "parallel.zero = 1\n[factors]\nparallel.zero = [0, 1]\n", {"[factors]", "[fixed]"}},
      {head + "[factors]\nbatch.accumulate = [1]\nbatch.micro_batch = [1]\n", {"both"}},
      {head + "[factors]\nparallel.zero = [0, 1]\n[design]\nkind = \"half\"\n", {"fraction"}},
      {head + "[factors]\nparallel.zero = [0, 1]\n[design]\nkind = \"sample\"\n", {"cells"}},
      {head + "[factors]\nparallel.zero = [0, 1]\n[design]\nrepeats = 3\nblocks = 2\n",
       {"multiple"}},
      {head + "[factors]\nparallel.zero = [0, 1]\n[design]\nrequire = [\"zerro == 1\"]\n",
       {"zerro"}},
      {head + "[factors]\nparallel.zero = [0, 1]\n[design]\nnumeric = [\"nodes\"]\n",
       {"no factor"}},
      {head + "[factors]\nbandwidth = [\"1gbit\"]\n", {"emulated"}},
      {head + "[factors]\nnodes = [1, 2]\n[place]\nkind = \"emulated\"\n", {"bandwidth"}},
      {head + "[factors]\nnodes = [1, 2]\n[place]\nkind = \"hosts\"\n", {"hosts ="}},
      {head + "[factors]\nnodes = [1, 2]\n[study2]\nx = 1\n", {"study2.x"}},
      {head + "[factor]\nparallel.zero = [0, 1]\n",
       {"s.toml:8", "factor.parallel.zero", "[factors]", "docs/studies.md"}},
      {head + "[factors]\nnodes = [1, 2]\n[measure]\nsteps = 0\n", {"measure.steps"}},
      {"x = 1\n", {"outside a section"}},
  };
  for (const BadStudy& bad : cases) {
    const auto study = study_from(bad.text);
    ASSERT_FALSE(study.ok()) << bad.text;
    EXPECT_EQ(study.error().code, ErrorCode::kUsage) << bad.text;
    for (const std::string& part : bad.says) {
      EXPECT_TRUE(testing::contains(study.error().message, part)) << study.error().message;
    }
  }
  const auto none =
      good_study(head + "[factors]\nparallel.tp = [1, 2]\n[design]\nrequire = [\"tp > 2\"]\n");
  ASSERT_FALSE(rows_of(none).ok());
  EXPECT_TRUE(testing::contains(rows_of(none).error().message, "no combination"));
}

TEST(Designs, RowsAreBalancedBlockedAndInAnOrderOfTheirOwn) {
  const std::string text =
      std::string(kHead) +
      "[factors]\nparallel.zero = [0, 1, 2, 3]\nparallel.tp = [1, 2]\nnodes = [2, "
      "4]\n[design]\nrepeats = 3\nseed = 5\nrequire = [\"tp <= nodes\", \"not "
      "(zero == 3 and tp == 2)\"]\n";
  const auto rows = rows_of(good_study(text)).value();
  ASSERT_EQ(rows.size(), 14u * 3);  // 16 less the two with ZeRO 3 under tp 2
  std::map<std::int64_t, std::multiset<std::int64_t>> cells_of_block;
  std::set<std::pair<std::int64_t, std::int64_t>> distinct;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].position, static_cast<std::int64_t>(i));
    EXPECT_EQ(rows[i].block, rows[i].repeat);
    cells_of_block[rows[i].block].insert(rows[i].cell);
    distinct.insert({rows[i].cell, rows[i].repeat});
    EXPECT_GE(rows[i].block, rows[i > 0 ? i - 1 : 0].block);
  }
  EXPECT_EQ(distinct.size(), rows.size());
  ASSERT_EQ(cells_of_block.size(), 3u);
  EXPECT_EQ(cells_of_block[0], cells_of_block[1]);
  EXPECT_EQ(cells_of_block[0], cells_of_block[2]);
  // The order differs from block to block, and comes again with the same seed.
  const auto order = [](const std::vector<PlannedRow>& all, std::int64_t block) {
    std::vector<std::int64_t> cells;
    for (const PlannedRow& row : all) {
      if (row.block == block) cells.push_back(row.cell);
    }
    return cells;
  };
  EXPECT_NE(order(rows, 0), order(rows, 1));
  EXPECT_EQ(order(rows, 0), order(rows_of(good_study(text)).value(), 0));
  std::string other = text;
  other.replace(other.find("seed = 5"), 8, "seed = 6");
  EXPECT_NE(order(rows, 0), order(rows_of(good_study(other)).value(), 0));
}

TEST(Designs, BlocksMayBePartsOfARepeatOrSeveralRepeats) {
  const std::string text = std::string(kHead) +
                           "[factors]\nparallel.zero = [0, 1, 2, 3]\n"
                           "train.seed = [1, 2, 3]\n[design]\n";
  std::map<std::int64_t, int> sizes;
  for (const PlannedRow& row : rows_of(good_study(text + "repeats = 2\nblocks = 4\n")).value()) {
    ++sizes[row.block];
    EXPECT_EQ(row.block / 2, row.repeat);
  }
  EXPECT_EQ(sizes, (std::map<std::int64_t, int>{{0, 6}, {1, 6}, {2, 6}, {3, 6}}));
  sizes.clear();
  for (const PlannedRow& row : rows_of(good_study(text + "repeats = 4\nblocks = 2\n")).value()) {
    ++sizes[row.block];
  }
  EXPECT_EQ(sizes, (std::map<std::int64_t, int>{{0, 24}, {1, 24}}));
}

TEST(Designs, AFractionHasAllPairsEvenly) {
  const std::string text =
      std::string(kHead) +
      "[factors]\nparallel.zero = [0, 1, 2, 3]\nparallel.tp = [1, 2]\nparallel.pp = [1, 2]\n"
      "train.recompute = [\"none\", \"selective\", \"full\"]\nnodes = [1, 2, 4, 8]\n[design]\n"
      "kind = \"fraction\"\ncells = 48\n";
  const StudyFile study = good_study(text);
  const auto cells = cells_of(study).value();
  ASSERT_EQ(cells.size(), 48u);
  EXPECT_EQ(std::set(cells.begin(), cells.end()).size(), 48u);
  for (std::size_t f = 0; f < study.factors.size(); ++f) {
    for (std::size_t g = f + 1; g < study.factors.size(); ++g) {
      std::map<std::pair<std::size_t, std::size_t>, int> counts;
      for (const auto& cell : cells) ++counts[{cell[f], cell[g]}];
      const std::size_t pairs = study.factors[f].levels.size() * study.factors[g].levels.size();
      EXPECT_EQ(counts.size(), pairs) << study.factors[f].name << " x " << study.factors[g].name;
      for (const auto& [pair, count] : counts) {
        EXPECT_NEAR(count, 48.0 / static_cast<double>(pairs), 1.01);
      }
    }
  }
  std::string sample = text;
  sample.replace(sample.find("fraction"), 8, "sample");
  const auto sampled = cells_of(good_study(sample)).value();
  EXPECT_EQ(std::set(sampled.begin(), sampled.end()).size(), 48u);
  EXPECT_NE(sampled, cells);
}

TEST(StudyRuns, KeepTheGlobalBatchOrSayWhyNot) {
  const StudyFile study = good_study(
      std::string(kHead) +
      "[factors]\nbatch.micro_batch = [1, 2, 3]\nnodes = [1, 2]\nparallel.tp = [1, 2]\n");
  const auto fits = run_of(study, {1, 1, 0});
  ASSERT_TRUE(fits.ok()) << fits.error().message;
  EXPECT_EQ(fits.value().config.batch.accumulate, 2);  // 8 sequences on 2 ranks, 2 at a time
  EXPECT_TRUE(testing::contains(run_of(study, {2, 0, 0}).error().message, "global batch of 8"));
  EXPECT_EQ(run_of(study, {0, 0, 1}).error().code, ErrorCode::kUsage);  // tp 2 on one rank

  const StudyFile counted =
      good_study(std::string(kHead) + "[factors]\nbatch.accumulate = [1, 4]\nnodes = [1, 2]\n");
  EXPECT_EQ(run_of(counted, {1, 1}).value().config.batch.micro_batch, 1);
  EXPECT_EQ(run_of(counted, {0, 1}).value().config.batch.micro_batch, 4);
}

// --- The program ---------------------------------------------------------------------------------

class StudyCommand : public ::testing::Test {
 protected:
  // Twelve rows, four of which cannot be, each a fraction of a second.
  std::string write_study(const std::string& more = "") {
    const std::string file = (folder_.path() / "quick.toml").string();
    const std::string text = std::string(kHead) +
                             "train.threads = 1\n[factors]\nbatch.micro_batch = [2, 3, 4]\n"
                             "train.seed = [1, 2]\n[design]\nrepeats = 2\n[measure]\nsteps = 2\n"
                             "warmup = 1\n" +
                             more;
    EXPECT_TRUE(write_file(file, text).ok());
    return file;
  }
  std::string out(const std::string& name) const { return (folder_.path() / name).string(); }
  static std::vector<SqlRow> rows(const std::string& folder, const std::string& columns) {
    const auto database =
        SqlDatabase::open(folder + "/study.sqlite", SqlDatabase::Mode::kRead).value();
    return database.query("SELECT " + columns + " FROM runs ORDER BY id").value();
  }
  // What must be the same whatever happened on the way.
  static constexpr const char* kLasting =
      "id, cell, repeat, block, position, origin, settings, status, reason, command, exit, "
      "memory_bytes, host_bytes, bytes_sent, final_loss, fingerprint, version";
  const TemporaryFolder folder_;
};

// Layouts of one training have one loss; a row with another is not a result.
TEST_F(StudyCommand, FindsARowThatTrainsSomethingElse) {
  // Makes the first loss of one training larger, and runs another row of it again.
  const auto resume_after = [&](const std::string& folder, double factor) {
    {
      const auto database =
          SqlDatabase::open(folder + "/study.sqlite", SqlDatabase::Mode::kWrite).value();
      const auto done = database
                            .query(
                                "SELECT id FROM runs WHERE status != 'impossible' AND settings "
                                "LIKE '%\"train.seed\":1%' ORDER BY id")
                            .value();
      EXPECT_EQ(done.size(), 4u);
      EXPECT_TRUE(database
                      .run("UPDATE runs SET final_loss = final_loss * ? WHERE id = ?",
                           {factor, integer_in(done[0][0])})
                      .ok());
      EXPECT_TRUE(
          database.run("UPDATE runs SET status = 'planned' WHERE id = ?", {integer_in(done[1][0])})
              .ok());
    }
    return testing::quintet("study resume " + folder);
  };
  const std::string file = write_study();
  ASSERT_EQ(testing::quintet("study run " + file + " --out " + out("a")).exit_code, 0);
  const Outcome few = resume_after(out("a"), 1.001);
  EXPECT_TRUE(few.says("1 failed")) << few.output;
  EXPECT_TRUE(few.says("the same training in another layout")) << few.output;

  // After many steps layouts differ by what their sums' order has become.
  std::string text = read_file(file).value();
  text.replace(text.find("steps = 2"), 9, "steps = 30");
  ASSERT_TRUE(write_file(file, text).ok());
  ASSERT_EQ(testing::quintet("study run " + file + " --out " + out("b")).exit_code, 0);
  const Outcome many = resume_after(out("b"), 1.001);
  EXPECT_TRUE(many.says("0 failed")) << many.output;
  EXPECT_TRUE(resume_after(out("b"), 1.2).says("1 failed"));
}

TEST_F(StudyCommand, RunsAndSaysWhatThereIs) {
  const std::string file = write_study();
  const Outcome run = testing::quintet("study run " + file + " --out " + out("a"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_TRUE(run.says("12 rows, 8 done, 4 impossible, 0 failed")) << run.output;
  const Outcome status = testing::quintet("study status " + out("a"));
  EXPECT_TRUE(status.says("4 impossible: a global batch of 8 is not a multiple")) << status.output;
  EXPECT_TRUE(testing::quintet("study status --json " + out("a")).says("\"done\": 8"));

  const auto database =
      SqlDatabase::open(out("a") + "/study.sqlite", SqlDatabase::Mode::kRead).value();
  const auto factors = database.query("SELECT name, numeric, levels FROM factors").value();
  ASSERT_EQ(factors.size(), 2u);
  EXPECT_EQ(text_in(factors[0][0]), "batch.micro_batch");
  EXPECT_EQ(integer_in(factors[0][1]), 1);
  EXPECT_EQ(text_in(factors[0][2]), "[2,3,4]");
  EXPECT_EQ(integer_in(factors[1][1]), 0) << "a seed is no quantity";
  const auto done = database
                        .query(
                            "SELECT step_seconds, step_seconds_all, tokens_per_second, books, "
                            "command, memory_bytes, fingerprint FROM runs WHERE status = 'done'")
                        .value();
  ASSERT_EQ(done.size(), 8u);
  for (const SqlRow& row : done) {
    EXPECT_GT(real_in(row[0]), 0);
    EXPECT_EQ(parse_json(text_in(row[1]), "x").value().size(), 2u);
    EXPECT_GT(real_in(row[2]), 0);
    EXPECT_GT(number_in(parse_json(text_in(row[3]), "x").value(), "compute", 0), 0);
    EXPECT_TRUE(testing::contains(text_in(row[4]), "quintet train --set"));
    EXPECT_GT(integer_in(row[5]), 100000);
    EXPECT_EQ(text_in(row[6]).size(), 16u);
  }
  EXPECT_EQ(std::filesystem::exists(out("a") + "/runs/00001/log.txt"), false);

  // Once more does nothing; another study does not touch it.
  const auto before = read_file(out("a") + "/study.sqlite").value();
  EXPECT_EQ(testing::quintet("study run " + file + " --out " + out("a")).exit_code, 0);
  EXPECT_EQ(testing::quintet("study resume " + out("a")).exit_code, 0);
  const std::string another = write_study("timeout = 100\n");
  const Outcome refused = testing::quintet("study run " + another + " --out " + out("a"));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(refused.says("another study")) << refused.output;
  EXPECT_EQ(read_file(out("a") + "/study.sqlite").value(), before);
}

TEST_F(StudyCommand, OtherDatabasesAndFoldersAreLeftAlone) {
  const std::string file = write_study();
  ASSERT_TRUE(make_directories(out("foreign")).ok());
  ASSERT_TRUE(SqlDatabase::open(out("foreign") + "/study.sqlite", SqlDatabase::Mode::kCreate)
                  .value()
                  .run("CREATE TABLE mine(x)")
                  .ok());
  const auto before = read_file(out("foreign") + "/study.sqlite").value();
  const Outcome foreign = testing::quintet("study run " + file + " --out " + out("foreign"));
  EXPECT_EQ(foreign.exit_code, 3) << foreign.output;
  EXPECT_TRUE(foreign.says("something else")) << foreign.output;
  EXPECT_EQ(read_file(out("foreign") + "/study.sqlite").value(), before);
  ASSERT_TRUE(make_directories(out("text")).ok());
  ASSERT_TRUE(write_file(out("text") + "/study.sqlite", std::string(5000, 'x')).ok());
  EXPECT_EQ(testing::quintet("study run " + file + " --out " + out("text")).exit_code, 3);
  EXPECT_EQ(testing::quintet("study resume " + out("text")).exit_code, 3);
  EXPECT_EQ(testing::quintet("study status " + out("text")).exit_code, 3);
  EXPECT_EQ(testing::quintet("study resume " + out("nothing")).exit_code, 3);
  EXPECT_EQ(testing::quintet("study status " + out("nothing")).exit_code, 3);
  EXPECT_EQ(testing::quintet("study run " + out("nothing.toml")).exit_code, 3);
}

pid_t start_study(const std::string& arguments) {
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string line =
        "exec " + std::string(QUINTET_BINARY) + " study " + arguments + " >/dev/null 2>&1";
    ::execl("/bin/sh", "sh", "-c", line.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  return child;
}

TEST_F(StudyCommand, KilledAtRandomMomentsItHasTheRowsOfAnUndisturbedOne) {
  const std::string file = write_study();
  ASSERT_EQ(testing::quintet("study run " + file + " --out " + out("calm")).exit_code, 0);
  std::mt19937 random(20261115);
  // The first kills come while the store is being made, later ones at any row; every other is
  // polite.
  int endings = 0;
  std::string how = "run " + file + " --out " + out("killed");
  for (int i = 0; i < 12; ++i) {
    const pid_t child = start_study(how);
    ::usleep(static_cast<useconds_t>(1000 + random() % (i < 4 ? 60000 : 400000)));
    ::kill(child, i % 2 == 0 ? SIGKILL : SIGTERM);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    endings += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
  }
  EXPECT_GT(endings, 3);
  const Outcome last = testing::quintet("study " + how);
  ASSERT_EQ(last.exit_code, 0) << last.output;
  EXPECT_EQ(rows(out("killed"), kLasting), rows(out("calm"), kLasting));
  for (const SqlRow& row : rows(out("killed"), "status, started, finished, step_seconds")) {
    EXPECT_TRUE(text_in(row[0]) != "done" || real_in(row[2]) >= real_in(row[1]));
  }
  EXPECT_EQ(testing::run_shell("pgrep -f '[o]utput.folder=.*" + out("killed") + "'").output, "")
      << "something still runs";
}

TEST_F(StudyCommand, TwoAtATimeAreRefused) {
  const std::string file = write_study();
  auto store = StudyStore::open(out("held"), true);
  ASSERT_TRUE(store.ok());
  const Outcome second = testing::quintet("study run " + file + " --out " + out("held"));
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_TRUE(second.says("another process")) << second.output;
}

TEST_F(StudyCommand, SimulatesWhereAMachineIsNamed) {
  const std::string file = (folder_.path() / "simulated.toml").string();
  ASSERT_TRUE(
      write_file(file,
                 "[study]\nquestion = \"q\"\nglobal_batch = 16\n[fixed]\nmachine = \"" +
                     std::string(QUINTET_SOURCE_DIR) +
                     "/machines/dgx-a100.toml\"\nranks_per_node = 2\ntrain.device = \"cuda\"\n"
                     "train.precision = \"bf16\"\nbatch.source = 64\nbatch.micro_batch = 2\n"
                     "parallel.zero = 1\n[factors]\nmodel.name = [\"mini\", \"mt5-xxl\"]\n"
                     "nodes = [1, 2]\nbandwidth = [\"1gbit\", \"200gbit\"]\n")
          .ok());
  const Outcome run = testing::quintet("study run " + file + " --out " + out("s"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_TRUE(run.says("8 rows, 4 done, 4 impossible, 0 failed")) << run.output;
  std::map<std::string, double> seconds;
  for (const SqlRow& row :
       rows(out("s"), "settings, origin, status, step_seconds, reason, books")) {
    EXPECT_EQ(text_in(row[1]), "simulated");
    const Json settings = parse_json(text_in(row[0]), "settings").value();
    if (text_in(row[2]) != "done") {
      EXPECT_EQ(settings["model.name"], "mt5-xxl");
      EXPECT_TRUE(testing::contains(text_in(row[4]), "does not fit")) << text_in(row[4]);
      continue;
    }
    EXPECT_GT(number_in(parse_json(text_in(row[5]), "books").value(), "compute", 0), 0);
    seconds[fmt::format("{} nodes {}", to_text(settings["nodes"]),
                        to_text(settings["bandwidth"]))] = real_in(row[3]);
  }
  ASSERT_EQ(seconds.size(), 4u);
  // Links between nodes matter where there is more than one.
  EXPECT_DOUBLE_EQ(seconds["1 nodes 1.0"], seconds["1 nodes 200.0"]);
  EXPECT_GT(seconds["2 nodes 1.0"], 1.5 * seconds["2 nodes 200.0"]);
}

TEST_F(StudyCommand, RunsThatFailAreRowsWithTheirLastWords) {
  // A trace that cannot be written: found by the run, not by the study.
  const std::string file = (folder_.path() / "failing.toml").string();
  ASSERT_TRUE(write_file(file, std::string(kHead) +
                                   "batch.micro_batch = 2\n[factors]\noutput.trace = [\"\", "
                                   "\"/nosuch/trace.json\"]\n[measure]\nsteps = 3\n")
                  .ok());
  const Outcome run = testing::quintet("study run " + file + " --out " + out("f"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_TRUE(run.says("1 done, 0 impossible, 1 failed")) << run.output;
  const auto all = rows(out("f"), "settings, status, exit, reason");
  for (const SqlRow& row : all) {
    if (text_in(row[1]) != "failed") continue;
    EXPECT_EQ(integer_in(row[2]), 7);
    EXPECT_TRUE(testing::contains(text_in(row[3]), "/nosuch/trace.json")) << text_in(row[3]);
  }
}

}  // namespace
}  // namespace quintet
