// The watchdog's connections: made by ranks, whoever else may come along.
#include "parallel/watchdog.h"

#include <atomic>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "parallel/hosts.h"
#include "tests/parallel/world.h"

namespace quintet {
namespace {

using testing::test_world;

// The ports that anything listens at on the loopback address alone.
std::set<int> loopback_listeners() {
  std::set<int> ports;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string number, local, remote, state;
    words >> number >> local >> remote >> state;
    if (state == "0A" && local.rfind("0100007F:", 0) == 0)
      ports.insert(std::stoi(local.substr(local.find(':') + 1), nullptr, 16));
  }
  return ports;
}

// Somebody who tries every port that opens, and says what does not belong there, or nothing.
class Stranger {
 public:
  Stranger() : before_(loopback_listeners()), thread_([this] { work(); }) {}
  ~Stranger() { stop(); }
  void stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int visits() const { return visits_; }

 private:
  void work() {
    const std::vector<std::string> lines = {"GET / HTTP/1.0",
                                            "quintet 0123456789abcdef 1",
                                            "B 3 0 0 1 x",
                                            "F 7 0 1 all is lost",
                                            "Q",
                                            ""};
    std::vector<LineSocket> open;
    while (!done_) {
      for (const int port : loopback_listeners()) {
        if (before_.contains(port)) continue;
        auto made = connect_to({"127.0.0.1", port}, 0.1);
        if (!made.ok()) continue;
        const std::string& line = lines[static_cast<std::size_t>(visits_++) % lines.size()];
        if (!line.empty()) made.value().send(line);
        open.push_back(std::move(made).value());
        if (open.size() > 20) open.clear();
      }
    }
  }
  const std::set<int> before_;
  std::atomic<bool> done_ = false;
  std::atomic<int> visits_ = 0;
  std::thread thread_;
};

// A world in which what rank 0 says arrives late, changed, or is answered late.
class OddWorld : public World {
 public:
  explicit OddWorld(World& world) : world_(world) {}
  std::int32_t size() const override { return world_.size(); }
  std::int32_t rank() const override { return world_.rank(); }
  std::unique_ptr<Communicator> group(const std::vector<std::int32_t>& ranks,
                                      std::int32_t key) override {
    return world_.group(ranks, key);
  }
  std::int64_t minimum(std::int64_t value) override { return world_.minimum(value); }
  std::vector<std::string> gather(const std::string& text) override {
    std::this_thread::sleep_for(before_answer);
    return world_.gather(text);
  }
  std::string broadcast(const std::string& text) override {
    std::string heard = world_.broadcast(text);
    if (rank() > 0) std::this_thread::sleep_for(before_hearing);
    return changes && heard.find("127.0.0.1") != std::string::npos ? "x" + heard : heard;
  }
  void barrier() override { world_.barrier(); }

  std::chrono::milliseconds before_hearing{0}, before_answer{0};
  bool changes = false;  // the announcement, so that this rank does not know the secret

 private:
  World& world_;
};

TEST(Watchdog, StrangersAreNotListenedTo) {
  OddWorld world(test_world());
  world.before_hearing = std::chrono::milliseconds(50);  // until they come, rank 0's port is open
  std::optional<Stranger> stranger;
  if (world.rank() == 0) stranger.emplace();
  for (int round = 0; round < 200; ++round) {
    auto dog = Watchdog::start(world, 5);
    ASSERT_TRUE(dog.ok()) << dog.error().message;
    dog.value()->begin_step(round);
    dog.value()->end_step();
    dog.value()->finish();
    const bool enough = stranger && stranger->visits() >= 12;
    if (world.broadcast(enough ? "1" : "0") == "1") break;
  }
  if (stranger) {
    stranger->stop();
    EXPECT_GT(stranger->visits(), 0);
  }
}

TEST(Watchdog, RanksMayStartSlowly) {
  OddWorld world(test_world());
  if (world.rank() == 1) world.before_answer = std::chrono::milliseconds(3000);
  auto dog = Watchdog::start(world, 2);
  ASSERT_TRUE(dog.ok()) << dog.error().message;
  dog.value()->finish();
}

TEST(Watchdog, ARankThatCannotComeIsNamedByAll) {
  OddWorld world(test_world());
  world.changes = world.rank() == 2;
  const auto dog = Watchdog::start(world, 1);
  ASSERT_FALSE(dog.ok());
  EXPECT_NE(dog.error().message.find("rank 2 on "), std::string::npos) << dog.error().message;
  EXPECT_NE(dog.error().message.find("cannot reach rank 0"), std::string::npos)
      << dog.error().message;
}

TEST(Watchdog, NobodyListensOnceAllRanksAreThere) {
  World& world = test_world();
  const std::set<int> before = loopback_listeners();
  world.barrier();
  auto dog = Watchdog::start(world, 5);
  ASSERT_TRUE(dog.ok()) << dog.error().message;
  // The last rank's hello may still be on its way.
  for (int i = 0; i < 100 && loopback_listeners().size() > before.size(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(loopback_listeners().size(), before.size());
  world.barrier();
  dog.value()->finish();
}

TEST(Hosts, RanksOfOneMachineKnowIt) {
  const std::vector<Host> hosts = hosts_of(test_world());
  ASSERT_EQ(hosts.size(), static_cast<std::size_t>(test_world().size()));
  for (const Host& host : hosts) EXPECT_TRUE(host.reaches_locally(this_host()));
  for (const std::string& address : host_addresses()) {
    EXPECT_EQ(address.find_first_not_of("0123456789abcdef.:"), std::string::npos) << address;
    EXPECT_NE(address, "127.0.0.1");
  }
}

}  // namespace
}  // namespace quintet
