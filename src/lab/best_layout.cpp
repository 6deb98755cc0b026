#include "lab/best_layout.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <tuple>

#include <fmt/format.h>

#include "base/index.h"
#include "base/parallel_for.h"
#include "model/stages.h"

namespace quintet {
namespace {

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) found.push_back(d);
  }
  return found;
}

std::string name_of_layout(const StepOptions& step) {
  std::string name = layout_name(step);
  if (step.layout.shard_group > 0) name += fmt::format(", shard group {}", step.layout.shard_group);
  name += fmt::format(", micro-batch {} x {}", step.batch.micro_batch, step.accumulate);
  if (step.recompute != Recompute::kNone) {
    name +=
        fmt::format(", recompute {}", step.recompute == Recompute::kFull ? "full" : "selective");
  }
  if (step.optimizer.offload > 0) name += fmt::format(", offload {}", step.optimizer.offload);
  return name;
}

// So many of the fastest are worth simulating whole.
constexpr std::int64_t kNamed = 20;

// Seconds of one micro-batch's computation, forward and backward, by part of the model.
struct LayerSeconds {
  double encoder_layer = 0, decoder_layer = 0, head = 0;  // each layer's least
};

// What layouts share, computed when first asked for.
class SharedTimes {
 public:
  SharedTimes(const StepOptions& base, const Machine& machine, std::int32_t per_node)
      : base_(base), machine_(machine), per_node_(per_node) {}

  const LayerSeconds& of(const StepOptions& step) {
    const auto key = std::tuple(step.grid.tp, step.batch.micro_batch, step.recompute);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = known_.find(key); found != known_.end()) return found->second;
    }
    const LayerSeconds seconds = measure(step);
    const std::lock_guard lock(mutex_);
    return known_.try_emplace(key, seconds).first->second;
  }

 private:
  LayerSeconds measure(const StepOptions& step) const {
    StepOptions one = step;
    one.grid = Grid(1, step.grid.tp, 1);
    one.layout = base_.layout;
    one.layout.tp = step.grid.tp;
    one.layout.pp = 1;
    one.layout.zero = one.layout.shard_group = 0;
    one.layout.schedule = "1f1b";
    one.layout.interleave = 1;
    one.accumulate = 1;
    one.update = false;
    // Layers are alike: of each kind two, so that one is not the first.
    one.model.encoder_layers = std::min<std::int64_t>(one.model.encoder_layers, 2);
    one.model.decoder_layers = std::min<std::int64_t>(one.model.decoder_layers, 2);
    // Played against the other ranks of its tensor-parallel group: what a layer waits for there it
    // waits for under every layout.
    const std::int64_t nodes = (step.grid.tp + per_node_ - 1) / per_node_;
    const Simulation played = simulate(one, machine_, nodes).value();
    const SimulatedRank& rank = played.ranks.front();
    std::map<std::string, double> by_unit;
    for (std::size_t i = 0; i < rank.program->ops.size(); ++i) {
      const Op& op = rank.program->ops[i];
      if (is_transfer(op.kind) || op.tag.unit < 0) continue;
      // Work that data-parallel ranks may share.
      if (base_.layout.gather_fp8 && op.kind == OpKind::kQuantizeWeights) continue;
      const OpTiming& timing = rank.timings[i];
      by_unit[rank.program->units[index(op.tag.unit)].name] +=
          timing.end - timing.start + timing.blocked;
    }
    const auto least = [&](const std::string& stack, std::int64_t layers) {
      double seconds = layers > 0 ? 1e300 : 0;
      for (std::int64_t layer = 0; layer < layers; ++layer)
        seconds = std::min(seconds, by_unit[fmt::format("{}.{}", stack, layer)]);
      return kCertain * seconds;
    };
    return {.encoder_layer = least("encoder", one.model.encoder_layers),
            .decoder_layer = least("decoder", one.model.decoder_layers),
            .head = kCertain * by_unit["head"]};
  }

  // An op's time depends a little on what the ops before it left in the cache.
  static constexpr double kCertain = 0.9;

  const StepOptions& base_;
  const Machine& machine_;
  const std::int32_t per_node_;
  std::mutex mutex_;
  std::map<std::tuple<std::int32_t, std::int64_t, Recompute>, LayerSeconds> known_;
};

// Bytes that a rank's parameters and optimizer state take at least, on the stage with most of them.
double state_bound(const StepOptions& step) {
  const OptimizerConfig& optimizer = step.optimizer;
  const bool bf16 = step.options.dtype == DType::kBF16;
  const auto parameters = static_cast<double>(step.model.parameters()) /
                          (static_cast<double>(step.grid.tp) * step.grid.pp);
  const double shards = step.layout.zero == 0         ? 1
                        : step.layout.shard_group > 0 ? static_cast<double>(step.layout.shard_group)
                                                      : static_cast<double>(step.grid.dp);
  const double working = static_cast<double>(size_of(step.options.dtype));
  const double master = !bf16 ? 0 : optimizer.master == "remainder" ? 2 : 4;
  const double moments = optimizer.name != "adamw"     ? 0
                         : optimizer.moments == "fp32" ? 8
                         : optimizer.moments == "bf16" ? 4
                                                       : 2;
  // On a CPU host memory is no other memory.
  const double kept = step.target.device == Device::kCpu ? 1 : 1 - optimizer.offload;
  return parameters *
         (working / (step.layout.zero == 3 ? shards : 1) + (master + moments) * kept / shards);
}

// A time that no step of this layout can beat: each stage computes all its micro-batches, one after
// the other; and where micro-batches run through whole stages (1f1b), a stage has nothing to do
// before the stages before it have had the first micro-batch, nor they before it has had the last.
double time_bound(const StepOptions& step, const LayerSeconds& layer, const Machine& machine,
                  std::int32_t ranks_per_node) {
  const bool interleaved = step.layout.schedule == "interleaved";
  const auto pieces = static_cast<std::int32_t>(interleaved ? step.layout.interleave : 1);
  const auto cut =
      cut_into_stages(step.model, step.batch.source, step.batch.target, step.grid.pp * pieces);
  if (!cut.ok()) return 0;
  std::vector<double> stage(index(step.grid.pp), 0);
  for (const std::int32_t chunk : cut.value().encoder)
    stage[index(chunk % step.grid.pp)] += layer.encoder_layer;
  for (const std::int32_t chunk : cut.value().decoder)
    stage[index(chunk % step.grid.pp)] += layer.decoder_layer;
  stage[index(cut.value().head % step.grid.pp)] += layer.head;
  // The first decoder layer begins without the encoder, and a layer's last gradients are nobody's
  // business but its own: so much of the fill and the drain may be used after all.
  const double early = 2 * std::max(layer.encoder_layer, layer.decoder_layer);
  double bound = 0, before = 0, all = 0;
  for (const double seconds : stage) {
    const double own = step.accumulate * seconds;
    bound = std::max({bound, own, interleaved ? 0 : before - early + own});
    before += seconds;
    all += own;
  }
  // Each rank then updates its part: on the average stage, that of an average rank's parameters,
  // read and written once. The costliest stage takes no less than the average one.
  const double update = state_bound(step) / machine.memory_bytes_per_second();
  bound = std::max(bound, all / step.grid.pp + 0.5 * update);
  if (machine.kind() == Device::kCpu) {
    // All ranks of a machine want its cores.
    const double nodes = std::ceil(static_cast<double>(step.grid.size()) / ranks_per_node);
    bound = std::max(bound, all * step.grid.dp * step.grid.tp * step.target.threads /
                                (nodes * static_cast<double>(machine.node.cores)));
  }
  return bound;
}

}  // namespace

Result<LayoutTime> estimate(const StepOptions& step, const Machine& machine, std::int64_t nodes) {
  // Beyond the filling of the pipeline every group of micro-batches adds the same: two short steps
  // tell how much.
  const std::int32_t pp = step.grid.pp;
  const std::int32_t few = 2 * pp, more = 3 * pp;
  LayoutTime result{.step = step};
  const auto take = [&](const Simulation& simulation) {
    result.step_seconds = simulation.step_seconds;
    result.account = simulation.account;
    result.device_bytes = simulation.device_bytes;
    result.host_bytes = simulation.host_bytes;
  };
  if (step.accumulate <= more) {
    QT_ASSIGN(const Simulation whole, simulate(step, machine, nodes));
    take(whole);
    return result;
  }
  StepOptions shorter = step;
  shorter.accumulate = few;
  QT_ASSIGN(const Simulation first, simulate(shorter, machine, nodes));
  shorter.accumulate = more;
  QT_ASSIGN(const Simulation second, simulate(shorter, machine, nodes));
  take(second);
  const double left = static_cast<double>(step.accumulate - more) / (more - few);
  result.step_seconds += left * (second.step_seconds - first.step_seconds);
  StepAccount each = first.account;
  each *= -1;
  each += second.account;
  each *= left;
  result.account += each;
  result.estimated = true;
  return result;
}

std::vector<StepOptions> all_layouts(const StepOptions& base) {
  std::vector<StepOptions> found;
  const std::int64_t ranks = base.grid.size(), batch = base.global_batch();
  const bool gpu = base.target.device == Device::kCuda;
  const std::vector<double> offloads = gpu ? std::vector<double>{0, 0.5, 1} : std::vector{0.0};
  for (const std::int64_t tp : divisors(ranks)) {
    for (const std::int64_t pp : divisors(ranks / tp)) {
      const std::int64_t dp = ranks / tp / pp;
      if (batch % dp != 0) continue;
      StepOptions step = base;
      step.layout.tp = tp;
      step.layout.pp = pp;
      step.layout.shard_group = 0;
      auto grid = make_grid(ranks, step.layout);
      if (!grid.ok()) continue;
      step.grid = grid.value();
      // Pieces of the model on each stage; 1 is 1f1b.
      for (const std::int64_t interleave : {1, 2, 4}) {
        if (interleave > 1 && pp == 1) continue;
        step.layout.schedule = interleave > 1 ? "interleaved" : "1f1b";
        step.layout.interleave = interleave;
        for (const std::int64_t micro_batch : divisors(batch / dp)) {
          step.batch.micro_batch = micro_batch;
          step.accumulate = static_cast<std::int32_t>(batch / dp / micro_batch);
          if (!validate(step).ok()) continue;
          for (std::int64_t zero = 0; zero <= (dp > 1 ? 3 : 0); ++zero) {
            step.layout.zero = zero;
            step.layout.gather_fp8 = base.layout.gather_fp8 && zero == 3;
            for (const std::int64_t group : divisors(dp)) {
              // All of them is the whole group; nothing is sharded over one.
              if (group == 1 && dp > 1) continue;
              if (zero == 0 && group < dp) continue;
              step.layout.shard_group = group == dp ? 0 : group;
              for (const Recompute recompute :
                   {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
                step.recompute = recompute;
                for (const double offload : offloads) {
                  step.optimizer.offload = offload;
                  found.push_back(step);
                }
              }
            }
          }
        }
      }
    }
  }
  return found;
}

Result<LayoutSearch> best_layouts(const StepOptions& base, const Machine& machine,
                                  const SearchOptions& options) {
  QT_ASSIGN(const std::int32_t per_node, ranks_per_node(machine, base.grid.size(), options.nodes));
  LayoutSearch search;
  search.global_batch = base.global_batch();
  const std::vector<StepOptions> layouts = all_layouts(base);
  search.layouts = static_cast<std::int64_t>(layouts.size());

  // 1. What cannot fit is dropped, the rest gets its bound.
  SharedTimes shared(base, machine, per_node);
  const double memory = machine.kind() == Device::kCuda ? machine.memory_bytes()
                                                        : machine.host_memory_bytes() / per_node;
  std::vector<LayoutTime> candidates;
  for (const StepOptions& step : layouts) {
    if (state_bound(step) > memory) {
      ++search.too_large;
    } else {
      candidates.push_back({.step = step});
    }
  }
  parallel_items(static_cast<std::int64_t>(candidates.size()), true, [&](std::int64_t i, int) {
    LayoutTime& each = candidates[index(i)];
    each.bound = time_bound(each.step, shared.of(each.step), machine, per_node);
  });
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.bound < b.bound; });

  // 2. The most promising first, a few at a time, until no bound is below the last of the best.
  constexpr std::size_t kAtOnce = 8;
  std::vector<double> best;  // times of the fastest so far, sorted
  std::vector<LayoutTime> timed;
  for (std::size_t at = 0; at < candidates.size(); at += kAtOnce) {
    const std::size_t end = std::min(at + kAtOnce, candidates.size());
    const bool enough = static_cast<std::int64_t>(best.size()) >= options.keep;
    if (options.prune && enough && candidates[at].bound >= best[index(options.keep - 1)]) {
      search.pruned += static_cast<std::int64_t>(candidates.size() - at);
      break;
    }
    std::vector<Status> states(end - at);
    std::vector<char> fitting(end - at, 0);
    parallel_items(static_cast<std::int64_t>(end - at), true, [&](std::int64_t i, int) {
      LayoutTime& each = candidates[at + index(i)];
      auto timed_one = estimate(each.step, machine, options.nodes);
      if (!timed_one.ok()) {
        states[index(i)] = timed_one.error();
        return;
      }
      const double bound = each.bound;
      each = std::move(timed_one).value();
      each.bound = bound;
      fitting[index(i)] = fits(each.device_bytes, each.host_bytes, machine, per_node) ? 1 : 0;
    });
    for (std::size_t i = at; i < end; ++i) {
      QT_TRY(states[i - at]);
      ++search.simulated;
      if (fitting[i - at] == 0) {
        ++search.too_large;
        continue;
      }
      candidates[i].name = name_of_layout(candidates[i].step);
      best.insert(std::upper_bound(best.begin(), best.end(), candidates[i].step_seconds),
                  candidates[i].step_seconds);
      timed.push_back(candidates[i]);
    }
    if (options.progress) {
      options.progress(search.layouts - static_cast<std::int64_t>(candidates.size() - end),
                       search.layouts);
    }
  }

  // 3. The fastest, and those that nothing beats in both time and memory.
  const auto faster = [](const LayoutTime& a, const LayoutTime& b) {
    return std::tuple(a.step_seconds, a.device_bytes) < std::tuple(b.step_seconds, b.device_bytes);
  };
  const auto front_of = [&](std::vector<LayoutTime> layouts) {
    std::stable_sort(layouts.begin(), layouts.end(), faster);
    std::vector<LayoutTime> front;
    for (LayoutTime& each : layouts) {
      if (front.empty() || each.device_bytes < front.back().device_bytes)
        front.push_back(std::move(each));
    }
    return front;
  };
  std::stable_sort(timed.begin(), timed.end(), faster);
  const auto kept = std::min(std::ssize(timed), static_cast<std::ptrdiff_t>(options.keep));
  search.fastest.assign(timed.begin(), timed.begin() + kept);
  search.front = front_of(std::move(timed));
  // 4. Those that are named are simulated whole.
  parallel_items(static_cast<std::int64_t>(search.fastest.size()), true, [&](std::int64_t i, int) {
    LayoutTime& each = search.fastest[index(i)];
    if (!each.estimated || static_cast<std::int64_t>(search.fastest.size()) > kNamed) return;
    if (const auto whole = simulate(each.step, machine, options.nodes); whole.ok()) {
      each.step_seconds = whole.value().step_seconds;
      each.account = whole.value().account;
      each.estimated = false;
    }
  });
  std::stable_sort(search.fastest.begin(), search.fastest.end(), faster);
  // A layout that is in both lists has one time.
  for (LayoutTime& each : search.front) {
    const auto named = std::find_if(search.fastest.begin(), search.fastest.end(),
                                    [&](const LayoutTime& one) { return one.name == each.name; });
    if (named != search.fastest.end()) each = *named;
  }
  search.front = front_of(std::move(search.front));
  return search;
}

std::string why_slower(const LayoutTime& best, const LayoutTime& other) {
  const auto ours = parts_of(best.account), theirs = parts_of(other.account);
  std::size_t most = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (theirs[i].seconds - ours[i].seconds > theirs[most].seconds - ours[most].seconds) most = i;
  }
  return fmt::format("{} {:+.2f} ms", ours[most].name,
                     1e3 * (theirs[most].seconds - ours[most].seconds));
}

}  // namespace quintet
