#include "runtime/dry_run.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/text.h"
#include "program/op_decl.h"
#include "program/printer.h"

namespace quintet {
namespace {

using ByClass = std::array<std::int64_t, kStorageCount>;

std::size_t place_of(Storage storage) {
  return static_cast<std::size_t>(storage);
}

}  // namespace

DryRun dry_run(const Program& program) {
  QT_CHECK(program.arena_bytes > 0, "dry run of a program without a memory plan");
  DryRun result;
  result.arena_bytes = program.arena_bytes;
  result.host_bytes = program.host_bytes;
  result.ops = static_cast<std::int64_t>(program.ops.size());

  const std::size_t count = program.ops.size();
  std::vector<OpId> first(program.tensors.size(), -1), last(program.tensors.size(), -1);
  for (std::size_t i = 0; i < count; ++i) {
    const Op& op = program.ops[i];
    const auto touch = [&](TensorId t) {
      if (t == kNone) return;
      const auto base = static_cast<std::size_t>(program.base_of(t));
      if (first[base] < 0) first[base] = static_cast<OpId>(i);
      last[base] = static_cast<OpId>(i);
    };
    for (const TensorId t : op.inputs) touch(t);
    for (const TensorId t : op.outputs) touch(t);
    touch(op.workspace);
    const double flops = flops_of(program, op);
    (op.tag.phase == Phase::kRecompute ? result.recompute_flops : result.flops) += flops;
  }
  for (const TensorId t : program.results) {
    last[static_cast<std::size_t>(program.base_of(t))] = static_cast<OpId>(count);
  }
  std::vector<std::vector<TensorId>> born(count + 1), dying(count + 1);
  ByClass alive{};
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.base != kNone || tensor.storage == Storage::kHost) continue;
    if (is_resident(tensor.storage)) {
      alive[place_of(tensor.storage)] += tensor.bytes();
    } else if (first[t] >= 0) {
      dying[static_cast<std::size_t>(last[t])].push_back(static_cast<TensorId>(t));
    }
  }
  // A result that takes the place of a dying input occupies nothing more until that input is gone.
  const auto takes_over = [&](std::size_t t) {
    const auto& candidates = dying[static_cast<std::size_t>(first[t])];
    return std::any_of(candidates.begin(), candidates.end(), [&](TensorId d) {
      return d != static_cast<TensorId>(t) && program.tensor(d).bytes() > 0 &&
             program.tensor(d).offset == program.tensors[t].offset;
    });
  };
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    if (first[t] < 0 || is_resident(program.tensors[t].storage)) continue;
    const auto at = static_cast<std::size_t>(first[t]) + (takes_over(t) ? 1 : 0);
    born[at].push_back(static_cast<TensorId>(t));
  }
  std::int64_t most = -1;
  for (std::size_t i = 0; i < count; ++i) {
    for (const TensorId t : born[i])
      alive[place_of(program.tensor(t).storage)] += program.tensor(t).bytes();
    const std::int64_t total = std::accumulate(alive.begin(), alive.end(), std::int64_t{0});
    if (total > most) {
      most = total;
      result.at_peak = alive;
      result.peak_op = static_cast<OpId>(i);
    }
    for (std::size_t c = 0; c < alive.size(); ++c) {
      result.highest[c] = std::max(result.highest[c], alive[c]);
    }
    for (const TensorId t : dying[i])
      alive[place_of(program.tensor(t).storage)] -= program.tensor(t).bytes();
  }
  result.unused = result.arena_bytes - most;
  if (result.peak_op >= 0) {
    result.peak_op_text = to_string(program, program.ops[static_cast<std::size_t>(result.peak_op)]);
  }
  return result;
}

std::string memory_text(const DryRun& run) {
  std::string text = human_bytes(static_cast<double>(run.arena_bytes)) + " of memory";
  if (run.host_bytes > 0)
    text += fmt::format(" and {} of the host's", human_bytes(static_cast<double>(run.host_bytes)));
  return text;
}

}  // namespace quintet
