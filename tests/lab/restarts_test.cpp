// `launch --restarts`: a run that loses ranks, hosts or its network ends like one that did not.
// What needs two hosts uses an emulated cluster (root and iproute2), and is skipped elsewhere.
#include "lab/restarts.h"

#include <cmath>
#include <fstream>

#include "base/json.h"
#include "lab/cluster.h"
#include "lab/host_list.h"
#include "tests/support/ranks.h"

namespace quintet {
namespace {

using testing::contains;
using testing::kSmallRun;
using testing::Outcome;
using testing::run_shell;
using testing::text_of;

// ---- Hosts.

TEST(Hosts, AreReadAndWritten) {
  const auto hosts = parse_hosts("node1:8,10.0.0.2,node1:2,node-3.cluster:4");
  ASSERT_TRUE(hosts.ok()) << hosts.error().message;
  EXPECT_EQ(hosts.value(),
            (std::vector<HostSlots>{{"node1", 10}, {"10.0.0.2", 1}, {"node-3.cluster", 4}}));
  EXPECT_EQ(hosts_text(hosts.value()), "node1:10,10.0.0.2:1,node-3.cluster:4");
  for (const char* text : {"", ",", "a:", "a:0", "a:-1", "a:x", "a:8x", "a:99999999999", "a b",
                           "-oProxyCommand=x", "a;b", "a,,b"}) {
    EXPECT_EQ(parse_hosts(text).error().code, ErrorCode::kUsage) << text;
  }
}

TEST(Hosts, AreReadFromAFile) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "hosts").string();
  std::ofstream(path)
      << "# ours\nnode1 slots=8 max_slots=16\n\n  node2 # the other\nnode1 slots=1\n";
  const auto hosts = read_hostfile(path);
  ASSERT_TRUE(hosts.ok()) << hosts.error().message;
  EXPECT_EQ(hosts.value(), (std::vector<HostSlots>{{"node1", 9}, {"node2", 1}}));
  for (const char* text : {"", "# none\n", "a slots\n", "a slots=0\n", "a cores=4\n", "a;b\n"}) {
    std::ofstream(path) << text;
    EXPECT_EQ(read_hostfile(path).error().code, ErrorCode::kBadInput) << text;
  }
  std::ofstream(path) << "node1 slots=2\nnode2 slots=zwei\n";
  EXPECT_TRUE(contains(read_hostfile(path).error().message, "hosts:2: \"slots=zwei\""));
  EXPECT_EQ(read_hostfile("/no/such/file").error().code, ErrorCode::kBadInput);
}

// The agent lets in whoever is in a file.
TEST(Hosts, ThatDoNotAnswerAreFound) {
  const TemporaryFolder folder;
  const std::string agent = (folder.path() / "agent").string();
  std::ofstream(agent) << "#!/bin/sh\ncase $1 in up*) shift; exec \"$@\";; slow) sleep 60;; esac\n"
                          "exit 255\n";
  std::filesystem::permissions(agent, std::filesystem::perms::owner_all);
  ::setenv("OMPI_MCA_plm_rsh_agent", agent.c_str(), 1);
  const auto there =
      answering_hosts({{"up1", 2}, {"gone", 2}, {"localhost", 1}, {"slow", 1}, {"up2", 4}}, 1);
  ::unsetenv("OMPI_MCA_plm_rsh_agent");
  EXPECT_EQ(hosts_text(there), "up1:2,localhost:1,up2:4");
}

// ---- Decisions.

TEST(Restarts, MendWhatMayBeMended) {
  for (const ErrorCode code : {ErrorCode::kPeerLost, ErrorCode::kInternal})
    EXPECT_TRUE(can_start_again({code, ""}, false));
  EXPECT_TRUE(can_start_again({ErrorCode::kOutOfMemory, ""}, true));
  EXPECT_FALSE(can_start_again({ErrorCode::kOutOfMemory, ""}, false));
  for (const ErrorCode code : {ErrorCode::kUsage, ErrorCode::kBadInput, ErrorCode::kMismatch,
                               ErrorCode::kNonFinite, ErrorCode::kIo, ErrorCode::kInterrupted})
    EXPECT_FALSE(can_start_again({code, ""}, true));
}

TEST(Restarts, MendAGpuThatFailed) {
  EXPECT_TRUE(
      can_start_again({ErrorCode::kIo, "rank 3 failed in step 7: the GPU failed: ..."}, false));
  EXPECT_FALSE(can_start_again({ErrorCode::kIo, "/runs/x: No space left on device"}, true));
}

TEST(Restarts, WaitLongerAndLonger) {
  EXPECT_EQ(restart_delay(0), 1);
  EXPECT_EQ(restart_delay(1), 2);
  EXPECT_EQ(restart_delay(4), 16);
  EXPECT_EQ(restart_delay(1000), 60);
}

TEST(Restarts, KeepTheLayoutAndTheGlobalBatch) {
  RunConfig config;
  config.batch.micro_batch = 2;
  config.parallel.tp = 2;
  // 24 sequences: 12 micro-batches of 2.
  EXPECT_EQ(ranks_that_fit(config, 24, 8).value(), 8);
  EXPECT_EQ(ranks_that_fit(config, 24, 11).value(), 8) << "5 do not divide 12";
  EXPECT_EQ(ranks_that_fit(config, 24, 7).value(), 6);
  EXPECT_EQ(ranks_that_fit(config, 24, 2).value(), 2);
  EXPECT_FALSE(ranks_that_fit(config, 24, 1).ok());
  config.parallel.pp = 2;
  EXPECT_EQ(ranks_that_fit(config, 24, 15).value(), 12);
  EXPECT_TRUE(contains(ranks_that_fit(config, 24, 3).error().message, "tp 2 x pp 2 takes 4"));
}

// ---- Runs.

// step -> loss, as written.
std::map<std::int64_t, double> losses_in(const Path& folder) {
  std::map<std::int64_t, double> losses;
  std::ifstream file(folder / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto json = parse_json(line, "metrics.jsonl");
    EXPECT_TRUE(json.ok());
    losses[integer_in(json.value(), "step", -1)] = number_in(json.value(), "loss", NAN);
  }
  return losses;
}

// Weights and optimizer state of a run's last step, by file.
std::map<std::string, std::string> state_after(const Path& folder, const std::string& step) {
  std::map<std::string, std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder / "checkpoints" / ("step-" + step))) {
    if (entry.path().extension() == ".safetensors")
      files[entry.path().filename()] = text_of(entry.path());
  }
  EXPECT_GE(files.size(), 2u);
  return files;
}

std::string run_of(const Path& folder, int steps, const std::string& more) {
  return kSmallRun +
         "--micro-batch 2 --set output.save_every=3 --set output.background=false "
         "--set train.steps=" +
         std::to_string(steps) + " --set output.folder=" + folder.string() + " " + more + " ";
}

TEST(Restarts, ARunWithAKilledRankEndsLikeOneWithout) {
  const TemporaryFolder folder;
  const std::string layout = "--zero 1";
  const Path whole = folder.path() / "whole", killed = folder.path() / "killed";
  const Outcome undisturbed =
      testing::quintet("launch -n 2 --threads 1 --" + run_of(whole, 10, layout));
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.output;
  const std::string once = (folder.path() / "once").string();
  const Outcome outcome = run_shell("QUINTET_FAULT='kill 1 8 " + once +
                                    "' " QUINTET_BINARY " launch -n 2 --threads 1 --restarts 2 --" +
                                    run_of(killed, 10, layout));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("rank 1 was lost in step ")) << outcome.output;
  EXPECT_TRUE(outcome.says("restart 1 of 2 in 1 s, from the checkpoint of step 6; 1 more is left"))
      << outcome.output;
  EXPECT_EQ(losses_in(killed), losses_in(whole));
  EXPECT_EQ(state_after(killed, "00000010"), state_after(whole, "00000010"));
}

TEST(Restarts, EndWhenTheyBringNothing) {
  const TemporaryFolder folder;
  // Before the first checkpoint, every time.
  const Outcome outcome = run_shell("QUINTET_FAULT='exit 0 2' " QUINTET_BINARY
                                    " launch -n 2 --threads 1 --restarts 1 --" +
                                    run_of(folder.path(), 10, ""));
  EXPECT_EQ(outcome.exit_code, 8) << outcome.output;
  EXPECT_TRUE(outcome.says("from the beginning: there is no checkpoint; 0 more are left"))
      << outcome.output;
  EXPECT_TRUE(outcome.says("not started again: 1 restart is used up")) << outcome.output;
}

TEST(Restarts, AreNotForWhatWouldHappenAgain) {
  const TemporaryFolder folder;
  const auto started = [&](const std::string& more) {
    return testing::quintet("launch -n 2 --threads 1 --restarts 3 --" +
                            run_of(folder.path() / "run", 40, more));
  };
  // Every step multiplies the weights by -99, whatever the processor.
  const Outcome diverged = started(
      "--set schedule.peak=100 --set optimizer.weight_decay=1 --set schedule.warmup_steps=0 "
      "--set output.save_every=0");
  EXPECT_EQ(diverged.exit_code, 5) << diverged.output;
  EXPECT_FALSE(diverged.says("restart 1")) << diverged.output;
  EXPECT_EQ(started("--set train.sedd=1").exit_code, 2);
  EXPECT_EQ(testing::quintet("launch -n 2 --restarts 3 -- train --model tiny").exit_code, 2)
      << "nowhere to save";
  EXPECT_EQ(testing::quintet("launch -n 2 --restarts 3 -- plan --model tiny").exit_code, 2);
}

TEST(Restarts, ARequestToStopIsForGood) {
  const TemporaryFolder folder;
  const Path own = folder.path() / "launch.pid", out = folder.path() / "run";
  const auto run = testing::disturb(
      out,
      "sh -c 'echo $$ > " + own.string() +
          "; exec " QUINTET_BINARY " launch -n 2 --threads 1 --restarts 5 --" +
          run_of(out, 1000000, "") + "'",
      2, [&](const std::map<int, pid_t>&) { ::kill(std::stoi(text_of(own)), SIGTERM); });
  EXPECT_EQ(run.outcome.exit_code, 130) << run.outcome.output;
  EXPECT_FALSE(run.outcome.says("restart 1")) << run.outcome.output;
  // And while it waits to start again: the loss is always before the first checkpoint.
  Outcome waiting;
  std::thread second([&] {
    waiting = run_shell("QUINTET_FAULT='exit 1 1' sh -c 'echo $$ > " + own.string() +
                        "; exec " QUINTET_BINARY " launch -n 2 --threads 1 --restarts 5 --" +
                        run_of(folder.path() / "other", 10, "") + " 2>" +
                        (folder.path() / "said").string() + "'");
  });
  while (!contains(text_of(folder.path() / "said"), "restart 2 of 5")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ::kill(std::stoi(text_of(own)), SIGTERM);
  second.join();
  EXPECT_EQ(waiting.exit_code, 130);
  const std::string said = text_of(folder.path() / "said");
  EXPECT_TRUE(contains(said, "stopped before it was started again")) << said;
  EXPECT_FALSE(contains(said, "restart 3")) << said;
}

// ---- Two hosts.

class TwoNodes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cluster_possible().ok()) GTEST_SKIP() << cluster_possible().error().message;
    // A container may be root without being allowed this.
    // Slow links, so that a run is under way for a while.
    auto up = cluster_up({name_, 2, 1, 2e8});
    if (!up.ok()) GTEST_SKIP() << up.error().message;
    cluster_ = std::move(up).value();
  }
  void TearDown() override { static_cast<void>(cluster_down(name_).ok()); }

  // The second node's cable.
  void unplug() const { set_link("down"); }
  void plug_in() const {
    set_link("up");
    // A link takes a moment to be one.
    for (int i = 0; !node_answers(cluster_, 0, 1) && i < 20; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  void set_link(const char* state) const {
    ASSERT_EQ(run_shell("ip -n qt-" + name_ + "-sw link set v1 " + state).exit_code, 0);
  }
  std::string launch(const std::string& more = "") const {
    return "launch --cluster " + name_ + " --threads 1 " + more + " --";
  }
  // Cuts the second node off when a run has made a few steps.
  Outcome cut_off(const Path& out, const std::string& command) const {
    Outcome outcome;
    std::thread run([&] { outcome = testing::quintet(command); });
    for (int i = 0; testing::steps_done(out) < 5 && i < 3000; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    unplug();
    run.join();
    for (const ClusterNode& node : cluster_.nodes)
      EXPECT_TRUE(processes_on(node).empty()) << "something was left on " << node.host;
    return outcome;
  }

  const std::string name_ = "tr" + std::to_string(::getpid());
  Cluster cluster_;
};

TEST_F(TwoNodes, RunTogetherThoughTheirNamesMeanNothing) {
  for (const ClusterNode& node : cluster_.nodes) {
    EXPECT_NE(run_shell("ip netns exec " + node.space + " getent hosts " + node.host).exit_code, 0)
        << node.host << " can be looked up; this test needs one that cannot";
  }
  const Outcome outcome =
      testing::quintet(launch() + kSmallRun + "--micro-batch 2 --zero 1 --set train.steps=3");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("2 ranks: dp 2 (ZeRO 1)")) << outcome.output;
}

TEST_F(TwoNodes, ANodeThatCannotReachTheOtherEndsTheStart) {
  unplug();
  const Outcome outcome =
      testing::quintet(launch() + kSmallRun + "--micro-batch 2 --zero 1 --set train.steps=3");
  EXPECT_NE(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("unable to complete a TCP connection")) << outcome.output;
  for (const ClusterNode& node : cluster_.nodes)
    EXPECT_TRUE(processes_on(node).empty()) << "something was left on " << node.host;
}

TEST_F(TwoNodes, ACutNetworkEndsTheRunAndIsResumed) {
  const TemporaryFolder folder;
  const Path whole = folder.path() / "whole", cut = folder.path() / "cut";
  const std::string layout = "--zero 3 --set parallel.timeout=2";
  const Outcome outcome = cut_off(cut, launch() + run_of(cut, 1000000, layout));
  EXPECT_EQ(outcome.exit_code, 8) << outcome.output;
  EXPECT_TRUE(outcome.says("rank 1 has been silent for 2 s in step ")) << outcome.output;
  EXPECT_EQ(outcome.output.find("quintet: "), outcome.output.rfind("quintet: ")) << outcome.output;

  plug_in();
  const auto steps = static_cast<int>(testing::steps_done(cut)) + 5;
  const Outcome resumed =
      testing::quintet(launch() + run_of(cut, steps, layout) + "--set output.resume=true");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  const Outcome undisturbed = testing::quintet(launch() + run_of(whole, steps, layout));
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.output;
  EXPECT_EQ(losses_in(cut), losses_in(whole));
  const std::string last =
      std::string(8 - std::to_string(steps).size(), '0') + std::to_string(steps);
  EXPECT_EQ(state_after(cut, last), state_after(whole, last));
}

TEST_F(TwoNodes, ALostNodeIsLeftOutAtTheSameGlobalBatch) {
  const TemporaryFolder folder;
  const Path whole = folder.path() / "whole", cut = folder.path() / "cut";
  const std::string layout = "--accumulate 3 --zero 1 --set parallel.timeout=2";
  constexpr int kSteps = 40;
  const Outcome outcome = cut_off(cut, launch("--restarts 2") + run_of(cut, kSteps, layout));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("restart 1 of 2")) << outcome.output;
  EXPECT_TRUE(outcome.says(cluster_.nodes[1].address + " does not answer and is left out"))
      << outcome.output;
  EXPECT_TRUE(
      outcome.says("1 rank instead of 2: 1 data-parallel instead of 2, at the same global "
                   "batch of 12"))
      << outcome.output;
  plug_in();
  const Outcome undisturbed = testing::quintet(launch() + run_of(whole, kSteps, layout));
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.output;
  const auto left = losses_in(cut), right = losses_in(whole);
  ASSERT_EQ(left.size(), std::size_t{kSteps});
  ASSERT_EQ(right.size(), left.size());
  for (const auto& [step, loss] : left) EXPECT_NEAR(loss, right.at(step), 1e-3) << "step " << step;
}

}  // namespace
}  // namespace quintet
