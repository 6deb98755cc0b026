// Where a step's time and bytes went, by method of parallelism: sums over the program's ops, so
// that the parts add up to the whole.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "program/backend.h"
#include "program/program.h"
#include "runtime/op_timing.h"

namespace quintet {

// The seconds of one step on one rank. What stands before `hidden` adds up to `step`.
struct StepAccount {
  double step = 0;
  double data_wait = 0;  // until the batch was there
  double compute = 0;    // forward and backward
  double recompute = 0;
  double optimizer = 0;
  // Communication that computation had to stand still for, by method.
  std::array<double, kMethodCount> exposed{};
  // Standing still because another pipeline stage had not come so far.
  double bubble = 0;
  double other = 0;  // between ops
  // Communication that went on beside computation, by method: costs no time of its own.
  std::array<double, kMethodCount> hidden{};

  double exposed_total() const;
  StepAccount& operator+=(const StepAccount& more);
  StepAccount& operator*=(double factor);
};

// One part of an account, with its name: for tables and files.
struct AccountPart {
  std::string name;
  double seconds = 0;
};
std::vector<AccountPart> parts_of(const StepAccount& account);

// The account of one step, measured or simulated. `timings` by op. `others_came`: for each op done
// together with other stages, when the last of them came to it, in seconds since this rank's step
// began (PeerTimes).
StepAccount account_of(const Program& program, const Backend& backend,
                       std::span<const OpTiming> timings, double run_seconds, double data_wait,
                       std::span<const double> others_came);

// Bytes this rank sends in a step, by what for, how and to whom.
struct Traffic {
  Method method{};
  OpKind kind{};
  std::string axis;  // the group's name; "pp" for messages
  std::int64_t ops = 0, bytes = 0;
  bool operator==(const Traffic&) const = default;
};
// As the program has it.
std::vector<Traffic> traffic_of(const Program& program, const Backend& backend);
// As it was counted while sending: `bytes` by op.
std::vector<Traffic> traffic_of(const Program& program, std::span<const std::int64_t> bytes);
std::array<std::int64_t, kMethodCount> by_method(const std::vector<Traffic>& traffic);

}  // namespace quintet
