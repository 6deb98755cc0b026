// The clocks of a run's ranks, brought together: what one rank did when, in the time of another.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/grid.h"
#include "program/program.h"

namespace quintet {

// How far each rank's steady clock is ahead of rank 0's, in seconds: found by looking at them when
// all leave a barrier. Good to the barrier's own time, some microseconds on one machine. Called by
// all ranks together.
std::vector<double> clock_offsets(World& world);

// Tells ranks of other pipeline stages when this one came to what they do together (messages,
// collectives across stages), so that a rank that waited can say how long there was nothing to wait
// for but the others.
class PeerTimes {
 public:
  // Called by all ranks together.
  PeerTimes(World& world, const Grid& grid, const Program& program);

  // `start`: when each op of this rank's step began, in seconds since `began` on its clock.
  // Returns, for every op done together with another stage, when the last of the others came to it;
  // minus infinity for all other ops. Called by all ranks together, after a step.
  std::span<const double> exchange(double began, std::span<const double> start);

 private:
  struct Peer {
    std::vector<OpId> ops;  // what is done together, in an order that both sides have
    std::vector<double> times;
    std::unique_ptr<Transfer> transfer;
  };
  double offset_ = 0;
  std::unique_ptr<Communicator> everyone_;
  std::vector<Peer> to_, from_;
  std::vector<double> others_came_;
};

}  // namespace quintet
