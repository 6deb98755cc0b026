// What a run took: the time of every step by what it was spent on, the bytes sent, the memory
// taken; on request a trace of some steps. At the end the ranks' figures are laid side by side.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "parallel/communicator.h"
#include "parallel/peer_times.h"
#include "runtime/accounting.h"
#include "runtime/executor.h"
#include "train/looks.h"

namespace quintet {

// One rank's, per step where that has a meaning.
struct RankSummary {
  std::int32_t rank = 0, dp = 0, tp = 0, pp = 0;
  StepAccount account;
  std::int64_t predicted_bytes = 0;  // by the dry run
  std::int64_t arena_bytes = 0;      // asked of the system
  std::int64_t resident_bytes = 0;   // given by the system
  std::int64_t host_bytes = 0;       // offloaded, beside the arena
  std::vector<Traffic> planned;      // as the program has it
  std::vector<Traffic> counted;      // as it was sent
};

struct RunSummary {
  std::string model;
  std::string layout;  // "dp 2 (ZeRO 1) x tp 2"
  std::int64_t steps = 0;
  double step_seconds = 0;  // median
  double final_loss = 0;
  // Of validation, where there was any: the last loss, the lowest and the step it was measured at.
  std::optional<double> validation_loss = std::nullopt, best_validation = std::nullopt;
  std::int64_t best_step = 0;
  std::string fingerprint;  // of rank 0's program
  // Where timing single ops costs something: how many steps it was done in, and its share of the
  // run. 0: every step has its own times.
  std::int64_t looks = 0;
  double look_cost = 0;
  std::vector<RankSummary> ranks;

  StepAccount mean_account() const;
  std::int64_t largest_arena() const;
  std::string to_json() const;
  static Result<RunSummary> from_json(const std::string& text, const std::string& name);
};

// "where the time went" and "bytes sent", for people.
std::string describe(const RunSummary& summary);

struct TraceOptions {
  std::string file;  // empty: no trace
  std::int64_t first = 0, count = 0;
};

// All methods are called by all ranks together. Program, backend and world must outlive it.
class Ledger {
 public:
  // `skip`: first steps that the times leave out, because they pay for pages and buffers that no
  // later one pays for.
  Ledger(World& world, const Grid& grid, const Program& program, const Backend& backend,
         TraceOptions trace, std::int64_t skip = 1);

  // Whether the ops of a step are to be timed; to be asked before it is run.
  bool wants_ops(std::int64_t number);
  // After a step that began at `began` on the steady clock and whose ops took `timings`.
  Status step(std::int64_t number, double began, std::span<const OpTiming> timings,
              double data_wait, double run_seconds);
  // Everybody's time breakdown, on rank 0, with the memory and the bytes that the executor counted.
  RunSummary close(const Executor& executor);

 private:
  bool is_traced(std::int64_t number) const {
    return !trace_.file.empty() && number >= trace_.first && number < trace_.first + trace_.count;
  }
  Status write_trace();

  World& world_;
  const Program& program_;
  const Backend& backend_;
  const TraceOptions trace_;
  const std::int64_t skip_;
  Looks looks_;
  bool looked_ = false;  // at the step that is under way
  PeerTimes peers_;
  std::vector<double> starts_;
  StepAccount total_;
  std::vector<double> seconds_;
  std::int64_t runs_ = 0;
  std::string events_;
  double origin_ = 0;
};

}  // namespace quintet
