// The clock of a simulated step (program/play.h). Everything under way has so much work left and a
// rate at which it is done; the rate falls when what it needs is wanted by others, too, and all of
// them are slowed alike:
//
//   a CPU rank's thread     computation, and the copying and summing of its communication
//   a node's cores          the ranks that compute or communicate on it
//   a node's network links  collectives and messages that cross them, each way
//   a GPU                   communication and copies beside computation, by the machine's factors
//
// Rates change only when something begins or ends, so time passes in steps from one to the next.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <queue>
#include <span>
#include <vector>

#include "lab/machine.h"
#include "lab/placement.h"
#include "program/play.h"

namespace quintet {

class FluidClock final : public Clock {
 public:
  enum class What : std::uint8_t { kCompute, kCommunicate, kCopyIn, kCopyOut };

  // What one item is, by itself.
  struct Work {
    What what = What::kCompute;
    double seconds = 0;
    double thread = 1;       // share of its rank's thread that it needs (CPU)
    double out = 0, in = 0;  // shares of its node's network links, for all that its rank stands for
    // A computation's factor when so many ranks of its node compute; by number of ranks less one.
    std::vector<float> beside = {};
  };
  // When an item ran, in seconds since the step began.
  struct Times {
    double came = 0, start = 0, end = 0;
    double lost = 0;     // of a computation: to its rank's own communication
    double talking = 0;  // of communication: taken from its rank's computation
    // When the last of its sides on other stages came to it.
    double others_came = -std::numeric_limits<double>::infinity();
  };

  // `stages`: of the pipeline, by trace. `work` by trace and item. All but `stages` must outlive
  // the clock.
  FluidClock(const Machine& machine, const Placement& placement, int threads,
             const std::vector<RankTrace>& traces, std::vector<std::int32_t> stages,
             const std::vector<std::vector<Work>>& work);

  void came(Side side) override;
  void start(std::int32_t id, std::span<const Side> sides) override;
  std::optional<std::int32_t> next() override;

  const Times& times(Side side) const {
    return times_[static_cast<std::size_t>(side.rank)][static_cast<std::size_t>(side.item)];
  }
  double now() const { return now_; }

 private:
  struct Activity {
    std::vector<Side> sides;
    double left = 0;  // seconds of work
    double rate = 0, since = 0;
    std::uint32_t version = 0;
    bool under_way = false;
  };
  struct Event {
    double at;
    std::int32_t id;
    std::uint32_t version;
    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : id > other.id;
    }
  };
  struct Rank {
    std::vector<std::int32_t> active;
    std::size_t node = 0;
    double on_node = 1;  // ranks it stands for there
    double thread = 0;   // sum of the shares of its thread
    double demand = 0;   // of cores
    int computing = 0, talking = 0, copying_in = 0, copying_out = 0;
  };
  struct Node {
    std::vector<std::size_t> ranks;
    double cores = 0;      // demanded
    double computing = 0;  // ranks that do
    double out = 0, in = 0;
  };

  const Work& work_of(Side side) const {
    return work_[static_cast<std::size_t>(side.rank)][static_cast<std::size_t>(side.item)];
  }
  Times& times_of(Side side) {
    return times_[static_cast<std::size_t>(side.rank)][static_cast<std::size_t>(side.item)];
  }
  // Enters (+1) or leaves (-1) what an activity needs, and marks all that it speeds or slows.
  void change(std::int32_t id, int sign);
  void mark(std::size_t rank);
  void mark_node(std::size_t node);
  // Gives everything marked its rate from now on.
  void refresh();
  // Books what was done since the rate was last set.
  void settle(Activity& activity);
  double slowdown(const Activity& activity) const;
  double slowdown_of(const Rank& rank, const Work& work) const;

  const Machine& machine_;
  const bool cpu_;
  const double threads_, cores_;
  const std::vector<std::int32_t> stages_;
  const std::vector<std::vector<Work>>& work_;
  std::vector<Activity> activities_;
  std::vector<Rank> ranks_;
  std::vector<Node> nodes_;
  std::vector<std::vector<Times>> times_;
  std::vector<std::int32_t> marked_;  // activities whose rate may have changed
  std::vector<bool> is_marked_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double now_ = 0;
};

}  // namespace quintet
