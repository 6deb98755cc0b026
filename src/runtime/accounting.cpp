#include "runtime/accounting.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/index.h"
#include "program/op_decl.h"

namespace quintet {
namespace {

std::size_t place_of(Method method) {
  return static_cast<std::size_t>(method);
}

// What an op's communication is for. A computation that talks inside is there on a single device,
// too, but talks only because of tensor parallelism.
Method talks_for(const Op& op) {
  return is_transfer(op.kind) ? op.tag.method : Method::kTensor;
}

// Whether an op goes on beside the computation: communication, and copies where the device has
// engines for them. The CPU copies by itself, which all counts as talking.
bool goes_beside(const Backend& backend, const Op& op) {
  return is_communication(op.kind) ||
         (op.kind == OpKind::kCopy && backend.copies_beside_computation());
}

}  // namespace

double StepAccount::exposed_total() const {
  double sum = 0;
  for (const double seconds : exposed) sum += seconds;
  return sum;
}

StepAccount& StepAccount::operator+=(const StepAccount& more) {
  step += more.step;
  data_wait += more.data_wait;
  compute += more.compute;
  recompute += more.recompute;
  optimizer += more.optimizer;
  bubble += more.bubble;
  other += more.other;
  for (std::size_t m = 0; m < kMethodCount; ++m) {
    exposed[m] += more.exposed[m];
    hidden[m] += more.hidden[m];
  }
  return *this;
}

StepAccount& StepAccount::operator*=(double factor) {
  for (double* part : {&step, &data_wait, &compute, &recompute, &optimizer, &bubble, &other})
    *part *= factor;
  for (std::size_t m = 0; m < kMethodCount; ++m) {
    exposed[m] *= factor;
    hidden[m] *= factor;
  }
  return *this;
}

std::vector<AccountPart> parts_of(const StepAccount& account) {
  std::vector<AccountPart> parts = {{"compute", account.compute},
                                    {"recompute", account.recompute},
                                    {"optimizer", account.optimizer}};
  for (int m = 1; m < kMethodCount; ++m) {
    parts.push_back(
        {"exposed " + std::string(name_of(static_cast<Method>(m))), account.exposed[index(m)]});
  }
  parts.push_back({"bubble", account.bubble});
  parts.push_back({"data wait", account.data_wait});
  parts.push_back({"other", account.other});
  return parts;
}

StepAccount account_of(const Program& program, const Backend& backend,
                       std::span<const OpTiming> timings, double run_seconds, double data_wait,
                       std::span<const double> others_came) {
  StepAccount account;
  account.step = run_seconds + data_wait;
  account.data_wait = data_wait;
  // A device that replays its step as a whole has not looked at single ops.
  if (std::none_of(timings.begin(), timings.end(), [](const OpTiming& t) { return t.end > 0; })) {
    account.compute = run_seconds;
    return account;
  }
  std::vector<double> stood_still(program.ops.size(), 0);  // for this op's communication
  // Nothing was computed from `begin` to `end`, for want of this op.
  const auto stand_still = [&](std::size_t op, double begin, double end) {
    const double idle = std::clamp(others_came[op] - begin, 0.0, end - begin);
    account.bubble += idle;
    account.exposed[place_of(talks_for(program.ops[op]))] += end - begin - idle;
    stood_still[op] += end - begin - idle;
  };
  double last_computed = 0, last_talked = 0;
  std::size_t last_to_end = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const OpTiming& t = timings[i];
    account.exposed[place_of(talks_for(op))] += t.talking;
    if (goes_beside(backend, op)) {
      if (t.end > last_talked) {
        last_talked = t.end;
        last_to_end = i;
      }
      continue;
    }
    last_computed = std::max(last_computed, t.end);
    const double seconds = t.end - t.start - t.talking;
    (op.tag.phase == Phase::kUpdate      ? account.optimizer
     : op.tag.phase == Phase::kRecompute ? account.recompute
                                         : account.compute) += seconds;
    if (t.blocked_by < 0) continue;
    stand_still(index(t.blocked_by), t.start - t.blocked, t.start);
  }
  // What is still under way when the last computation is done.
  if (last_talked > last_computed) {
    stand_still(last_to_end, last_computed, last_talked);
  }
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (!goes_beside(backend, op)) continue;
    const double from = std::max(timings[i].start, others_came[i]);
    account.hidden[place_of(talks_for(op))] +=
        std::max(0.0, timings[i].end - from - timings[i].talking - stood_still[i]);
  }
  account.other = run_seconds - account.compute - account.recompute - account.optimizer -
                  account.exposed_total() - account.bubble;
  return account;
}

std::vector<Traffic> traffic_of(const Program& program, std::span<const std::int64_t> bytes) {
  std::map<std::tuple<Method, OpKind, std::string>, Traffic> rows;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const std::int32_t group = group_of(op);
    if (group < 0 && op.kind != OpKind::kSend && op.kind != OpKind::kCopy) continue;
    const std::string axis = op.kind == OpKind::kCopy ? std::string(name_of(op.stream))
                             : group < 0              ? "pp"
                                                      : program.groups[index(group)].name;
    Traffic& row = rows[{talks_for(op), op.kind, axis}];
    row.method = talks_for(op);
    row.kind = op.kind;
    row.axis = axis;
    ++row.ops;
    row.bytes += bytes[i];
  }
  std::vector<Traffic> all;
  for (auto& [key, row] : rows) all.push_back(std::move(row));
  return all;
}

std::vector<Traffic> traffic_of(const Program& program, const Backend& backend) {
  std::vector<std::int64_t> bytes;
  for (const Op& op : program.ops) bytes.push_back(bytes_sent_by(backend, program, op));
  return traffic_of(program, bytes);
}

std::array<std::int64_t, kMethodCount> by_method(const std::vector<Traffic>& traffic) {
  std::array<std::int64_t, kMethodCount> bytes{};
  for (const Traffic& row : traffic) bytes[place_of(row.method)] += row.bytes;
  return bytes;
}

}  // namespace quintet
