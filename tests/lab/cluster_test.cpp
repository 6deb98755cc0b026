// Emulated clusters: made, used and removed without a trace. Needs root and iproute2; skipped
// elsewhere.
#include "lab/cluster.h"

#include <csignal>
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/files.h"
#include "lab/tool.h"
#include "tests/support/command.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

using testing::Outcome;
using testing::run_shell;

std::string test_name(char letter) {
  return std::string("t") + letter + std::to_string(::getpid());
}

class EmulatedCluster : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cluster_possible().ok()) GTEST_SKIP() << cluster_possible().error().message;
    // A container may be root without being allowed this.
    const auto tried = cluster_up({name_, 1, 1, 0});
    if (!tried.ok()) GTEST_SKIP() << tried.error().message;
    ASSERT_TRUE(cluster_down(name_).ok());
  }
  void TearDown() override { static_cast<void>(cluster_down(name_).ok()); }

  static std::string machine() {
    return run_shell("ip -o link; ip route; ls /etc | sort; ls -A /etc/netns 2>/dev/null").output;
  }
  const std::string name_ = test_name('c');
};

TEST(Bandwidth, IsReadAndWritten) {
  for (const auto& [text, value] : {std::pair<std::string, double>{"1gbit", 1e9},
                                    {"2.5gbit", 2.5e9},
                                    {"500mbit", 5e8},
                                    {"64000kbit", 6.4e7}}) {
    ASSERT_TRUE(parse_bandwidth(text).ok()) << text;
    EXPECT_DOUBLE_EQ(parse_bandwidth(text).value(), value);
    EXPECT_DOUBLE_EQ(parse_bandwidth(bandwidth_text(value)).value(), value);
  }
  for (const char* text : {"", "gbit", "1", "1gb", "-1gbit", "0gbit", "10kbit", "nangbit",
                           "infgbit", "1e30gbit", "1gbit ", "1 gbit", "fast"}) {
    EXPECT_FALSE(parse_bandwidth(text).ok()) << text;
  }
}

TEST(ClusterNames, AreChecked) {
  for (const char* name : {"", "Upper", "with-dash", "../etc", "a b", "averyveryverylongname"}) {
    EXPECT_EQ(cluster_up({name, 2, 1, 1e9}).error().code, ErrorCode::kUsage) << name;
    EXPECT_EQ(cluster_down(name).error().code, ErrorCode::kUsage) << name;
    EXPECT_EQ(find_cluster(name).error().code, ErrorCode::kUsage) << name;
  }
  EXPECT_FALSE(cluster_up({"ok", 0, 1, 1e9}).ok());
  EXPECT_FALSE(cluster_up({"ok", 2, 0, 1e9}).ok());
  EXPECT_FALSE(find_cluster("nosuch").ok());
}

TEST_F(EmulatedCluster, LeavesTheMachineAlone) {
  const std::string before = machine();
  auto up = cluster_up({name_, 3, 2, 2e8});
  ASSERT_TRUE(up.ok()) << up.error().message;
  EXPECT_EQ(machine(), before);
  EXPECT_EQ(cluster_up({name_, 2, 1, 1e9}).error().code, ErrorCode::kUsage) << "made twice";
  const auto found = find_cluster(name_);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found.value().nodes.size(), 3u);
  EXPECT_EQ(found.value().spec.bandwidth, 2e8);

  // A second one at the same time has addresses of its own.
  const std::string other = test_name('d');
  const auto second = cluster_up({other, 2, 1, 0});
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_NE(second.value().subnet, up.value().subnet);
  ASSERT_TRUE(cluster_down(other).ok());
  EXPECT_EQ(processes_on(found.value().nodes[0]).size(), 0u);

  EXPECT_EQ(cluster_down(name_).value().size(), 4u);
  EXPECT_TRUE(cluster_down(name_).value().empty());
  EXPECT_EQ(machine(), before);
  // Nor is the namespaces' folder left mounted, unless it has others'.
  const Outcome mounts = run_shell(
      "[ -n \"$(ls -A /run/netns 2>/dev/null)\" ] || ! grep ' /run/netns ' /proc/self/mounts");
  EXPECT_EQ(mounts.exit_code, 0) << mounts.output;
}

TEST_F(EmulatedCluster, LinksCarryWhatTheyAreTold) {
  auto up = cluster_up({name_, 2, 1, 1e8});
  ASSERT_TRUE(up.ok()) << up.error().message;
  const auto checks = check_links(up.value(), {5e7, 2e8});
  ASSERT_TRUE(checks.ok()) << checks.error().message;
  ASSERT_EQ(checks.value().size(), 2u);
  EXPECT_EQ(find_cluster(name_).value().spec.bandwidth, 2e8);
  // A link that is not what it was told is found out.
  const auto too_much = check_links(up.value(), {9e11});
  ASSERT_FALSE(too_much.ok());
  EXPECT_EQ(too_much.error().code, ErrorCode::kMismatch);
  EXPECT_TRUE(testing::contains(too_much.error().message, "900gbit")) << too_much.error().message;
  ASSERT_EQ(run_shell("ip netns exec " + up.value().nodes[0].space +
                      " tc qdisc replace dev eth0 root tbf rate 20mbit burst 40000 limit 1000000")
                .exit_code,
            0);
  const auto measured = measure_link(up.value(), 0, 1);
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  EXPECT_LT(measured.value(), 5e7);
}

TEST_F(EmulatedCluster, NodesHaveHostNamesAndRanks) {
  const auto up = cluster_up({name_, 2, 2, 1e9});
  ASSERT_TRUE(up.ok()) << up.error().message;
  const Outcome host = testing::quintet("cluster exec --name " + name_ + " --node 1 -- hostname");
  EXPECT_EQ(host.output, up.value().nodes[1].host + "\n");
  const Outcome outside =
      testing::quintet("cluster exec --name " + name_ + " --node 7 -- hostname");
  EXPECT_EQ(outside.exit_code, 2) << outside.output;
  EXPECT_TRUE(testing::quintet("cluster status").says(up.value().nodes[1].host));
  const auto line = cluster_mpirun_line(up.value(), {4, 2, 1}, {"train"});
  ASSERT_TRUE(line.ok());
  EXPECT_FALSE(cluster_mpirun_line(up.value(), {5, 2, 1}, {"train"}).ok());
  const Outcome run = testing::quintet("launch --cluster " + name_ +
                                       " -- train --model tiny --zero 1 --set train.steps=3");
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_TRUE(run.says("4 ranks")) << run.output;
}

// Between nodes parts are gathered in another way than in shared memory: the same bits must come of
// it.
TEST_F(EmulatedCluster, TrainsTheSameBitsAsRanksOfOneMachine) {
  ASSERT_TRUE(cluster_up({name_, 2, 2, 1e9}).ok());
  const TemporaryFolder folder;
  for (const std::string layout : {"--zero 0", "--zero 3", "--zero 2 --tp 2"}) {
    std::vector<std::string> weights;
    for (const std::string& where : {std::string("-n 4"), "--cluster " + name_}) {
      const std::string out = (folder.path() / std::to_string(weights.size())).string();
      std::filesystem::remove_all(out);
      const Outcome run =
          testing::quintet("launch " + where + " --threads 1 -- train --model tiny " + layout +
                           " --set train.steps=3 --set output.folder=" + out);
      ASSERT_EQ(run.exit_code, 0) << layout << run.output;
      const auto bytes = read_file(out + "/checkpoints/step-00000003/model.safetensors");
      ASSERT_TRUE(bytes.ok()) << bytes.error().message;
      weights.push_back(bytes.value());
    }
    EXPECT_TRUE(weights[0] == weights[1]) << layout;
  }
}

TEST_F(EmulatedCluster, DownEndsWhatRunsThereEvenWithoutState) {
  const auto up = cluster_up({name_, 2, 1, 1e9});
  ASSERT_TRUE(up.ok()) << up.error().message;
  const Outcome started = run_shell("setsid " QUINTET_BINARY " cluster exec --name " + name_ +
                                    " --node 1 -- sleep 600 >/dev/null 2>&1 & sleep 0.5");
  ASSERT_EQ(started.exit_code, 0);
  const auto there = processes_on(up.value().nodes[1]);
  ASSERT_EQ(there.size(), 1u);
  std::filesystem::remove("/run/quintet/" + name_ + ".json");
  EXPECT_TRUE(testing::quintet("cluster status").says("left over"));
  EXPECT_EQ(cluster_down(name_).value().size(), 3u);
  const std::string state =
      run_shell("grep '^State' /proc/" + std::to_string(there[0]) + "/status 2>/dev/null").output;
  EXPECT_TRUE(state.empty() || testing::contains(state, "zombie")) << state;
}

}  // namespace
}  // namespace quintet
