#include "lab/simulate.h"

#include <algorithm>

#include "base/check.h"
#include "base/index.h"
#include "base/parallel_for.h"
#include "lab/fluid_clock.h"
#include "lab/link_time.h"
#include "program/play.h"
#include "runtime/backend.h"
#include "runtime/trace.h"

namespace quintet {
namespace {

using Item = RankTrace::Item;
using Work = FluidClock::Work;

// A rank's program with what its items take by themselves.
class RankWork {
 public:
  RankWork(const Program& program, const RankTrace& trace, const Backend& backend,
           const Machine& machine, const Placement& placement)
      : program_(program),
        backend_(backend),
        machine_(machine),
        placement_(placement),
        times_(machine.times_of(program)),
        talk_seconds_(program.ops.size(), 0) {
    for (const Group& group : program.groups)
      spans_.push_back(placement.span_of(group.ranks, program.place.rank));
    for (const Item& item : trace.items) work_.push_back(work_of(item));
  }
  std::vector<Work> take_work() { return std::move(work_); }
  const std::vector<OpTime>& times() const { return times_; }
  // Of a computation that talks: the seconds of that, by itself.
  double talk_seconds(OpId op) const { return talk_seconds_[index(op)]; }
  const Provenance& provenance() const { return provenance_; }

 private:
  Work work_of(const Item& item) {
    const Op& op = program_.ops[index(item.op)];
    if (is_communication(op.kind)) return communication(item, op);
    Work work;
    const bool copies = op.kind == OpKind::kCopy && backend_.copies_beside_computation();
    if (copies)
      work.what =
          op.stream == Stream::kCopyIn ? FluidClock::What::kCopyIn : FluidClock::What::kCopyOut;
    // On a CPU the ranks of a node slow each other down, some kinds of ops more than others.
    const std::int32_t ranks = placement_.ranks_per_node();
    const bool shared = machine_.kind() == Device::kCpu && ranks > 1;
    std::vector<double> beside(shared ? index(std::min(ranks, 64)) : 0, 0);
    for (OpId i = item.first_op; i <= item.op; ++i) {
      const Op& each = program_.ops[index(i)];
      if (i != item.op && (is_communication(each.kind) || stream_of(each) != item.stream)) continue;
      const OpTime& time = times_[index(i)];
      work.seconds += time.seconds;
      provenance_.add(time);
      for (std::size_t k = 0; k < beside.size(); ++k)
        beside[k] +=
            time.seconds * machine_.beside_ranks(class_of(each.kind), static_cast<double>(k + 1));
    }
    for (const double sum : beside)
      work.beside.push_back(static_cast<float>(work.seconds > 0 ? sum / work.seconds : 1));
    if (item.group >= 0) {  // talks inside
      const LinkTime link =
          link_time(machine_, op.kind, backend_.talk({program_, op}), spans_[index(item.group)]);
      talk_seconds_[index(item.op)] = link.time.seconds;
      work.seconds += link.time.seconds;
      provenance_.add(link.time);
    }
    return work;
  }

  Work communication(const Item& item, const Op& op) {
    const Talk talk = backend_.talk({program_, op});
    Work work;
    work.what = FluidClock::What::kCommunicate;
    const double here = placement_.stands_for_on_node(program_.place.rank);
    if (item.group < 0) {
      const std::int32_t peer = std::get<TransferAttrs>(op.attrs).peer;
      const std::array<std::int32_t, 2> pair{program_.place.rank, peer};
      const LinkTime link =
          link_time(machine_, op.kind, talk, placement_.span_of(pair, program_.place.rank));
      work.seconds = link.time.seconds;
      work.thread = link.thread;
      (op.kind == OpKind::kSend ? work.out : work.in) = link.network * here;
      provenance_.add(link.time);
      return work;
    }
    const Placement::Span& span = spans_[index(item.group)];
    const LinkTime link = link_time(machine_, op.kind, talk, span);
    work.seconds = link.time.seconds;
    work.thread = link.thread;
    work.out = work.in = link.network * here / span.on_node;
    provenance_.add(link.time);
    return work;
  }

  Stream stream_of(const Op& op) const {
    return backend_.issues_in_order() && !is_communication(op.kind) ? Stream::kCompute : op.stream;
  }

  const Program& program_;
  const Backend& backend_;
  const Machine& machine_;
  const Placement& placement_;
  const std::vector<OpTime> times_;
  std::vector<double> talk_seconds_;
  std::vector<Placement::Span> spans_;  // by group
  std::vector<Work> work_;
  Provenance provenance_;
};

// From when items ran to when ops ran, as an executor would have measured it.
class Timeline {
 public:
  Timeline(const Program& program, const RankTrace& trace, std::int32_t at, const FluidClock& clock,
           const RankWork& work, bool in_order)
      : program_(program), trace_(trace), at_(at), clock_(clock), work_(work), in_order_(in_order) {
    timings.resize(program.ops.size());
    others_came.assign(program.ops.size(), -std::numeric_limits<double>::infinity());
    std::array<double, kStreamCount> stream_free{};
    for (std::size_t i = 0; i < trace.items.size(); ++i) {
      const Item& item = trace.items[i];
      const FluidClock::Times& times = clock.times({at, static_cast<std::int32_t>(i)});
      others_came[index(item.op)] = times.others_came;
      end = std::max(end, times.end);
      double& free = stream_free[static_cast<std::size_t>(item.stream)];
      if (is_communication(item.kind)) {
        timings[index(item.op)] = {.start = times.came, .end = times.end, .talking = times.talking};
      } else {
        spread(item, times, free);
      }
      free = times.end;
    }
  }

  std::vector<OpTiming> timings;
  std::vector<double> others_came;
  double end = 0;

 private:
  // An item's ops one after the other, each its share of the time.
  void spread(const Item& item, const FluidClock::Times& times, double free) {
    // One that meets others came before it could start.
    const double came = item.what == Item::What::kCollective ? times.came : times.start;
    double alone = 0;
    std::vector<OpId> ops;
    for (OpId i = item.first_op; i <= item.op; ++i) {
      const Op& op = program_.ops[index(i)];
      if (i != item.op && (is_communication(op.kind) || !in_stream(op, item))) continue;
      ops.push_back(i);
      alone += work_.times()[index(i)].seconds + work_.talk_seconds(i);
    }
    const double took = times.end - times.start - times.lost;
    const double stretch = alone > 0 ? took / alone : 0;
    double at = came;
    for (const OpId i : ops) {
      OpTiming& timing = timings[index(i)];
      timing.start = at;
      timing.talking = work_.talk_seconds(i) * stretch;
      at += (work_.times()[index(i)].seconds + work_.talk_seconds(i)) * stretch;
      timing.end = at;
      // A loop that copies by itself talks meanwhile, as executors count it.
      if (in_order_ && is_transfer(program_.ops[index(i)].kind))
        timing.talking = timing.end - timing.start;
    }
    if (item.what == Item::What::kCollective) {
      timings[index(item.op)].talking += times.start - came;
      timings[index(item.op)].end += times.start - came;
    }
    block(item, ops.front(), came, free);
  }

  // Whom the first op of an item had to wait for.
  void block(const Item& item, OpId first, double came, double free) {
    OpTiming& timing = timings[index(first)];
    if (item.waits.empty() || came <= free) return;
    double latest = free;
    for (const std::int32_t wait : item.waits) {
      const double ended = clock_.times({at_, wait}).end;
      if (ended <= latest) continue;
      latest = ended;
      timing.blocked_by = trace_.items[index(wait)].op;
    }
    if (timing.blocked_by >= 0) timing.blocked = came - free;
  }

  bool in_stream(const Op& op, const Item& item) const {
    return (in_order_ ? Stream::kCompute : op.stream) == item.stream;
  }

  const Program& program_;
  const RankTrace& trace_;
  const std::int32_t at_;
  const FluidClock& clock_;
  const RankWork& work_;
  const bool in_order_;
};

}  // namespace

Status adapt_to(const Machine& machine, RunConfig& config) {
  const bool cpu = machine.kind() == Device::kCpu;
  config.train.device = cpu ? "cpu" : "cuda";
  if (!cpu && config.train.precision == "fp8" && machine.device.sm < 89) {
    return usage_error(
        "train.precision = \"fp8\" needs GPUs of compute capability 8.9 or later, and those of {} "
        "have {}.{}; plan with \"bf16\"",
        machine.name, machine.device.sm / 10, machine.device.sm % 10);
  }
  if (!cpu) return {};
  if (config.train.threads == 0)
    config.train.threads = std::max<std::int64_t>(machine.device.threads, 1);
  if (machine.device.threads > 0 && config.train.threads != machine.device.threads) {
    return usage_error(
        "train.threads = {}: the ops of machine {} were measured with {} thread{} a rank; "
        "calibrate "
        "with {} or plan with {}",
        config.train.threads, machine.name, machine.device.threads,
        machine.device.threads == 1 ? "" : "s", config.train.threads, machine.device.threads);
  }
  return {};
}

Result<Simulation> simulate(const StepOptions& options, const Machine& machine, std::int64_t nodes,
                            Fold fold) {
  const Grid& grid = options.grid;
  QT_ASSIGN(const std::int32_t per_node, ranks_per_node(machine, grid.size(), nodes));
  const Placement placement(grid, per_node, options.layout.shard_group, fold);
  const auto backend = make_backend(options.target);
  const TraceScope scope{.every_op = true, .issued_in_order = backend->issues_in_order()};

  // 1. Programs of the ranks that are played, and what their items take by themselves.
  const auto& played = placement.played();
  const std::size_t count = played.size();
  std::vector<std::shared_ptr<const Program>> programs(count);
  std::vector<RankTrace> traces(count);
  std::vector<std::unique_ptr<RankWork>> works(count);
  parallel_items(static_cast<std::int64_t>(count), true, [&](std::int64_t i, int) {
    programs[index(i)] = std::make_shared<const Program>(compile_step(options, played[index(i)]));
    traces[index(i)] = trace_of(*programs[index(i)], scope);
    works[index(i)] = std::make_unique<RankWork>(*programs[index(i)], traces[index(i)], *backend,
                                                 machine, placement);
    traces[index(i)] = renamed(std::move(traces[index(i)]),
                               [&](std::int32_t rank) { return placement.played_for(rank); });
  });
  std::vector<std::int32_t> stages;
  std::vector<std::vector<Work>> work;
  for (std::size_t i = 0; i < count; ++i) {
    stages.push_back(programs[i]->place.pp);
    work.push_back(works[i]->take_work());
  }

  // 2. The play.
  FluidClock clock(machine, placement, options.target.threads, traces, stages, work);
  if (const auto findings = play(traces, &clock); !findings.empty()) {
    return make_error(ErrorCode::kInternal, "the ranks' programs do not fit together:\n  {}",
                      fmt::join(findings, "\n  "));
  }

  // 3. What came of it.
  Simulation result;
  result.world = grid.size();
  result.step_seconds = clock.now();
  const auto sequences = static_cast<double>(options.global_batch());
  result.tokens = sequences * static_cast<double>(options.batch.source + options.batch.target);
  result.flops =
      sequences * flops_per_sequence(options.model, options.batch.source, options.batch.target);
  for (std::size_t i = 0; i < count; ++i) {
    const Program& program = *programs[i];
    Timeline line(program, traces[i], static_cast<std::int32_t>(i), clock, *works[i],
                  scope.issued_in_order);
    SimulatedRank rank{.rank = played[i],
                       .stage = program.place.pp,
                       .stands_for = placement.stands_for(played[i])};
    rank.account = account_of(program, *backend, line.timings, line.end, 0, line.others_came);
    // Who is done first waits for the others in the next step.
    rank.account.bubble += result.step_seconds - line.end;
    rank.account.step = result.step_seconds;
    rank.timings = std::move(line.timings);
    rank.program = programs[i];
    StepAccount share = rank.account;
    share *= static_cast<double>(rank.stands_for) / static_cast<double>(result.world);
    result.account += share;
    for (std::size_t o = 0; o < result.provenance.seconds.size(); ++o)
      result.provenance.seconds[o] += works[i]->provenance().seconds[o] * rank.stands_for;
    result.device_bytes =
        std::max(result.device_bytes, program.arena_bytes + backend->bytes_beside_arena(program));
    result.host_bytes = std::max(result.host_bytes, program.host_bytes);
    result.ranks.push_back(std::move(rank));
  }
  return result;
}

bool fits(std::int64_t device_bytes, std::int64_t host_bytes, const Machine& machine,
          std::int32_t ranks_per_node) {
  const auto device = static_cast<double>(device_bytes);
  const double host = static_cast<double>(host_bytes) * ranks_per_node;
  // On a CPU the ranks of a node share its memory.
  if (machine.kind() == Device::kCpu)
    return device * ranks_per_node + host <= machine.host_memory_bytes();
  return device <= machine.memory_bytes() &&
         (host_bytes == 0 || host <= machine.host_memory_bytes());
}

std::string trace_of(const Simulation& simulation, const Backend& backend) {
  std::string events;
  for (const SimulatedRank& rank : simulation.ranks) {
    events += trace_names(*rank.program);
    events += trace_events(*rank.program, backend, rank.timings, 1, 0, 0);
  }
  return trace_file(events);
}

}  // namespace quintet
