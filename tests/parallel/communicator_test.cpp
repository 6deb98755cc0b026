// Every operation of the communicator, on every size of group the world has, for sizes below and
// above the one-round limit, and for parts that do not come out even.
#include "parallel/communicator.h"

#include <numeric>

#include <gtest/gtest.h>

#include "base/bf16.h"
#include "base/index.h"
#include "parallel/peer_times.h"
#include "tests/parallel/world.h"

namespace quintet {
namespace {

using testing::test_world;

void finish(Transfer& transfer) {
  transfer.start();
  while (!transfer.test()) {
  }
}

// Numbers that sum exactly, different on every rank.
float value(std::int64_t rank, std::int64_t i) {
  return static_cast<float>((rank + 1) * 3 + i % 17);
}

class Communicators : public ::testing::TestWithParam<std::int32_t> {
 protected:
  void SetUp() override {
    if (test_world().size() < GetParam()) GTEST_SKIP() << "needs " << GetParam() << " ranks";
    world_ = make_subworld(test_world(), GetParam());
    if (world_ == nullptr) return;  // this rank has no part in it
    std::vector<std::int32_t> all(index(world_->size()));
    std::iota(all.begin(), all.end(), 0);
    group_ = world_->group(all, 0);
  }
  std::unique_ptr<World> world_;
  std::unique_ptr<Communicator> group_;
};

TEST_P(Communicators, AllReduce) {
  if (world_ == nullptr) return;
  const std::int64_t n = group_->size();
  for (const std::int64_t count : {1, 7, 1024, 1025, 5003}) {
    std::vector<float> in(index(count)), out(index(count), -1), most(index(count), -1),
        scratch(index((count + n) * n));
    for (std::int64_t i = 0; i < count; ++i) in[index(i)] = value(group_->rank(), i);
    const auto sum = group_->all_reduce(in.data(), out.data(), count, DType::kF32, Reduction::kSum,
                                        scratch.data());
    finish(*sum);
    finish(*sum);  // can be started again
    finish(*group_->all_reduce(in.data(), most.data(), count, DType::kF32, Reduction::kMax,
                               scratch.data()));
    for (std::int64_t i = 0; i < count; ++i) {
      float expected = 0;
      for (std::int64_t r = 0; r < n; ++r) expected += value(r, i);
      ASSERT_EQ(out[index(i)], expected) << count << " at " << i;
      ASSERT_EQ(most[index(i)], value(n - 1, i)) << count << " at " << i;
    }
  }
}

TEST_P(Communicators, AllReduceOfBf16RoundsOnce) {
  if (world_ == nullptr) return;
  const std::int64_t n = group_->size();
  // 256 + 1 + 1 ...: summed in bf16, each 1 would be lost.
  std::vector<bf16> in(4000, bf16(group_->rank() == 0 ? 256.0f : 1.0f)), out(4000);
  std::vector<std::byte> scratch(index((4000 + n) * n * 4));
  finish(*group_->all_reduce(in.data(), out.data(), 4000, DType::kBF16, Reduction::kSum,
                             scratch.data()));
  EXPECT_EQ(static_cast<float>(out[3999]),
            static_cast<float>(bf16(256.0f + static_cast<float>(n - 1))));
}

TEST_P(Communicators, GatherAndReduceScatter) {
  if (world_ == nullptr) return;
  const std::int64_t n = group_->size();
  for (const std::int64_t part : {1, 5, 1333}) {
    std::vector<float> mine(index(part)), whole(index(part * n), -1), back(index(part), -1),
        scratch(index(part * n * n));
    for (std::int64_t i = 0; i < part; ++i) mine[index(i)] = value(group_->rank(), i);
    finish(*group_->all_gather(mine.data(), whole.data(), part * 4));
    for (std::int64_t i = 0; i < part * n; ++i)
      ASSERT_EQ(whole[index(i)], value(i / part, i % part));
    // In place: the part is already where it belongs.
    std::vector<float> in_place(index(part * n), -1);
    std::copy(mine.begin(), mine.end(), in_place.begin() + group_->rank() * part);
    finish(*group_->all_gather(in_place.data() + group_->rank() * part, in_place.data(), part * 4));
    EXPECT_EQ(in_place, whole);
    finish(*group_->reduce_scatter(whole.data(), back.data(), part, DType::kF32, scratch.data()));
    for (std::int64_t i = 0; i < part; ++i)
      ASSERT_EQ(back[index(i)], static_cast<float>(n) * value(group_->rank(), i));
  }
}

TEST_P(Communicators, BroadcastAndMessages) {
  if (world_ == nullptr) return;
  const std::int32_t n = group_->size(), me = group_->rank();
  for (std::int32_t root = 0; root < n; ++root) {
    std::vector<float> data(3000, static_cast<float>(me));
    finish(*group_->broadcast(data.data(), 12000, root));
    EXPECT_EQ(data[2999], static_cast<float>(root));
  }
  if (n == 1) return;
  // Around the ring, two messages on the way at once, told apart by their tags.
  std::vector<float> out(9000, static_cast<float>(me)), in(9000, -1), in2(9000, -1);
  const std::int32_t next = (me + 1) % n, last = (me + n - 1) % n;
  const auto second = group_->recv(in2.data(), 36000, last, 2);
  const auto first = group_->recv(in.data(), 36000, last, 1);
  second->start();
  first->start();
  const auto send1 = group_->send(out.data(), 36000, next, 1);
  std::vector<float> out2(9000, static_cast<float>(me) + 100);
  const auto send2 = group_->send(out2.data(), 36000, next, 2);
  send1->start();
  send2->start();
  bool done = false;
  while (!done) done = first->test() & second->test() & send1->test() & send2->test();
  EXPECT_EQ(in[8999], static_cast<float>(last));
  EXPECT_EQ(in2[8999], static_cast<float>(last) + 100);
  EXPECT_EQ(send1->bytes_sent, 36000);
  EXPECT_EQ(first->bytes_sent, 0);
}

TEST_P(Communicators, TransfersOfDifferentGroupsDoNotDisturbEachOther) {
  if (world_ == nullptr || group_->size() < 4) return;
  // Even and odd ranks, and everybody, started in another order on every rank.
  const std::int32_t me = group_->rank();
  std::vector<std::int32_t> mine;
  for (std::int32_t r = me % 2; r < group_->size(); r += 2) mine.push_back(r);
  const auto half = world_->group(mine, 1);
  std::vector<float> a(2000, 1), b(2000, 1), scratch_a(20000), scratch_b(20000);
  const auto all =
      group_->all_reduce(a.data(), a.data(), 2000, DType::kF32, Reduction::kSum, scratch_a.data());
  const auto some =
      half->all_reduce(b.data(), b.data(), 2000, DType::kF32, Reduction::kSum, scratch_b.data());
  (me % 2 == 0 ? all : some)->start();
  (me % 2 == 0 ? some : all)->start();
  bool done = false;
  while (!done) done = all->test() & some->test();
  EXPECT_EQ(a[1999], static_cast<float>(group_->size()));
  EXPECT_EQ(b[1999], static_cast<float>(mine.size()));
}

TEST_P(Communicators, WorldsTalkInTexts) {
  if (world_ == nullptr) return;
  EXPECT_EQ(world_->minimum(10 - world_->rank()), 11 - world_->size());
  EXPECT_EQ(world_->broadcast(world_->rank() == 0 ? "zero" : "else"), "zero");
  const auto texts = world_->gather(std::string(index(world_->rank() + 1), 'x'));
  ASSERT_EQ(texts.size(), world_->rank() == 0 ? index(world_->size()) : 0U);
  for (std::size_t r = 0; r < texts.size(); ++r) EXPECT_EQ(texts[r].size(), r + 1);
  for (const double offset : clock_offsets(*world_)) EXPECT_LT(std::abs(offset), 0.5);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Communicators, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace quintet
