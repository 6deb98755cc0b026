// What goes wrong on one rank ends all, with one message, its exit code, and nothing lost that need
// not be.
#include <set>

#include "tests/support/ranks.h"

namespace quintet {
namespace {

using testing::contains;
using testing::disturb;
using testing::Disturbed;
using testing::kSmallRun;
using testing::Outcome;
using testing::quintet;
using testing::run_shell;
using Processes = std::map<int, pid_t>;

std::string long_run(const Path& folder, int ranks, const std::string& more) {
  return std::string(QUINTET_BINARY) + " launch -n " + std::to_string(ranks) + " --threads 1 --" +
         kSmallRun + "--set train.steps=1000000 --set output.folder=" + folder.string() + " " +
         more;
}

int times_said(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

// One message, and no other word of an error.
void expect_end(const Outcome& outcome, int code, const std::string& message) {
  EXPECT_EQ(outcome.exit_code, code) << outcome.output;
  EXPECT_TRUE(outcome.says(message)) << outcome.output;
  EXPECT_EQ(times_said(outcome.output, "quintet: "), 1) << outcome.output;
}

Disturbed signal_one(int rank, int signal) {
  const TemporaryFolder folder;
  return disturb(folder.path(),
                 long_run(folder.path(), 4,
                          "--micro-batch 4 --accumulate 2 --tp 2 --zero 1 "
                          "--set parallel.timeout=3"),
                 4, [&](const Processes& ranks) {
                   if (ranks.contains(rank)) ::kill(ranks.at(rank), signal);
                 });
}

TEST(Faults, AKilledRankEndsTheRun) {
  for (const int rank : {0, 2}) {
    expect_end(signal_one(rank, SIGKILL).outcome, 8,
               "rank " + std::to_string(rank) + " was lost in step ");
  }
}

TEST(Faults, AStoppedRankEndsTheRun) {
  for (const int rank : {0, 3}) {
    expect_end(signal_one(rank, SIGSTOP).outcome, 8,
               "rank " + std::to_string(rank) + " has been silent for 3 s in step ");
  }
}

TEST(Faults, ATerminatedRankStopsAllAfterTheStep) {
  const auto stopped = signal_one(1, SIGTERM).outcome;
  expect_end(stopped, 130, "stopped after step ");
  EXPECT_TRUE(stopped.says("mean of all steps")) << "no time breakdown\n" << stopped.output;
}

// Its watchdog's thread still beats.
TEST(Faults, ARankWhoseMainThreadHangsIsNamedWithItsOp) {
  for (const int rank : {0, 1}) {
    const TemporaryFolder folder;
    bool frozen = false;
    const Disturbed run = disturb(
        folder.path(), long_run(folder.path(), 2, "--micro-batch 32 --set parallel.timeout=1"), 2,
        [&](const Processes& ranks) {
          frozen = ranks.contains(rank) && testing::freeze_main_thread(ranks.at(rank));
          if (!frozen && ranks.contains(rank)) ::kill(ranks.at(rank), SIGKILL);
          // The one who froze it must live until it is over.
          while (frozen && !testing::ranks_of(folder.path().string()).empty())
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        });
    if (!frozen) GTEST_SKIP() << "the system does not let us stop single threads";
    expect_end(run.outcome, 8, "rank " + std::to_string(rank) + " has been stuck for ");
    EXPECT_TRUE(run.outcome.says(", in ")) << run.outcome.output;
  }
}

// By what they say all of them wait: only the processor time tells who does not.
TEST(Faults, ARankThatStopsWhileItWaitsIsNamed) {
  for (const char* rank : {"0", "1", "2"}) {
    const auto run = run_shell(std::string("QUINTET_FAULT='stall ") + rank +
                               " 3' " QUINTET_BINARY " launch -n 3 --threads 1 --" + kSmallRun +
                               "--micro-batch 2 --set train.steps=5 --set parallel.timeout=1");
    expect_end(run, 8, std::string("rank ") + rank + " has been stuck for ");
    EXPECT_TRUE(
        run.says("in step 3, in comparing notes with the other ranks; its main thread "
                 "does not run"))
        << run.output;
  }
}

TEST(Faults, RanksSuspendedTogetherGoOn) {
  const TemporaryFolder folder;
  const auto signal_all = [](const Processes& ranks, int signal) {
    for (const auto& [rank, process] : ranks) ::kill(process, signal);
  };
  const Disturbed run =
      disturb(folder.path(), long_run(folder.path(), 2, "--micro-batch 2 --set parallel.timeout=1"),
              2, [&](const Processes& ranks) {
                signal_all(ranks, SIGSTOP);
                std::this_thread::sleep_for(std::chrono::seconds(3));
                const std::size_t before = testing::steps_done(folder.path());
                signal_all(ranks, SIGCONT);
                while (testing::steps_done(folder.path()) < before + 5 &&
                       !testing::ranks_of(folder.path().string()).empty())
                  std::this_thread::sleep_for(std::chrono::milliseconds(50));
                if (ranks.contains(0)) ::kill(ranks.at(0), SIGTERM);
              });
  expect_end(run.outcome, 130, "stopped after step ");
}

TEST(Faults, AnExceptionOnAnyRankEndsTheRun) {
  for (const char* rank : {"0", "1"}) {
    const auto ordered = [&](const char* kind) {
      return run_shell(std::string("QUINTET_FAULT='") + kind + " " + rank +
                       " 3' " QUINTET_BINARY " launch -n 2 --threads 1 --" + kSmallRun +
                       "--micro-batch 2 --zero 3 --set train.steps=5");
    };
    const std::string who = std::string("rank ") + rank;
    expect_end(ordered("throw"), 1, who + " failed in step 3: internal error, please report it: ");
    expect_end(ordered("memory"), 6, who + " failed in step 3: the system refused memory");
    // The others may still be finishing the step before, and know of no later one.
    expect_end(ordered("exit"), 8, who + " was lost in step ");
  }
}

TEST(Faults, ARankAloneThatHangsEnds) {
  expect_end(run_shell("QUINTET_FAULT='hang 0 3' " QUINTET_BINARY + kSmallRun +
                       "--micro-batch 2 --set train.steps=5 --set parallel.timeout=1"),
             8, "s in step 3, in running the step");
}

TEST(Faults, ALossThatIsNoNumberEndsAllRanksWithItsCode) {
  expect_end(quintet("launch -n 2 --threads 1 --" + kSmallRun +
                     "--micro-batch 2 --set train.steps=50 --set schedule.peak=100 "
                     "--set optimizer.weight_decay=1 --set schedule.kind=constant --set "
                     "schedule.warmup_steps=0"),
             5, "not finite");
}

std::string on_two_ranks(const std::string& first, const std::string& second) {
  return "mpirun --quiet --oversubscribe --allow-run-as-root -x OMP_NUM_THREADS=1 -n 1 " + first +
         " : -n 1 " + second;
}

TEST(Faults, ARankWithoutMemoryNamesItself) {
  // One of them may have less memory than the step takes.
  const std::string train = std::string(QUINTET_BINARY) +
                            " train --model mt5-small --micro-batch 1 --source 32 --zero 0 "
                            "--set train.steps=2";
  const std::string little = "sh -c 'ulimit -v 4000000; exec " + train + "'";
  expect_end(run_shell(on_two_ranks(train, little)), 6,
             "rank 1 failed before the first step: the system refused");
  expect_end(run_shell(on_two_ranks(little, train)), 6,
             "rank 0 failed before the first step: the system refused");
}

TEST(Faults, RanksWithOtherConfigurationsAreNamed) {
  const std::string train = std::string(QUINTET_BINARY) + kSmallRun + "--set train.steps=3 ";
  for (const auto& [first, second, difference] :
       {std::tuple{"--set train.seed=1", "--set train.seed=2", "train.seed = 2 (rank 0: 1)"},
        {"--micro-batch 2", "--micro-batch 4", "batch.micro_batch = 4 (rank 0: 2)"},
        {"--set train.steps=4", "", "train.steps = 3 (rank 0: 4)"}}) {
    expect_end(run_shell(on_two_ranks(train + first, train + second)), 2,
               std::string("rank 1 has another configuration than rank 0: ") + difference);
  }
  const TemporaryFolder folder;
  std::ofstream((folder.path() / "run.toml").string()) << "[train]\nsteps = 2\n";
  const std::string here =
      "sh -c 'cd " + folder.path().string() + " && exec " QUINTET_BINARY + " train run.toml'";
  expect_end(run_shell(on_two_ranks(here, std::string(QUINTET_BINARY) + " train run.toml")), 3,
             "rank 1: run.toml: no such file");
}

TEST(Faults, ProcessesThatMpiDoesNotBringTogetherAreRefused) {
  for (const char* rank : {"0", "1"}) {
    expect_end(run_shell(std::string("SLURM_NTASKS=2 SLURM_PROCID=") + rank + " " QUINTET_BINARY +
                         kSmallRun +
                         "--set train.steps=2 2>&1 | sed 's/^quintet: this/quintet: "
                         "this/'; exit ${PIPESTATUS[0]:-2}"),
               2, "this process is one of 2 that were started together");
  }
}

// Training goes on without its checkpoints, and its end says that they are missing.
TEST(Faults, ALostFolderIsTheRunsExitCode) {
  const TemporaryFolder folder;
  const Path out = folder.path() / "run";
  const Disturbed run = disturb(out,
                                long_run(out, 2,
                                         "--micro-batch 2 --set output.save_every=1 "
                                         "--set train.steps=150"),
                                2, [&](const Processes&) {
                                  // Something else is now where the folder was.
                                  std::filesystem::rename(out, folder.path() / "gone");
                                  std::ofstream(out.string()) << "in the way";
                                });
  EXPECT_EQ(run.outcome.exit_code, 7) << run.outcome.output;
  EXPECT_TRUE(run.outcome.says(out.string())) << run.outcome.output;
}

// ---- Signals to `launch`.

struct Signalled {
  Disturbed run;
  std::set<std::string> checkpoints;
};

// Signals to launch itself, one after the other.
Signalled signal_launch(const std::vector<int>& signals) {
  const TemporaryFolder folder;
  Signalled result;
  const Path own = folder.path() / "launch.pid";
  result.run =
      disturb(folder.path() / "run",
              "sh -c 'echo $$ > " + own.string() + "; exec " +
                  long_run(folder.path() / "run", 2, "--micro-batch 2") + "'",
              2, [&](const Processes&) {
                const pid_t launch = std::stoi(testing::text_of(own));
                for (const int signal : signals) {
                  const Path saved = folder.path() / "run/checkpoints";
                  ::kill(launch, signal);
                  // Until it has been answered.
                  while (signal == SIGUSR1 &&
                         (!std::filesystem::exists(saved) || std::filesystem::is_empty(saved)) &&
                         !testing::ranks_of(folder.path().string()).empty())
                    std::this_thread::sleep_for(std::chrono::milliseconds(20));
                }
              });
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "run/checkpoints"))
    result.checkpoints.insert(entry.path().filename());
  return result;
}

TEST(Signals, WhatEndsLaunchLetsTheRanksSave) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGXCPU}) {
    const Signalled end = signal_launch({signal});
    expect_end(end.run.outcome, 130, "stopped after step ");
    ASSERT_EQ(end.checkpoints.size(), 1u) << ::strsignal(signal);
    const std::string step = std::to_string(end.run.steps);
    EXPECT_EQ(*end.checkpoints.begin(), "step-" + std::string(8 - step.size(), '0') + step);
  }
}

TEST(Signals, OneSavesAndGoesOn) {
  const Signalled end = signal_launch({SIGUSR1, SIGTERM});
  expect_end(end.run.outcome, 130, "stopped after step ");
  EXPECT_EQ(end.checkpoints.size(), 2u);
}

// Nobody waits for the other at the batch that one no longer computes.
TEST(Signals, AnEvaluationStopsOnAllRanks) {
  const TemporaryFolder folder;
  const std::string run = (folder.path() / "run").string();
  const Outcome trained =
      quintet("train --threads 1 --set train.steps=1 --set output.folder=" + run);
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::string evaluation =
      " evaluate " + run + " --threads 1 --set validate.sequences=1000000000";
  const std::string interrupt = "timeout --preserve-status -s INT 4 " QUINTET_BINARY;
  expect_end(run_shell(interrupt + evaluation), 130, "sequences of the validation");
  expect_end(run_shell(interrupt + " launch -n 2 --" + evaluation), 130,
             "sequences of the validation");
}

TEST(Signals, ARunStopsWhenItsTimeIsUp) {
  const TemporaryFolder folder;
  const Outcome outcome =
      run_shell(long_run(folder.path(), 2, "--micro-batch 2 --set train.max_hours=0.0003"));
  expect_end(outcome, 130, "train.max_hours = 0.0003 are over; continue with output.resume=true");
}

}  // namespace
}  // namespace quintet
