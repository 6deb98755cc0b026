// The proof that the programs of all ranks fit together: that it accepts what we compile, for
// worlds nobody here could start, and finds each kind of mistake.
#include "program/world_verifier.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  return verify_world(traces);
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
  EXPECT_THAT(verify_world(traces), Contains(HasSubstr("not the same collective")));
}

TEST(WorldVerifier, FindsACollectiveThatAMemberLeavesOut) {
  auto programs = all_ranks(on_grid(1, 2, 1, 0));
  auto trace = trace_of(programs[1]);
  std::vector<RankTrace> traces{trace_of(programs[0]), trace};
  ASSERT_THAT(verify_world(traces), IsEmpty());
  for (std::size_t i = traces[1].items.size(); i-- > 0;) {
    if (traces[1].items[i].what != RankTrace::Item::What::kCollective) continue;
    traces[1].items[i].what = RankTrace::Item::What::kCompute;
    break;
  }
  EXPECT_THAT(verify_world(traces), Contains(HasSubstr("waits for all of ranks 0, 1")));
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
  EXPECT_THAT(verify_world(traces), Contains(HasSubstr("deadlock")));
  traces[1].items[1].waits.clear();  // one of them sends first: no cycle
  EXPECT_THAT(verify_world(traces), IsEmpty());
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
