// The simulator: times known by arithmetic, folded worlds against whole ones, breakdowns that add
// up, and a search that loses nothing by its bounds.
#include "lab/simulate.h"

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "base/json.h"
#include "lab/best_layout.h"
#include "lab/fluid_clock.h"
#include "lab/link_time.h"
#include "runtime/backend.h"
#include "tests/support/programs.h"

namespace quintet {
namespace {

// A GPU cluster of nodes with so many devices; nothing measured, everything from rates.
Machine gpus(std::int64_t devices) {
  Machine machine;
  machine.name = "made up";
  machine.device.kind = "cuda";
  machine.device.sm = 80;
  machine.device.memory_gib = 80;
  machine.device.fp32_tflop_per_s = 0.02;  // so slow that tiny programs take a while
  machine.device.bf16_tflop_per_s = 0.1;
  machine.device.memory_gb_per_s = 20;
  machine.device.copy_in_gb_per_s = machine.device.copy_out_gb_per_s = 1;
  machine.device.copy_latency_us = 1;
  machine.device.op_us = 1;
  machine.node.devices = devices;
  machine.node.cores = 64;
  machine.node.host_memory_gib = 1024;
  machine.inside.latency_us = 2;
  machine.inside.gb_per_s = 4;
  machine.between.latency_us = 5;
  machine.between.gb_per_s = 0.5;
  machine.between.links = 2;
  machine.sharing.compute_beside_communication = 1.1;
  machine.sharing.communication_beside_compute = 1.2;
  return machine;
}

Machine cpus(std::int64_t nodes, std::int64_t cores) {
  Machine machine = gpus(cores);
  machine.device.kind = "cpu";
  machine.device.sm = 0;
  machine.device.threads = 1;
  machine.node.nodes = nodes;
  machine.node.cores = cores;
  machine.between.links = 1;
  return machine;
}

StepOptions layout_on(const Machine& machine, std::int32_t dp, std::int32_t tp, std::int32_t pp,
                      std::int64_t zero) {
  StepOptions options = testing::tiny_step();
  options.batch = {2, 16, 8, false};
  options.grid = Grid(dp, tp, pp);
  options.layout.tp = tp;
  options.layout.pp = pp;
  options.layout.zero = zero;
  options.layout.whole_below = 0;
  options.accumulate = 4;
  options.target.device = machine.kind();
  options.target.threads = 1;
  return options;
}

double total(const StepAccount& account) {
  double sum = 0;
  for (const AccountPart& part : parts_of(account)) sum += part.seconds;
  return sum;
}

TEST(Simulate, OneRankTakesTheSumOfItsOps) {
  const Machine machine = gpus(1);
  const StepOptions options = layout_on(machine, 1, 1, 1, 0);
  const Simulation s = simulate(options, machine).value();
  const Program program = compile_step(options);
  double seconds = 0;
  for (const OpTime& time : machine.times_of(program)) seconds += time.seconds;
  EXPECT_NEAR(s.step_seconds, seconds, 1e-9 * seconds);
  EXPECT_EQ(s.account.exposed_total(), 0);
  EXPECT_NEAR(s.account.bubble + s.account.other, 0, 1e-12);
  EXPECT_EQ(s.provenance.share(Origin::kDataSheet), 1);
  EXPECT_NEAR(s.tokens_per_second(), 4 * 2 * (16 + 8) / seconds, 1e-6 / seconds);
}

TEST(Simulate, RingsTakeTheirBytesOverTheirSlowestLink) {
  const Machine machine = gpus(4);
  Talk talk{.algorithm = Algorithm::kRing, .members = 4, .bytes_sent = 0, .rounds = 2};
  talk.bytes = 4'000'000;
  talk.bytes_sent = 2 * 3 * 1'000'000;
  // Inside a node: 6 MB at 4 GB/s, and a tree of two levels there and back.
  const LinkTime near = link_time(machine, OpKind::kAllReduce, talk, {4, 1, 4, 4, 4});
  EXPECT_NEAR(near.time.seconds, 6e6 / 4e9 + 4 * 2e-6 + 1e-6, 1e-12);
  EXPECT_EQ(near.network, 0);
  // One on each of four nodes: the one link that is nearest.
  const LinkTime far = link_time(machine, OpKind::kAllReduce, talk, {4, 4, 1, 1, 1});
  EXPECT_NEAR(far.time.seconds, 6e6 / 0.5e9 + 4 * 5e-6 + 1e-6, 1e-12);
  EXPECT_NEAR(far.network, 0.5, 0.01);  // one of the two links
}

TEST(Simulate, EverybodyToEverybodySharesTheNodesLink) {
  // Two ranks on each of two nodes exchange 4 parts of 1 MB: each node sends 2 x 2 MB away.
  const Machine machine = cpus(2, 4);
  Talk talk{.algorithm = Algorithm::kGather, .members = 4, .bytes_sent = 3'000'000, .rounds = 1};
  talk.bytes = 4'000'000;
  const LinkTime time = link_time(machine, OpKind::kAllGather, talk, {4, 2, 2, 2, 2});
  EXPECT_NEAR(time.time.seconds, 4e6 / 0.5e9 + 2e-6 + 2 * 5e-6, 1e-12);
  EXPECT_NEAR(time.network, 1, 0.01);
}

TEST(Simulate, WhatARankTalksItDoesNotCompute) {
  Machine machine = cpus(2, 4);
  Talk talk{.algorithm = Algorithm::kGather, .members = 2, .bytes_sent = 1'000'000, .rounds = 1};
  talk.bytes = 2'000'000;
  const auto time = [&] { return link_time(machine, OpKind::kAllGather, talk, {2, 2, 1, 1, 1}); };
  // Not measured: it copies twice at the rate inside a node.
  EXPECT_NEAR(time().thread * time().time.seconds, 2e6 / 4e9, 1e-12);
  machine.between.thread_gb_per_s = 1;
  EXPECT_NEAR(time().thread * time().time.seconds, 1e6 / 1e9, 1e-12);
  machine.between.thread_gb_per_s = 0.1;  // no more than all of it
  EXPECT_EQ(time().thread, 1);
  // And a step takes longer for it.
  const StepOptions options = layout_on(machine, 2, 1, 1, 0);
  const double slow = simulate(options, machine, 2).value().step_seconds;
  machine.between.thread_gb_per_s = 100;
  EXPECT_GT(slow, simulate(options, machine, 2).value().step_seconds);
}

// Ranks that each do what `items` says, without a program.
struct MadeUp {
  std::vector<RankTrace> traces;
  std::vector<std::vector<FluidClock::Work>> work;
  void compute(std::size_t rank, double seconds, std::vector<std::int32_t> waits = {}) {
    add(rank, RankTrace::Item::What::kCompute, Stream::kCompute, seconds, std::move(waits));
  }
  void message(std::size_t from, std::size_t to, std::int32_t tag, double seconds, double network,
               std::vector<std::int32_t> waits = {}) {
    auto& send =
        add(from, RankTrace::Item::What::kSend, Stream::kSendForward, seconds, std::move(waits));
    send.peer = static_cast<std::int32_t>(to);
    send.tag = tag;
    work[from].back().out = network;
    auto& recv = add(to, RankTrace::Item::What::kRecv, Stream::kRecvForward, seconds, {});
    recv.peer = static_cast<std::int32_t>(from);
    recv.tag = tag;
    work[to].back().in = network;
  }
  RankTrace::Item& add(std::size_t rank, RankTrace::Item::What what, Stream stream, double seconds,
                       std::vector<std::int32_t> waits) {
    while (traces.size() <= rank) {
      RankTrace trace;
      trace.rank = static_cast<std::int32_t>(traces.size());
      traces.push_back(trace);
      work.emplace_back();
    }
    RankTrace::Item item;
    item.what = what;
    item.stream = stream;
    item.kind = what == RankTrace::Item::What::kCompute ? OpKind::kMatmul
                : what == RankTrace::Item::What::kSend  ? OpKind::kSend
                                                        : OpKind::kRecv;
    item.waits = std::move(waits);
    traces[rank].items.push_back(item);
    work[rank].push_back({.what = what == RankTrace::Item::What::kCompute
                                      ? FluidClock::What::kCompute
                                      : FluidClock::What::kCommunicate,
                          .seconds = seconds,
                          .thread = what == RankTrace::Item::What::kCompute ? 1.0 : 0.0});
    return traces[rank].items.back();
  }
  double run(const Machine& machine, std::int32_t per_node, int threads = 1) {
    const auto ranks = static_cast<std::int32_t>(traces.size());
    const Placement placement(Grid(ranks, 1, 1), per_node, 0, Fold::kNone);
    std::vector<std::int32_t> stages(traces.size());
    std::iota(stages.begin(), stages.end(), 0);
    FluidClock clock(machine, placement, threads, traces, stages, work);
    EXPECT_EQ(play(traces, &clock), std::vector<std::string>());
    return clock.now();
  }
};

TEST(FluidClock, RanksShareTheCoresOfTheirNode) {
  MadeUp world;
  for (std::size_t rank = 0; rank < 4; ++rank) world.compute(rank, 1.0);
  EXPECT_NEAR(world.run(cpus(1, 4), 4), 1, 1e-12);
  EXPECT_NEAR(world.run(cpus(1, 2), 4), 2, 1e-12);
  EXPECT_NEAR(world.run(cpus(2, 2), 2), 1, 1e-12);     // two nodes of two
  EXPECT_NEAR(world.run(cpus(1, 2), 4, 2), 4, 1e-12);  // two threads each
}

TEST(FluidClock, WhoIsDoneLeavesTheCoresToTheOthers) {
  MadeUp world;
  world.compute(0, 1.0);
  world.compute(1, 3.0);
  // Both at half speed until 2, then the second alone: 2 of its 3 seconds are left.
  EXPECT_NEAR(world.run(cpus(1, 1), 2), 4, 1e-12);
}

TEST(FluidClock, MessagesShareTheLinkTheyLeaveBy) {
  MadeUp world;
  world.message(0, 2, 0, 1.0, 1.0);
  world.message(1, 3, 1, 1.0, 1.0);
  EXPECT_NEAR(world.run(gpus(2), 2), 2, 1e-12);  // both leave node 0 and enter node 1
  MadeUp apart;
  apart.message(0, 2, 0, 1.0, 1.0);
  apart.message(3, 1, 1, 1.0, 1.0);
  EXPECT_NEAR(apart.run(gpus(2), 2), 1, 1e-12);  // one each way
}

TEST(FluidClock, CommunicationBesideComputationSlowsBoth) {
  MadeUp world;
  world.compute(0, 1.1);
  world.message(0, 1, 0, 1.0, 0);
  // 1.2 s of the message at its factor; meanwhile 1.2 / 1.1 of the computation are done, the rest
  // goes on alone.
  EXPECT_NEAR(world.run(gpus(1), 1), 1.2 + (1.1 - 1.2 / 1.1), 1e-12);
}

TEST(FluidClock, APipelineFillsAndDrains) {
  // Three stages, five micro-batches, one second each, messages that take no time.
  MadeUp world;
  constexpr int kStages = 3, kBatches = 5;
  for (int m = 0; m < kBatches; ++m) {
    world.compute(0, 1.0);
    for (std::size_t s = 1; s < kStages; ++s) {
      const auto last = static_cast<std::int32_t>(world.traces[s - 1].items.size()) - 1;
      world.message(s - 1, s, m * kStages + static_cast<int>(s), 0, 0, {last});
      world.compute(s, 1.0, {static_cast<std::int32_t>(world.traces[s].items.size()) - 1});
    }
  }
  EXPECT_NEAR(world.run(gpus(8), 8), kBatches + kStages - 1, 1e-9);
}

struct Case {
  std::int32_t dp, tp, pp;
  std::int64_t zero, shard_group;
  std::int32_t per_node;
};

void expect_same(const Simulation& folded, const Simulation& whole) {
  EXPECT_NEAR(folded.step_seconds, whole.step_seconds, 1e-9 * whole.step_seconds);
  const auto a = parts_of(folded.account), b = parts_of(whole.account);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i].seconds, b[i].seconds, 1e-7 * whole.step_seconds) << a[i].name;
  for (std::size_t m = 0; m < kMethodCount; ++m)
    EXPECT_NEAR(folded.account.hidden[m], whole.account.hidden[m], 1e-7 * whole.step_seconds) << m;
  EXPECT_NEAR(total(folded.account), folded.step_seconds, 1e-9 * folded.step_seconds);
  EXPECT_NEAR(total(whole.account), whole.step_seconds, 1e-9 * whole.step_seconds);
  EXPECT_EQ(folded.device_bytes, whole.device_bytes);
}

TEST(Simulate, FoldedTimesEqualUnfoldedOnes) {
  for (const Case& c : {Case{4, 1, 1, 0, 0, 2}, Case{4, 1, 1, 3, 0, 2}, Case{4, 1, 1, 2, 2, 2},
                        Case{2, 2, 2, 1, 0, 4}, Case{2, 2, 2, 3, 0, 2}, Case{4, 2, 1, 2, 0, 4},
                        Case{2, 1, 2, 2, 0, 4}, Case{4, 2, 2, 1, 2, 8}, Case{4, 1, 2, 3, 0, 4},
                        Case{4, 1, 2, 1, 2, 2}}) {
    for (const Machine& machine : {gpus(c.per_node), cpus(c.dp * c.tp * c.pp / c.per_node, 2)}) {
      SCOPED_TRACE(fmt::format("dp {} tp {} pp {} zero {} group {}, {} a node, {}", c.dp, c.tp,
                               c.pp, c.zero, c.shard_group, c.per_node, machine.device.kind));
      StepOptions options = layout_on(machine, c.dp, c.tp, c.pp, c.zero);
      options.layout.shard_group = c.shard_group;
      // Without the update, data-parallel ranks run the same program but for names.
      options.update = false;
      const Simulation folded = simulate(options, machine, 0, Fold::kData).value();
      const Simulation whole = simulate(options, machine, 0, Fold::kNone).value();
      EXPECT_EQ(folded.ranks.size(), static_cast<std::size_t>(c.pp * c.tp));
      EXPECT_EQ(whole.ranks.size(), static_cast<std::size_t>(options.grid.size()));
      // Tensor-parallel ranks have programs that differ in trifles.
      if (c.tp == 1) expect_same(folded, whole);
      EXPECT_NEAR(folded.step_seconds, whole.step_seconds, 3e-3 * whole.step_seconds);
      // With it they differ in who counts a gradient in the norm, and tensor-parallel ranks in who
      // adds a residual: the first does most.
      options.update = true;
      const double all = simulate(options, machine, 0, Fold::kNone).value().step_seconds;
      const Simulation coarse = simulate(options, machine).value();
      EXPECT_EQ(coarse.ranks.size(), static_cast<std::size_t>(c.pp));
      EXPECT_NEAR(coarse.step_seconds, all, 3e-3 * all);
    }
  }
}

TEST(Simulate, CodesTakeLessTimeThanWeights) {
  Machine machine = gpus(4);
  machine.device.sm = 90;
  StepOptions options = layout_on(machine, 4, 1, 1, 3);
  options.options.dtype = options.options.grad_dtype = DType::kBF16;
  options.options.fp8 = true;
  ASSERT_TRUE(validate(options).ok());
  // Communication by data-parallel ranks, wherever it goes on.
  const auto talked = [&] {
    const StepAccount account = simulate(options, machine, 0, Fold::kNone).value().account;
    const auto data = static_cast<std::size_t>(Method::kData);
    return account.hidden[data] + account.exposed[data];
  };
  const double weights = talked();
  options.layout.gather_fp8 = true;
  EXPECT_LT(talked(), weights);
  const Simulation folded = simulate(options, machine).value();
  const Simulation whole = simulate(options, machine, 0, Fold::kNone).value();
  EXPECT_NEAR(folded.step_seconds, whole.step_seconds, 3e-3 * whole.step_seconds);
}

TEST(Simulate, AWorldThatIsNotSymmetricIsPlayedFiner) {
  // Tensor-parallel pairs on nodes of three: some pairs share a node, others do not.
  const Machine machine = gpus(3);
  StepOptions options = layout_on(machine, 3, 2, 1, 1);
  const Simulation folded = simulate(options, machine).value();
  EXPECT_GT(folded.ranks.size(), 2U);
  expect_same(folded, simulate(options, machine, 0, Fold::kNone).value());
}

TEST(Simulate, SlowerLinksTakeLongerAndShowInTheirLine) {
  Machine machine = gpus(1);
  const StepOptions options = layout_on(machine, 4, 1, 1, 3);
  double before = 0, exposed = 0;
  for (const double rate : {50.0, 0.5, 0.05}) {
    machine.between.gb_per_s = rate;
    const Simulation s = simulate(options, machine).value();
    EXPECT_GT(s.step_seconds, before);
    EXPECT_GT(s.account.exposed[static_cast<std::size_t>(Method::kData)], exposed);
    before = s.step_seconds;
    exposed = s.account.exposed[static_cast<std::size_t>(Method::kData)];
  }
}

TEST(Simulate, StagesThatWaitHaveABubble) {
  const Machine machine = gpus(4);
  StepOptions options = layout_on(machine, 1, 1, 4, 0);
  const double few = simulate(options, machine).value().account.bubble;
  const double step = simulate(options, machine).value().step_seconds;
  EXPECT_GT(few, 0.1 * step);
  options.accumulate = 32;
  const Simulation many = simulate(options, machine).value();
  EXPECT_LT(many.account.bubble / many.step_seconds, few / step);
}

TEST(Simulate, WritesATraceOfAllPlayedRanks) {
  const Machine machine = gpus(4);
  const StepOptions options = layout_on(machine, 2, 1, 2, 1);
  const Simulation s = simulate(options, machine).value();
  const Json trace = parse_json(trace_of(s, *make_backend(options.target)), "trace").value();
  std::map<int, double> last;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    double& end = last[event.at("pid").get<int>()];
    end = std::max(end, event.at("ts").get<double>() + event.at("dur").get<double>());
  }
  EXPECT_EQ(last.size(), 2U);
  for (const auto& [rank, end] : last) EXPECT_LE(end, 1e6 * s.step_seconds + 0.01) << rank;
}

TEST(Simulate, RanksFillTheNodes) {
  EXPECT_EQ(ranks_per_node(gpus(8), 16, 0).value(), 8);
  EXPECT_EQ(ranks_per_node(gpus(8), 4, 0).value(), 4);
  EXPECT_EQ(ranks_per_node(gpus(8), 16, 4).value(), 4);
  EXPECT_EQ(ranks_per_node(cpus(2, 2), 4, 0).value(), 2);
  EXPECT_EQ(ranks_per_node(cpus(2, 2), 8, 0).value(), 4);  // more than cores
}

TEST(Simulate, RefusesMoreRanksThanGpus) {
  const Machine machine = gpus(2);
  const auto failed = simulate(layout_on(machine, 4, 1, 1, 0), machine, 1);
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().message.find("--nodes 2"), std::string::npos) << failed.error().message;
  EXPECT_FALSE(simulate(layout_on(machine, 2, 1, 1, 0), machine, 5).ok());
}

TEST(Simulate, ThreadsMustBeThoseOfTheCalibration) {
  RunConfig config;
  config.train.threads = 4;
  EXPECT_FALSE(adapt_to(cpus(1, 2), config).ok());
  config.train.threads = 0;
  EXPECT_TRUE(adapt_to(cpus(1, 2), config).ok());
  EXPECT_EQ(config.train.threads, 1);
}

// Small enough to simulate every one of its layouts.
StepOptions small_world(const Machine& machine) {
  StepOptions base = layout_on(machine, 4, 1, 1, 0);
  base.model.encoder_layers = base.model.decoder_layers = 2;
  base.batch = {1, 8, 8, false};
  base.accumulate = 1;
  return base;
}

// Those that are named are simulated whole, the others estimated from shorter steps.
TEST(BestLayout, ALayoutInBothListsHasOneTime) {
  const Machine machine = cpus(2, 2);
  StepOptions base = small_world(machine);
  base.accumulate = 16;
  const LayoutSearch search = best_layouts(base, machine, {.keep = 20, .prune = false}).value();
  int both = 0;
  for (const LayoutTime& each : search.front) {
    for (const LayoutTime& named : search.fastest) {
      if (named.name != each.name) continue;
      ++both;
      EXPECT_EQ(each.step_seconds, named.step_seconds) << each.name;
    }
  }
  EXPECT_GT(both, 1);
  for (std::size_t i = 1; i < search.front.size(); ++i) {
    EXPECT_GE(search.front[i].step_seconds, search.front[i - 1].step_seconds);
    EXPECT_LT(search.front[i].device_bytes, search.front[i - 1].device_bytes);
  }
}

TEST(BestLayout, PruningLosesNothing) {
  for (Machine machine : {gpus(2), cpus(2, 2)}) {
    SCOPED_TRACE(machine.device.kind);
    machine.device.fp32_tflop_per_s = 0.001;  // so slow that computation is what counts
    machine.device.memory_gb_per_s = 1;
    const StepOptions base = small_world(machine);
    const LayoutSearch all = best_layouts(base, machine, {.keep = 1 << 20, .prune = false}).value();
    EXPECT_GT(all.layouts, 50);
    EXPECT_EQ(all.simulated, all.layouts);
    EXPECT_EQ(all.fastest.size(), static_cast<std::size_t>(all.layouts - all.too_large));
    // What pruning stands on.
    for (const LayoutTime& each : all.fastest)
      EXPECT_LE(each.bound, each.step_seconds) << each.name;
    const LayoutSearch pruned = best_layouts(base, machine, {.keep = 3}).value();
    EXPECT_GT(pruned.pruned, 0);
    EXPECT_EQ(pruned.layouts, all.layouts);
    EXPECT_EQ(pruned.pruned + pruned.simulated, pruned.layouts);
    ASSERT_EQ(pruned.fastest.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_DOUBLE_EQ(pruned.fastest[i].step_seconds, all.fastest[i].step_seconds) << i;
    // The front of all: slower only for less memory.
    for (std::size_t i = 1; i < all.front.size(); ++i) {
      EXPECT_GE(all.front[i].step_seconds, all.front[i - 1].step_seconds);
      EXPECT_LT(all.front[i].device_bytes, all.front[i - 1].device_bytes);
    }
  }
}

TEST(BestLayout, ManyMicroBatchesFollowFromFew) {
  const Machine machine = gpus(4);
  for (const auto& [dp, tp, pp, zero, interleave] : {std::tuple{4, 1, 1, 2, 1},
                                                     {2, 1, 1, 3, 1},
                                                     {1, 2, 2, 0, 1},
                                                     {1, 1, 4, 0, 1},
                                                     {2, 1, 2, 1, 2}}) {
    SCOPED_TRACE(
        fmt::format("dp {} tp {} pp {} zero {} interleave {}", dp, tp, pp, zero, interleave));
    StepOptions options = layout_on(machine, dp, tp, pp, zero);
    if (interleave > 1) {
      options.layout.schedule = "interleaved";
      options.layout.interleave = interleave;
    }
    options.accumulate = 16;
    const LayoutTime estimated = estimate(options, machine).value();
    const Simulation whole = simulate(options, machine).value();
    EXPECT_TRUE(estimated.estimated);
    EXPECT_NEAR(estimated.step_seconds, whole.step_seconds, 0.02 * whole.step_seconds);
    EXPECT_NEAR(total(estimated.account), estimated.step_seconds, 1e-6 * whole.step_seconds);
  }
}

TEST(BestLayout, WhatDoesNotFitIsDropped) {
  Machine machine = gpus(2);
  machine.device.memory_gib = 0.5;  // less than the runtime itself takes
  StepOptions base = small_world(machine);
  base.grid = Grid(2, 1, 1);
  const LayoutSearch none = best_layouts(base, machine, {.keep = 1}).value();
  EXPECT_TRUE(none.fastest.empty());
  EXPECT_EQ(none.too_large, none.layouts);
}

TEST(BestLayout, EnumeratesEveryAxis) {
  StepOptions base = layout_on(gpus(4), 8, 1, 1, 0);
  base.accumulate = 1;
  std::set<std::string> seen;
  for (const StepOptions& step : all_layouts(base)) {
    EXPECT_TRUE(validate(step).ok());
    EXPECT_EQ(step.global_batch(), base.global_batch());
    EXPECT_EQ(step.grid.size(), 8);
    seen.insert(fmt::format("tp {}", step.grid.tp));
    seen.insert(fmt::format("pp {}", step.grid.pp));
    seen.insert(fmt::format("zero {}", step.layout.zero));
    seen.insert(fmt::format("group {}", step.layout.shard_group));
    seen.insert(step.layout.schedule);
    seen.insert(fmt::format("recompute {}", static_cast<int>(step.recompute)));
    seen.insert(fmt::format("offload {}", step.optimizer.offload));
    seen.insert(fmt::format("micro-batch {}", step.batch.micro_batch));
  }
  for (const char* name : {"tp 1", "tp 2", "pp 1", "pp 4", "zero 0", "zero 3", "group 0", "group 2",
                           "group 4", "1f1b", "interleaved", "recompute 0", "recompute 2",
                           "offload 0.5", "offload 1", "micro-batch 1", "micro-batch 2"})
    EXPECT_TRUE(seen.contains(name)) << name;
}

}  // namespace
}  // namespace quintet
