// The proof that the programs of all ranks fit together: that it accepts what we compile, for
// worlds nobody here could start, and finds each kind of mistake.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program/play.h"
#include "tests/support/programs.h"
#include "train/step_program.h"

namespace quintet {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

StepOptions on_grid(std::int32_t dp, std::int32_t tp, std::int32_t pp, std::int64_t zero) {
  StepOptions options = testing::tiny_step();
  options.grid = Grid(dp, tp, pp);
  options.layout.tp = tp;
  options.layout.pp = pp;
  options.layout.zero = zero;
  options.layout.whole_below = 0;
  options.accumulate = 4;
  return options;
}

std::vector<Program> all_ranks(const StepOptions& options) {
  std::vector<Program> programs;
  for (std::int32_t rank = 0; rank < options.grid.size(); ++rank)
    programs.push_back(compile_step(options, rank));
  return programs;
}

std::vector<std::string> findings(const std::vector<Program>& programs) {
  std::vector<RankTrace> traces;
  for (const Program& program : programs) traces.push_back(trace_of(program));
  return play(traces);
}

std::vector<OpId> ops_of(const Program& program, OpKind kind) {
  std::vector<OpId> found;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind == kind) found.push_back(static_cast<OpId>(i));
  }
  return found;
}

Op& op(Program& program, OpId id) {
  return program.ops[static_cast<std::size_t>(id)];
}

TEST(WorldVerifier, AcceptsEveryStageOnEveryGrid) {
  for (const auto& [dp, tp, pp] : {std::tuple{2, 2, 2}, {4, 1, 2}, {1, 2, 4}, {8, 1, 1}}) {
    for (std::int64_t zero = 0; zero <= 3; ++zero) {
      EXPECT_THAT(verify_all_ranks(on_grid(dp, tp, pp, zero)), IsEmpty()) << dp << tp << pp << zero;
    }
  }
}

// Where clipping is off, updates and what they send are in the middle of the backward, and ranks
// have parts of units that are not alike.
TEST(WorldVerifier, AcceptsEarlyUpdates) {
  for (const auto& [dp, tp, pp] :
       {std::tuple{2, 2, 2}, {4, 1, 2}, {1, 2, 4}, {7, 1, 1}, {3, 2, 1}}) {
    for (std::int64_t zero = 0; zero <= 3; ++zero) {
      for (const char* optimizer : {"adamw", "adafactor"}) {
        for (const Device device : {Device::kCpu, Device::kCuda}) {
          StepOptions options = on_grid(dp, tp, pp, zero);
          options.optimizer.clip_norm = 0;
          options.optimizer.name = optimizer;
          options.optimizer.offload = zero == 2 ? 0.5 : 0;
          options.target.device = device;
          options.model.tied_head = zero == 1;
          options.layout.bucket = zero == 3 ? 30000 : 0;
          options.layout.shard_group = dp == 4 && zero > 0 ? 2 : 0;
          options.accumulate = pp > 1 || zero == 2 ? 4 : 1;
          EXPECT_THAT(verify_all_ranks(options), IsEmpty())
              << dp << tp << pp << zero << optimizer << (device == Device::kCpu ? " cpu" : " cuda");
        }
      }
    }
  }
}

// Codes of weights gathered, of which some ranks have nothing but gaps or norms to make.
TEST(WorldVerifier, AcceptsGatheredCodes) {
  for (const auto& [dp, tp, pp] : {std::tuple{2, 2, 2}, {4, 1, 2}, {7, 1, 1}, {37, 1, 1}}) {
    for (const Device device : {Device::kCpu, Device::kCuda}) {
      StepOptions options = on_grid(dp, tp, pp, 3);
      options.model.d_model = 32;
      options.model.num_heads = 2;
      options.model.d_kv = 16;
      options.model.d_ff = 32;
      options.batch = {2, 16, 8, true};
      options.options.dtype = options.options.grad_dtype = DType::kBF16;
      options.options.fp8 = options.layout.gather_fp8 = true;
      options.target.device = device;
      options.layout.bucket = dp == 7 ? 30000 : 0;
      options.layout.shard_group = dp == 4 ? 2 : 0;
      options.optimizer.clip_norm = tp == 1 ? 0 : 1;
      options.accumulate = pp > 1 ? 4 : 1;
      ASSERT_TRUE(validate(options).ok());
      EXPECT_THAT(verify_all_ranks(options), IsEmpty())
          << dp << tp << pp << (device == Device::kCpu ? " cpu" : " cuda");
    }
  }
}

TEST(WorldVerifier, ALargeWorldFoldsToTheSameAnswer) {
  // 32 ranks are more than are proved one by one.
  EXPECT_THAT(verify_all_ranks(on_grid(8, 2, 2, 3)), IsEmpty());
  EXPECT_THAT(findings(all_ranks(on_grid(8, 2, 2, 3))), IsEmpty());
}

TEST(WorldVerifier, FindsAMessageOfAnotherSize) {
  auto programs = all_ranks(on_grid(1, 1, 2, 0));
  const TensorId sent = op(programs[0], ops_of(programs[0], OpKind::kSend).front()).inputs[0];
  programs[0].tensor(sent).shape = {1};
  EXPECT_THAT(findings(programs), Contains(HasSubstr("sizes differ")));
}

TEST(WorldVerifier, FindsAMessageNobodyTakes) {
  auto programs = all_ranks(on_grid(1, 1, 2, 0));
  Op& send = op(programs[0], ops_of(programs[0], OpKind::kSend).front());
  std::get<TransferAttrs>(send.attrs).tag += 1000000;
  const auto found = findings(programs);
  EXPECT_THAT(found, Contains(HasSubstr("deadlock: rank 0")));
  EXPECT_THAT(found, Contains(HasSubstr("deadlock: rank 1")));
}

TEST(WorldVerifier, FindsMessagesThatCrossInOneStream) {
  // Rank 0 sends micro-batch 1 first, rank 1 asks for micro-batch 0 first: neither can go on.
  auto programs = all_ranks(on_grid(1, 1, 2, 0));
  const auto sends = ops_of(programs[0], OpKind::kSend);
  ASSERT_GE(sends.size(), 2U);
  auto& first = std::get<TransferAttrs>(op(programs[0], sends[0]).attrs);
  auto& second = std::get<TransferAttrs>(op(programs[0], sends[1]).attrs);
  std::swap(first.tag, second.tag);
  EXPECT_THAT(findings(programs), Not(IsEmpty()));
}

TEST(WorldVerifier, FindsCollectivesInAnotherOrder) {
  // Rank 1 reduces a later unit's gradient first; as the sizes tell, with another unit's.
  const auto programs = all_ranks(on_grid(2, 1, 1, 2));
  std::vector<RankTrace> traces{trace_of(programs[0]), trace_of(programs[1])};
  std::vector<RankTrace::Item*> reductions;
  for (auto& item : traces[1].items) {
    if (item.kind == OpKind::kReduceScatter) reductions.push_back(&item);
  }
  const auto other = std::find_if(reductions.begin(), reductions.end(), [&](const auto* item) {
    return item->bytes != reductions[0]->bytes;
  });
  ASSERT_NE(other, reductions.end());
  std::swap(reductions[0]->bytes, (*other)->bytes);
  EXPECT_THAT(play(traces), Contains(HasSubstr("not the same collective")));
}

// Swaps the two reductions of equal size that come first, as if a rank reduced another layer first.
void swap_equal_reductions(RankTrace& trace) {
  for (auto& a : trace.items) {
    if (a.kind != OpKind::kReduceScatter) continue;
    for (auto& b : trace.items) {
      if (b.kind != a.kind || b.bytes != a.bytes || b.group != a.group || b.unit == a.unit)
        continue;
      std::swap(a.unit, b.unit);
      return;
    }
  }
  FAIL() << "no two layers of one size";
}

TEST(WorldVerifier, FindsTwoEqualLayersReducedInSwappedOrder) {
  // Sizes, kinds and order of the calls all agree: only what is reduced does not.
  const auto programs = all_ranks(on_grid(2, 1, 1, 2));
  std::vector<RankTrace> traces{trace_of(programs[0]), trace_of(programs[1])};
  ASSERT_THAT(play(traces), IsEmpty());
  swap_equal_reductions(traces[1]);
  EXPECT_THAT(play(traces), Contains(HasSubstr("not the same collective")));
}

TEST(WorldVerifier, FindsAnotherMicroBatchPrecisionOrReduction) {
  const auto programs = all_ranks(on_grid(2, 1, 1, 2));
  const std::vector<RankTrace> good{trace_of(programs[0]), trace_of(programs[1])};
  const auto is_reduction = [](const auto& item) { return item.kind == OpKind::kReduceScatter; };
  const auto finds = [&](const auto& change) {
    std::vector<RankTrace> traces = good;
    change(*std::find_if(traces[1].items.begin(), traces[1].items.end(), is_reduction));
    EXPECT_THAT(play(traces), Contains(HasSubstr("not the same collective")));
  };
  finds([](auto& item) { ++item.micro_batch; });
  finds([](auto& item) { item.dtype = DType::kBF16; });
  finds([](auto& item) { item.reduction = Reduction::kMax; });
}

TEST(WorldVerifier, AFoldedWorldWithOneWrongRankFails) {
  // 32 ranks: data-parallel ranks are folded, but for the one whose program is another.
  const StepOptions options = on_grid(8, 2, 2, 2);
  for (const std::int32_t wrong : {options.grid.rank_of(5, 0, 0), options.grid.rank_of(3, 1, 1)}) {
    const auto trace = [&](std::int32_t rank) {
      RankTrace made = trace_of(compile_step(options, rank));
      if (rank == wrong) swap_equal_reductions(made);
      return made;
    };
    EXPECT_THAT(verify_grid(options.grid, trace), Contains(HasSubstr("not the same collective")))
        << wrong;
  }
}

TEST(WorldVerifier, AFoldedWorldThatDeadlocksFails) {
  // Every copy of the model makes the same mistake, so all of them are folded into one.
  const StepOptions options = on_grid(16, 1, 2, 1);
  const auto trace = [&](std::int32_t rank) {
    RankTrace made = trace_of(compile_step(options, rank));
    if (options.grid.place_of(rank).pp == 1) {
      for (auto& item : made.items) {
        if (item.what == RankTrace::Item::What::kRecv) item.tag += 1000000;
      }
    }
    return made;
  };
  EXPECT_THAT(verify_grid(options.grid, trace), Contains(HasSubstr("deadlock")));
}

TEST(WorldVerifier, ALoopThatIssuesInOrderIsStricter) {
  // Rank 0 computes with what rank 1 sends, and only then issues the message rank 1 waits for,
  // though that message needs none of it: streams would go on, one loop waits for ever.
  const auto message = [](OpKind kind, std::int32_t peer, std::int32_t tag, Stream stream) {
    Op op;
    op.kind = kind;
    op.attrs = TransferAttrs{.peer = peer, .tag = tag, .shape = {1}, .dtype = DType::kF32};
    (kind == OpKind::kSend ? op.inputs : op.outputs) = {0};
    op.stream = stream;
    return op;
  };
  Op compute;
  compute.kind = OpKind::kAdd;
  compute.waits = {0};
  std::vector<Program> programs(2);
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    programs[static_cast<std::size_t>(rank)].place.rank = rank;
    programs[static_cast<std::size_t>(rank)].add_tensor({"x", Shape{1}});
  }
  programs[0].ops = {message(OpKind::kRecv, 1, 0, Stream::kRecvForward), compute,
                     message(OpKind::kSend, 1, 1, Stream::kSendForward)};
  programs[1].ops = {message(OpKind::kRecv, 0, 1, Stream::kRecvForward), compute,
                     message(OpKind::kSend, 0, 0, Stream::kSendForward)};
  const auto found = [&](TraceScope scope) {
    return play({trace_of(programs[0], scope), trace_of(programs[1], scope)});
  };
  EXPECT_THAT(found({}), IsEmpty());
  EXPECT_THAT(found({.issued_in_order = true}), Contains(HasSubstr("deadlock")));
}

TEST(WorldVerifier, FindsACollectiveThatAMemberLeavesOut) {
  auto programs = all_ranks(on_grid(1, 2, 1, 0));
  auto trace = trace_of(programs[1]);
  std::vector<RankTrace> traces{trace_of(programs[0]), trace};
  ASSERT_THAT(play(traces), IsEmpty());
  for (std::size_t i = traces[1].items.size(); i-- > 0;) {
    if (traces[1].items[i].what != RankTrace::Item::What::kCollective) continue;
    traces[1].items[i].what = RankTrace::Item::What::kCompute;
    break;
  }
  EXPECT_THAT(play(traces), Contains(HasSubstr("waits for all of ranks 0, 1")));
}

TEST(WorldVerifier, FindsACycle) {
  // Both ranks wait for the other's message before they send their own.
  const auto rank = [](std::int32_t me) {
    RankTrace trace;
    trace.rank = me;
    RankTrace::Item recv, send;
    recv.what = RankTrace::Item::What::kRecv;
    recv.stream = Stream::kRecvForward;
    recv.kind = OpKind::kRecv;
    send.what = RankTrace::Item::What::kSend;
    send.stream = Stream::kSendForward;
    send.kind = OpKind::kSend;
    recv.peer = send.peer = 1 - me;
    recv.tag = send.tag = 0;
    send.waits = {0};
    trace.items = {recv, send};
    return trace;
  };
  std::vector<RankTrace> traces{rank(0), rank(1)};
  EXPECT_THAT(play(traces), Contains(HasSubstr("deadlock")));
  traces[1].items[1].waits.clear();  // one of them sends first: no cycle
  EXPECT_THAT(play(traces), IsEmpty());
}

TEST(WorldVerifier, TwoThousandRanksOfTheLargestModel) {
  StepOptions options;
  options.model = preset("mt5-xxl").value();
  options.batch = {1, 1024, 256, false};
  options.accumulate = 8;
  options.options.dtype = options.options.grad_dtype = DType::kBF16;
  options.grid = Grid(64, 8, 4);
  options.layout.tp = 8;
  options.layout.pp = 4;
  options.layout.zero = 3;
  ASSERT_TRUE(validate(options).ok());
  EXPECT_THAT(verify_all_ranks(options), IsEmpty());
}

}  // namespace
}  // namespace quintet
