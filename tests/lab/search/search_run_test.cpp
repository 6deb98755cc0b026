// Searches as users meet them: whole ones, interrupted ones, and their pages.
#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "base/json.h"
#include "lab/search/journal.h"
#include "lab/search/trial_run.h"
#include "tests/lab/markup_check.h"
#include "tests/support/command.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

using testing::Outcome;
using testing::quintet;

// A model so small that a trial is a blink.
constexpr const char* kSmall =
    "[fixed]\nmodel.name = \"tiny\"\nbatch.micro_batch = 2\nbatch.source = 16\ntrain.threads = 1\n"
    "schedule.kind = \"constant\"\n";

std::string write_search(const TemporaryFolder& folder, const std::string& head,
                         const std::string& rest) {
  const Path file = folder.path() / "s.toml";
  EXPECT_TRUE(write_file(file, "[search]\nquestion = \"which rate?\"\nvalidation_sequences = 8\n" +
                                   head + "\n" + kSmall + rest)
                  .ok());
  return file.string();
}

std::vector<Trial> trials_in(const Path& folder) {
  auto journal = SearchJournal::view(folder);
  EXPECT_TRUE(journal.ok()) << journal.error().message;
  return journal.value().trials().value();
}

// Everything that was decided and what came of it, but for times.
std::string story_of(const Path& folder) {
  std::map<std::int64_t, std::string> jobs;
  for (const Trial& trial : trials_in(folder)) {
    for (const RungResult& result : trial.rungs) {
      jobs[result.job] =
          fmt::format("{}: trial {} ({}) to rung {}, {} steps: {} {} {}\n", result.job, trial.id,
                      settings_text(trial.settings), result.rung, result.steps, result.status,
                      result.value, result.reason);
    }
  }
  std::string story;
  for (const auto& [job, words] : jobs) story += words;
  return story;
}

constexpr const char* kRates =
    "[space]\nschedule.peak = {log = [1e-4, 1e-1]}\nschedule.warmup_steps = {integer = [1, 4]}\n";

TEST(Searches, RunFromAFileToABestConfiguration) {
  const TemporaryFolder folder;
  const std::string file = write_search(folder, "trials = 6\nstartup = 3",
                                        std::string(kRates) + "[budget]\nsteps = 9\nrungs = 2\n");
  const Path out = folder.path() / "out";
  const Outcome plan = quintet("search run " + file + " --dry-run");
  EXPECT_EQ(plan.exit_code, 0) << plan.output;
  EXPECT_TRUE(plan.says("compared after 3, 9 steps")) << plan.output;
  const Outcome run = quintet("search run " + file + " --out " + out.string());
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_TRUE(run.says("best: trial")) << run.output;
  const std::vector<Trial> trials = trials_in(out);
  ASSERT_EQ(trials.size(), 6u);
  const Trial& best = *best_trial(trials);
  EXPECT_EQ(best.reached(), 1);

  // It went on from its checkpoint: no step twice, and the end is that of a run in one piece.
  const Path folder_of_best = trial_folder(out, best.id);
  const auto curve = learning_curve(folder_of_best);
  ASSERT_EQ(curve.size(), 9u);
  for (std::size_t i = 0; i < curve.size(); ++i)
    EXPECT_EQ(curve[i].step, static_cast<std::int64_t>(i) + 1);
  EXPECT_TRUE(
      testing::contains(read_file(folder_of_best / "log.txt").value(), "resuming after step 3"));
  const Path alone = folder.path() / "alone";
  const Outcome again = quintet("train " + (out / "best.toml").string() +
                                " --set train.threads=1 --set output.folder=" + alone.string());
  ASSERT_EQ(again.exit_code, 0) << again.output;
  EXPECT_EQ(learning_curve(alone).back().validation, best.value_at(1));

  // Once done, done: nothing runs again.
  const std::string story = story_of(out);
  EXPECT_EQ(quintet("search run " + file + " --out " + out.string()).exit_code, 0);
  EXPECT_EQ(quintet("search resume " + out.string()).exit_code, 0);
  EXPECT_EQ(story_of(out), story);

  const Outcome status = quintet("search status " + out.string() + " --json");
  ASSERT_EQ(status.exit_code, 0) << status.output;
  const Json parsed = parse_json(status.output, "output").value();
  EXPECT_EQ(parsed.at("best").at("trial"), best.id);
  EXPECT_EQ(parsed.at("by_status").at("done"), 6);

  const Outcome page = quintet("search report " + out.string());
  ASSERT_EQ(page.exit_code, 0) << page.output;
  const std::string html = read_file(out / "report.html").value();
  EXPECT_EQ(testing::markup_error(html), "");
  for (const char* part : {"which rate?", "schedule.peak", "Recommended configuration",
                           "Learning curves on tiny", "device-seconds", "What matters"})
    EXPECT_TRUE(testing::contains(html, part)) << part;

  // Another search does not get into the folder.
  const std::string other =
      write_search(folder, "trials = 7", std::string(kRates) + "[budget]\nsteps = 9\n");
  const Outcome refused = quintet("search run " + other + " --out " + out.string());
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(refused.says("holds another search")) << refused.output;
}

TEST(Searches, TrialsThatDivergeAreResults) {
  const TemporaryFolder folder;
  const std::string file =
      write_search(folder, "trials = 4\nsampler = \"sobol\"\nobjective = \"loss\"",
                   "optimizer.clip_norm = 0\ntrain.on_spike = \"stop\"\ntrain.spike_window = "
                   "3\ntrain.spike_loss = "
                   "1.5\ntrain.spike_norm = 0\n[space]\nschedule.peak = {choice = [0.001, 100.0]}\n"
                   "optimizer.beta1 = {choice = [0.0, 0.9]}\n[budget]\nsteps = 60\n");
  const Path out = folder.path() / "out";
  const Outcome run = quintet("search run " + file + " --out " + out.string());
  ASSERT_EQ(run.exit_code, 0) << run.output;
  std::int64_t diverged = 0;
  for (const Trial& trial : trials_in(out)) diverged += trial.rungs[0].status == "diverged" ? 1 : 0;
  const Trial best = *best_trial(trials_in(out));
  EXPECT_EQ(best.settings.at("schedule.peak"), TomlScalar(0.001));
  EXPECT_EQ(diverged, 2) << run.output;
  EXPECT_EQ(quintet("search report " + out.string()).exit_code, 0);
}

TEST(Searches, ReportsWhatHelpsToChoose) {
  const TemporaryFolder folder;
  const std::string file =
      write_search(folder, "trials = 2\nsampler = \"sobol\"",
                   "batch.accumulate = 3\ntrain.noise_scale = true\nvalidate.every = 2\n" +
                       std::string(kRates) + "[budget]\nsteps = 6\n");
  const Path out = folder.path() / "out";
  ASSERT_EQ(quintet("search run " + file + " --out " + out.string()).exit_code, 0);
  // One trial had a spike, and a noise scale that is known.
  const Path metrics = trial_folder(out, 2) / "metrics.jsonl";
  std::string lines = read_file(metrics).value();
  const std::size_t fifth = lines.find("\"step\":5,");
  ASSERT_NE(fifth, std::string::npos) << lines;
  lines.insert(fifth, "\"spike\":\"loss 9\",");
  lines += "{\"step\":7,\"gradient_noise_scale\":123.5,\"validation\":{\"smoothed\":4.625}}\n";
  ASSERT_TRUE(write_file(metrics, lines).ok());
  const std::vector<CurveStep> curve = learning_curve(trial_folder(out, 2));
  ASSERT_EQ(curve.size(), 7u);
  EXPECT_TRUE(curve[4].spike);
  EXPECT_FALSE(curve[3].spike);
  EXPECT_TRUE(std::isfinite(curve[1].smoothed)) << "validated at step 2";
  EXPECT_TRUE(std::isnan(curve[2].smoothed));

  const Outcome page = quintet("search report " + out.string());
  ASSERT_EQ(page.exit_code, 0) << page.output;
  const std::string html = read_file(out / "report.html").value();
  EXPECT_EQ(testing::markup_error(html), "");
  for (const char* part : {"1 of 2 trials had spikes", "1, the first at step 5", "123.5", "4.625",
                           "gradient noise scale, sequences", ">6<"})
    EXPECT_TRUE(testing::contains(html, part)) << part;
}

TEST(Searches, TwoAtATimeAndUpALadder) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_file(folder.path() / "s.toml",
                         "[search]\nquestion = \"?\"\ntrials = 4\nparallel = 2\n"
                         "validation_sequences = 8\n[fixed]\nbatch.micro_batch = 2\nbatch.source = "
                         "16\n[budget]\nsteps = 3\n[ladder]\nmodels = [\"tiny\", "
                         "\"mini\"]\npromote = 3\n" +
                             std::string(kRates))
                  .ok());
  const Path out = folder.path() / "out";
  const Outcome run =
      quintet("search run " + (folder.path() / "s.toml").string() + " --out " + out.string());
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const std::vector<Trial> trials = trials_in(out);
  ASSERT_EQ(trials.size(), 7u);
  EXPECT_EQ(best_trial(trials)->level, 1);
  ASSERT_EQ(quintet("search report " + out.string()).exit_code, 0);
  const std::string html = read_file(out / "report.html").value();
  EXPECT_TRUE(testing::contains(html, "From tiny to mini"));
  EXPECT_TRUE(testing::contains(read_file(out / "best.toml").value(), "name = \"mini\""));
}

// Another number of trials at a time must not decide what is possible.
TEST(Searches, MemoryIsLimitedWhateverRunsAtATime) {
  for (const int parallel : {1, 2}) {
    const TemporaryFolder folder;
    const std::string file =
        write_search(folder, fmt::format("trials = 2\nparallel = {}", parallel),
                     std::string(kRates) + "[budget]\nsteps = 3\n[place]\nmemory_gib = 0.01\n");
    const Path out = folder.path() / "out";
    const Outcome run = quintet("search run " + file + " --out " + out.string());
    EXPECT_TRUE(run.says("[place] memory_gib = 0.01")) << run.output;
    const std::vector<Trial> trials = trials_in(out);
    ASSERT_EQ(trials.size(), 2u);
    for (const Trial& trial : trials)
      EXPECT_EQ(trial.rungs[0].status, "out_of_memory") << parallel << " at a time";
  }
}

TEST(Searches, StepTimesArePlannedWithoutTraining) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_file(folder.path() / "s.toml",
                         "[search]\nquestion = \"which layout?\"\nobjective = \"step_seconds\"\n"
                         "sampler = \"random\"\ntrials = 9\nparallel = 2\n[place]\n"
                         "ranks_per_node = 4\nmachine = \"" QUINTET_SOURCE_DIR
                         "/machines/dgx-a100.toml\"\n[fixed]\nmodel.name = \"mini\"\nbatch.global "
                         "= 16\nbatch.micro_batch = 2\ntrain.device = \"cuda\"\n"
                         "[space]\nparallel.tp = {choice = [1, 2, 4]}\n"
                         "parallel.zero = {choice = [0, 1, 3]}\n")
                  .ok());
  const Path out = folder.path() / "out";
  const Outcome run =
      quintet("search run " + (folder.path() / "s.toml").string() + " --out " + out.string());
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const std::vector<Trial> trials = trials_in(out);
  EXPECT_EQ(trials.size(), 9u);
  EXPECT_GT(best_trial(trials)->value_at(0), 0);
  EXPECT_FALSE(std::filesystem::exists(trial_folder(out, 1) / "metrics.jsonl"));
  EXPECT_EQ(quintet("search report " + out.string()).exit_code, 0);
}

class KilledSearches : public ::testing::TestWithParam<const char*> {};

TEST_P(KilledSearches, EndAsUndisturbedAfterTwentyKills) {
  const TemporaryFolder folder;
  const std::string file = write_search(
      folder, fmt::format("trials = 12\nstartup = 4\nsampler = \"{}\"", GetParam()),
      "output.save_every = 5\n" + std::string(kRates) + "[budget]\nsteps = 45\nrungs = 3\n");
  const Path calm = folder.path() / "calm", killed = folder.path() / "killed";
  const auto began = std::chrono::steady_clock::now();
  const Outcome run = quintet("search run " + file + " --out " + calm.string());
  ASSERT_EQ(run.exit_code, 0) << run.output;
  // Kills come while it runs, however fast this machine is: where it is done before the twentieth,
  // all begins anew with shorter lives.
  std::chrono::duration<double> longest = (std::chrono::steady_clock::now() - began) / 15;
  std::mt19937 random(7);
  for (int kills = 0; kills < 20;) {
    const pid_t child = ::fork();
    if (child == 0) {
      const int nowhere = ::open("/dev/null", O_WRONLY);
      ::dup2(nowhere, STDOUT_FILENO);
      ::dup2(nowhere, STDERR_FILENO);
      ::execl(QUINTET_BINARY, QUINTET_BINARY, "search", "run", file.c_str(), "--out",
              killed.c_str(), nullptr);
      ::_exit(127);
    }
    std::this_thread::sleep_for(longest *
                                (0.1 + 0.9 * static_cast<double>(random() % 1000) / 1000));
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) {
      ASSERT_EQ(status, 0);
      std::filesystem::remove_all(killed);
      longest /= 2;
      kills = 0;
      continue;
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    ++kills;
  }
  const Outcome rest = quintet("search run " + file + " --out " + killed.string());
  ASSERT_EQ(rest.exit_code, 0) << rest.output;
  EXPECT_EQ(story_of(killed), story_of(calm));
  EXPECT_EQ(read_file(killed / "best.toml").value(), read_file(calm / "best.toml").value());
}

INSTANTIATE_TEST_SUITE_P(Samplers, KilledSearches, ::testing::Values("tpe", "gp"));

TEST(Searches, AnInterruptionSavesAndCanBeResumed) {
  const TemporaryFolder folder;
  const std::string file =
      write_search(folder, "trials = 2", std::string(kRates) + "[budget]\nsteps = 100000\n");
  const Path out = folder.path() / "out";
  const Outcome stopped =
      testing::run_shell("timeout --foreground -s INT 2 " QUINTET_BINARY " search run " + file +
                         " --out " + out.string() + "; echo exit $?");
  EXPECT_TRUE(stopped.says("search resume")) << stopped.output;
  const std::vector<Trial> trials = trials_in(out);
  ASSERT_EQ(trials.size(), 1u);
  EXPECT_TRUE(trials[0].pending());
  EXPECT_TRUE(std::filesystem::exists(trial_folder(out, 1) / "checkpoints"));
  const Outcome status = quintet("search status " + out.string());
  EXPECT_EQ(status.exit_code, 0) << status.output;
  EXPECT_TRUE(status.says("1 running")) << status.output;
  EXPECT_EQ(quintet("search report " + out.string()).exit_code, 0);
}

TEST(Searches, BadCallsAreRefused) {
  const TemporaryFolder folder;
  EXPECT_EQ(quintet("search run /no/such/file.toml").exit_code, 3);
  EXPECT_EQ(quintet("search status " + folder.path().string()).exit_code, 3);
  EXPECT_EQ(quintet("search resume " + folder.path().string()).exit_code, 3);
  EXPECT_EQ(quintet("search report " + folder.path().string()).exit_code, 3);
  ASSERT_TRUE(write_file(folder.path() / "s.toml",
                         "[search]\nquestion = \"?\"\n[budget]\nsteps = 2\n[space]\n"
                         "schedule.peak = {log = [0, 1]}\n")
                  .ok());
  const Outcome zero = quintet("search run " + (folder.path() / "s.toml").string() + " --out " +
                               (folder.path() / "out").string());
  EXPECT_EQ(zero.exit_code, 2);
  EXPECT_TRUE(zero.says("s.toml:6")) << zero.output;
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "out"));
}

}  // namespace
}  // namespace quintet
