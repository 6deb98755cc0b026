#include "lab/op_timing.h"

#include <algorithm>
#include <cmath>

#include "base/index.h"
#include "base/philox.h"

namespace quintet {
namespace {

constexpr int kRounds = 5;
constexpr int kLongestBatch = 512;
// A round of the mix takes so many times as long as every batch once.
constexpr double kMixed = 4;
constexpr double kMostTurns = 200;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Copies in turn, `count` ops in all.
std::vector<OpId> in_turn(const std::vector<OpId>& copies, std::size_t count) {
  std::vector<OpId> batch(count);
  for (std::size_t i = 0; i < count; ++i) batch[i] = copies[i % copies.size()];
  return batch;
}

// Every batch in every round, `turns` times, in another order each time; the first round warms up.
Result<std::vector<double>> medians(Executor& executor,
                                    const std::vector<std::vector<OpId>>& batches,
                                    const std::vector<int>& turns) {
  std::vector<std::size_t> order, round;
  for (std::size_t b = 0; b < batches.size(); ++b) round.insert(round.end(), index(turns[b]), b);
  PhiloxSequence random(1, 5);
  for (int r = 0; r <= kRounds; ++r) {
    for (std::size_t i = round.size(); i > 1; --i)
      std::swap(round[i - 1], round[random.below(static_cast<std::uint32_t>(i))]);
    order.insert(order.end(), round.begin(), round.end());
  }
  QT_ASSIGN(const std::vector<double> seconds, executor.time_batches(batches, order));
  std::vector<std::vector<double>> by_batch(batches.size());
  for (std::size_t i = round.size(); i < order.size(); ++i)
    by_batch[order[i]].push_back(seconds[i]);
  std::vector<double> result;
  for (const auto& values : by_batch) result.push_back(median(values));
  return result;
}

}  // namespace

Status time_ops(Probe& probe, std::vector<TimedOp>& ops, double cache_bytes, double near_bytes) {
  if (ops.empty()) return {};
  Executor& executor = probe.executor();
  // How long each takes, roughly.
  std::vector<std::vector<OpId>> batches;
  std::vector<std::size_t> order;
  for (const TimedOp& op : ops) {
    batches.push_back(in_turn(op.copies, std::min<std::size_t>(op.copies.size(), 4)));
    order.push_back(batches.size() - 1);
  }
  const std::size_t first = order.size();
  for (std::size_t i = 0; i < first; ++i) order.push_back(i);
  QT_ASSIGN(const std::vector<double> rough, executor.time_batches(batches, order));
  std::vector<double> once;
  double all = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    once.push_back(rough[first + i] / static_cast<double>(batches[i].size()));
    all += ops[i].share * once.back();
  }
  // A batch's length follows its share of the time, within bounds.
  const double usual = executor.runs_beside_host() ? 3e-3 : 10e-3;
  batches.clear();
  std::vector<std::size_t> lengths;
  double each_once = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const double share = ops[i].share * once[i] / all * static_cast<double>(ops.size());
    const double wanted = usual * std::clamp(share, 0.5, 3.0);
    lengths.push_back(
        index(std::clamp<std::int64_t>(std::llround(wanted / once[i]), 1, kLongestBatch)));
    each_once += once[i] * static_cast<double>(lengths.back());
    batches.push_back(in_turn(ops[i].copies, lengths.back()));
  }
  std::vector<int> turns(ops.size(), 1);
  for (std::size_t i = 0; i < ops.size() && executor.runs_beside_host(); ++i) {
    const double wanted = kMixed * each_once * ops[i].share * once[i] / all;
    turns[i] = static_cast<int>(std::clamp(
        std::round(wanted / (once[i] * static_cast<double>(lengths[i]))), 1.0, kMostTurns));
  }
  std::vector<int> warm_batch(ops.size(), -1);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Op& op = probe.program().ops[index(ops[i].copies.front())];
    const double bytes = bytes_of(probe.program(), op);
    if (ops[i].copies.size() == 1 || op.kind == OpKind::kCopy || bytes > 1.5 * cache_bytes)
      continue;
    warm_batch[i] = static_cast<int>(batches.size());
    std::vector<OpId> few = ops[i].copies;
    few.resize(std::min(few.size(),
                        index(std::llround(std::ceil(4 * near_bytes / std::max(bytes, 1.0))) + 1)));
    batches.push_back(in_turn(few, lengths[i]));
    turns.push_back(1);
  }
  QT_ASSIGN(const std::vector<double> seconds, medians(executor, batches, turns));
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const double cold = seconds[i] / static_cast<double>(lengths[i]);
    const double warm =
        warm_batch[i] < 0 ? cold : seconds[index(warm_batch[i])] / static_cast<double>(lengths[i]);
    ops[i].seconds = {std::max(cold, 1e-9), std::clamp(warm, 1e-9, std::max(cold, 1e-9))};
  }
  return {};
}

Result<double> time_batch(Probe& probe, const std::vector<OpId>& batch) {
  QT_ASSIGN(const std::vector<double> seconds, medians(probe.executor(), {batch}, {1}));
  return seconds[0];
}

}  // namespace quintet
