// What a machine and its cgroups leave a process, from made-up files; and ranks that share them.
#include "train/host_fit.h"

#include <fstream>

#include <gtest/gtest.h>

#include "runtime/host_memory.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

class CgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write("proc/meminfo", "MemTotal:  16777216 kB\nMemAvailable:    8388608 kB\n");
  }
  void write(const std::string& path, const std::string& text) {
    const Path file = folder_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  HostMemory memory() const { return host_memory(folder_.path()); }
  const TemporaryFolder folder_;
};

TEST_F(CgroupTest, WithoutOneTheMachineCounts) {
  EXPECT_EQ(memory().machine_free, 8 * kGiB);
  EXPECT_EQ(memory().cgroup_free, -1);
  EXPECT_EQ(memory().free(), 8 * kGiB);
  write("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(memory().free(), 8 * kGiB);
  write("proc/meminfo", "MemTotal: 5 kB\n");
  EXPECT_EQ(memory().free(), -1);
}

TEST_F(CgroupTest, TheTightestAncestorOfVersion2Counts) {
  write("proc/self/cgroup", "0::/system.slice/job7/step0\n");
  write("sys/fs/cgroup/system.slice/job7/step0/memory.max", "max\n");
  write("sys/fs/cgroup/system.slice/job7/memory.max", std::to_string(4 * kGiB));
  write("sys/fs/cgroup/system.slice/job7/memory.current", std::to_string(3 * kGiB));
  write("sys/fs/cgroup/system.slice/job7/memory.stat",
        "anon 5\ninactive_file " + std::to_string(kGiB) + "\nactive_file 77\n");
  write("sys/fs/cgroup/system.slice/memory.max", std::to_string(100 * kGiB));
  EXPECT_EQ(memory().cgroup_limit, 4 * kGiB);
  EXPECT_EQ(memory().cgroup_free, 2 * kGiB) << "what is only cached counts as free";
  EXPECT_EQ(memory().free(), 2 * kGiB);
  EXPECT_NE(memory().cgroup.find("job7/memory.max"), std::string::npos);
  // Used up, and more.
  write("sys/fs/cgroup/system.slice/job7/memory.current", std::to_string(9 * kGiB));
  EXPECT_EQ(memory().cgroup_free, 0);
  // A group of its own with less.
  write("sys/fs/cgroup/system.slice/job7/memory.current", "0");
  write("sys/fs/cgroup/system.slice/job7/step0/memory.max", std::to_string(kGiB));
  EXPECT_EQ(memory().free(), kGiB);
}

// Inside a container the limit is at the top of what can be seen.
TEST_F(CgroupTest, AContainersOwnTopCounts) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", std::to_string(2 * kGiB));
  EXPECT_EQ(memory().free(), 2 * kGiB);
  write("proc/self/cgroup", "0::/docker/1234abcd\n");  // the host's path, which is not there
  EXPECT_EQ(memory().free(), 2 * kGiB);
}

TEST_F(CgroupTest, Version1Counts) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/slurm/job_3\n1:name=systemd:/x\n");
  write("sys/fs/cgroup/memory/slurm/job_3/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory().cgroup_free, -1) << "no limit";
  write("sys/fs/cgroup/memory/slurm/job_3/memory.limit_in_bytes", std::to_string(3 * kGiB));
  write("sys/fs/cgroup/memory/slurm/job_3/memory.usage_in_bytes", std::to_string(2 * kGiB));
  write("sys/fs/cgroup/memory/slurm/job_3/memory.stat",
        "total_inactive_file " + std::to_string(kGiB / 2) + "\n");
  EXPECT_EQ(memory().free(), kGiB + kGiB / 2);
}

TEST_F(CgroupTest, FilesThatMakeNoSenseAreNoLimit) {
  write("proc/self/cgroup", "garbage\n0:\n::\n0::/../../../etc\n");
  write("sys/fs/cgroup/memory.max", "a lot\n");
  EXPECT_EQ(memory().cgroup_free, -1);
  write("sys/fs/cgroup/memory.max", "-5\n");
  EXPECT_EQ(memory().cgroup_free, -1);
  EXPECT_EQ(memory().free(), 8 * kGiB);
}

TEST(HostMemory, OfThisMachineIsKnown) {
  EXPECT_GT(host_memory().free(), 0);
}

HostNeed need_on(const std::string& host, std::int64_t step, std::int64_t saving,
                 std::int64_t machine_free, std::int64_t cgroup_free = -1) {
  HostNeed need{host, "boot-" + host, {}, step * kGiB, saving * kGiB};
  need.memory.machine_free = machine_free * kGiB;
  if (cgroup_free >= 0) {
    need.memory.cgroup_free = cgroup_free * kGiB;
    need.memory.cgroup_limit = 50 * kGiB;
    need.memory.cgroup = "/sys/fs/cgroup/job/memory.max";
  }
  return need;
}

TEST(HostShortage, SumsUpTheRanksOfAMachine) {
  // Each fits alone.
  EXPECT_EQ(host_shortage({need_on("a", 3, 1, 8), need_on("a", 3, 1, 8), need_on("b", 3, 1, 4)}),
            "");
  const std::string found =
      host_shortage({need_on("a", 3, 0, 8), need_on("b", 3, 1, 8), need_on("b", 3, 1, 8),
                     need_on("a", 3, 0, 9), need_on("b", 3, 1, 8)});
  for (const char* part : {"host b: ranks 1-2, 4 together plan 12.00 GiB",
                           "(9.00 GiB for the step, 3.00 GiB for", "and 8.00 GiB are free. "})
    EXPECT_NE(found.find(part), std::string::npos) << found;
  EXPECT_EQ(found.find("output.background"), std::string::npos) << "would not help: " << found;
  const std::string copy = host_shortage({need_on("a", 3, 2, 8), need_on("a", 3, 2, 8)});
  EXPECT_NE(copy.find("output.background=false"), std::string::npos) << copy;
}

TEST(HostShortage, CountsCgroups) {
  const std::string found = host_shortage({need_on("a", 3, 0, 100, 5), need_on("a", 3, 0, 100, 5)});
  for (const char* part : {"host a: ranks 0-1 together plan 6.00 GiB",
                           "5.00 GiB are free under /sys/fs/cgroup/job/memory.max = 50.00 GiB"})
    EXPECT_NE(found.find(part), std::string::npos) << found;
  EXPECT_EQ(host_shortage({need_on("a", 3, 0, 100, 5), need_on("a", 3, 0, 100)}), "")
      << "the other one is not in it";
  EXPECT_EQ(host_shortage({need_on("a", 3, 0, -1)}), "") << "nothing is known";
}

}  // namespace
}  // namespace quintet
