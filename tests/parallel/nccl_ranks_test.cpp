// Communication between GPUs with several ranks, on one GPU by the stand-in (nccl_stand_in.cu): its
// results against sums on the host, eagerly and captured, and that it finds what it is there to
// find. The layouts themselves run over it in layout_test.cpp.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "base/bf16.h"
#include "base/philox.h"
#include "passes/memory_plan.h"
#include "runtime/backend.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/nccl_library.h"
#include "runtime/executor.h"
#include "tests/parallel/world.h"

namespace quintet::cuda {
namespace {

using testing::test_world;

// A communicator of all ranks of a world.
ncclComm_t join(World& world) {
  ncclUniqueId id{};
  if (world.rank() == 0) QT_NCCL(nccl_library()->get_unique_id(&id));
  std::string text(reinterpret_cast<const char*>(&id), sizeof id);
  text = world.broadcast(text);
  std::memcpy(&id, text.data(), sizeof id);
  ncclComm_t comm = nullptr;
  QT_NCCL(nccl_library()->init_rank(&comm, world.size(), id, world.rank()));
  return comm;
}

class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t size) : size_(size) {
    QT_CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), size));
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes() { cudaFree(data_); }
  std::byte* get() const { return data_; }
  void write(const void* from, std::size_t bytes) const {
    ASSERT_LE(bytes, size_);
    QT_CUDA(cudaMemcpy(data_, from, bytes, cudaMemcpyHostToDevice));
  }
  void read(void* to, std::size_t bytes) const {
    ASSERT_LE(bytes, size_);
    QT_CUDA(cudaMemcpy(to, data_, bytes, cudaMemcpyDeviceToHost));
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_;
};

class NcclRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (nccl_library() == nullptr || !nccl_library()->shares_devices)
      GTEST_SKIP() << "QUINTET_NCCL does not name the stand-in";
    QT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    QT_CUDA(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking));
  }
  void TearDown() override {
    if (stream_ == nullptr) return;
    cudaStreamDestroy(stream_);
    cudaStreamDestroy(other_);
    test_world().barrier();
  }

  // Runs `issue` on the stream: launched, or captured and replayed as often as asked.
  void run(bool captured, int times, const std::function<void()>& issue) const {
    if (!captured) {
      for (int i = 0; i < times; ++i) issue();
    } else {
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t ready = nullptr;
      QT_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
      issue();
      QT_CUDA(cudaStreamEndCapture(stream_, &graph));
      QT_CUDA(cudaGraphInstantiate(&ready, graph, 0));
      for (int i = 0; i < times; ++i) QT_CUDA(cudaGraphLaunch(ready, stream_));
      QT_CUDA(cudaStreamSynchronize(stream_));
      QT_CUDA(cudaGraphExecDestroy(ready));
      QT_CUDA(cudaGraphDestroy(graph));
    }
    QT_CUDA(cudaStreamSynchronize(stream_));
  }

  // What the stand-in says about a communicator that must fail, on every rank.
  std::string failure_of(ncclComm_t comm) const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess && std::chrono::steady_clock::now() < until) {
      QT_NCCL(nccl_library()->async_error(comm, &state));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const std::string said = state == ncclSuccess ? "" : nccl_library()->last_error(comm);
    QT_NCCL(nccl_library()->abort(comm));
    QT_CUDA(cudaDeviceSynchronize());
    return said;
  }

  cudaStream_t stream_ = nullptr, other_ = nullptr;
};

// Rank `rank`'s values; every rank can tell everybody's.
std::vector<float> values_of(std::int32_t rank, std::size_t count) {
  PhiloxSequence random(7, static_cast<std::uint64_t>(rank));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.below(2001)) / 1000.0F - 1.0F;
  return values;
}
std::vector<bf16> in_bf16(const std::vector<float>& values) {
  std::vector<bf16> rounded;
  for (const float value : values) rounded.emplace_back(value);
  return rounded;
}

TEST_F(NcclRanks, CollectivesAreThoseOfTheHost) {
  for (const std::int32_t size : {2, 4}) {
    const auto world = make_subworld(test_world(), size);
    if (world == nullptr) continue;
    ncclComm_t comm = join(*world);
    const NcclLibrary& nccl = *nccl_library();
    const auto n = static_cast<std::size_t>(size), me = static_cast<std::size_t>(world->rank());
    // Few, an odd number, and more than the boards hold at once.
    for (const std::size_t count : {std::size_t{3}, std::size_t{1003}, std::size_t{5000001}}) {
      const DeviceBytes in(n * count * 4), out(n * count * 4);
      std::vector<std::vector<float>> all;
      for (std::int32_t r = 0; r < size; ++r) all.push_back(values_of(r, n * count));
      std::vector<float> got(n * count);
      std::vector<bf16> halves(n * count);
      for (const bool captured : {false, true}) {
        SCOPED_TRACE(fmt::format("{} ranks, {} values, {}", size, count,
                                 captured ? "captured" : "launched"));
        in.write(all[me].data(), n * count * 4);
        run(captured, 2, [&] {
          QT_NCCL(nccl.all_reduce(in.get(), out.get(), count, ncclFloat32, ncclSum, comm, stream_));
        });
        out.read(got.data(), count * 4);
        double worst = 0;
        for (std::size_t i = 0; i < count; ++i) {
          double want = 0;
          for (const auto& values : all) want += static_cast<double>(values[i]);
          worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want));
        }
        EXPECT_LE(worst, 1e-6) << "sum";

        run(captured, 1, [&] {
          QT_NCCL(nccl.all_reduce(in.get(), in.get(), count, ncclFloat32, ncclMax, comm, stream_));
        });
        in.read(got.data(), count * 4);
        for (std::size_t i = 0; i < count; ++i) {
          float want = -2;
          for (const auto& values : all) want = std::max(want, values[i]);
          ASSERT_EQ(got[i], want) << "maximum in place, " << i;
        }

        in.write(all[me].data(), n * count * 4);
        run(captured, 2, [&] {
          QT_NCCL(
              nccl.reduce_scatter(in.get(), out.get(), count, ncclFloat32, ncclSum, comm, stream_));
        });
        out.read(got.data(), count * 4);
        worst = 0;
        for (std::size_t i = 0; i < count; ++i) {
          double want = 0;
          for (const auto& values : all) want += static_cast<double>(values[me * count + i]);
          worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want));
        }
        EXPECT_LE(worst, 1e-6) << "reduce_scatter";

        // Rounded at every hop: up to 4 in size, 2^-8 of half a step each.
        const auto mine = in_bf16(all[me]);
        in.write(mine.data(), mine.size() * 2);
        run(captured, 2, [&] {
          QT_NCCL(
              nccl.all_reduce(in.get(), out.get(), count, ncclBfloat16, ncclSum, comm, stream_));
        });
        out.read(halves.data(), count * 2);
        worst = 0;
        for (std::size_t i = 0; i < count; ++i) {
          double want = 0;
          for (const auto& values : all)
            want += static_cast<double>(static_cast<float>(bf16(values[i])));
          worst =
              std::max(worst, std::abs(static_cast<double>(static_cast<float>(halves[i])) - want));
        }
        EXPECT_LE(worst, static_cast<double>(n - 1) * static_cast<double>(n) / 512) << "bf16";
        EXPECT_GT(worst, count > 1000 ? 1e-4 : -1.0) << "bf16 that does not round";

        // In place, and one byte beside every boundary.
        const std::size_t bytes = count;
        std::vector<unsigned char> whole(n * bytes);
        std::memset(whole.data() + me * bytes, static_cast<int>(me + 1), bytes);
        out.write(whole.data(), n * bytes);
        run(captured, 2, [&] {
          QT_NCCL(
              nccl.all_gather(out.get() + me * bytes, out.get(), bytes, ncclInt8, comm, stream_));
        });
        out.read(whole.data(), n * bytes);
        for (std::size_t i = 0; i < n * bytes; ++i)
          ASSERT_EQ(whole[i], i / bytes + 1) << "all_gather";

        // Round the ranks, one after the other.
        in.write(all[me].data(), count * 4);
        run(captured, 1, [&] {
          for (std::size_t from = 0; from < n; ++from) {
            const std::size_t to = (from + 1) % n;
            if (me == from)
              QT_NCCL(
                  nccl.send(in.get(), count * 4, ncclInt8, static_cast<int>(to), comm, stream_));
            if (me == to)
              QT_NCCL(
                  nccl.recv(out.get(), count * 4, ncclInt8, static_cast<int>(from), comm, stream_));
          }
        });
        out.read(got.data(), count * 4);
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_EQ(got[i], all[(me + n - 1) % n][i]) << "message";
      }
    }
    ncclResult_t state = ncclSuccess;
    QT_NCCL(nccl.async_error(comm, &state));
    EXPECT_EQ(state, ncclSuccess) << nccl.last_error(comm);
    QT_NCCL(nccl.destroy(comm));
  }
}

TEST_F(NcclRanks, FindsCallsThatDiffer) {
  const auto world = make_subworld(test_world(), 2);
  if (world == nullptr) return;
  const NcclLibrary& nccl = *nccl_library();
  const DeviceBytes a(4096), b(4096);
  const bool first = world->rank() == 0;
  const auto check = [&](const char* what, const std::function<void(ncclComm_t)>& issue,
                         const char* said) {
    ncclComm_t comm = join(*world);
    issue(comm);
    EXPECT_NE(failure_of(comm).find(said), std::string::npos) << what;
    world->barrier();
  };
  check(
      "sizes",
      [&](ncclComm_t comm) {
        QT_NCCL(nccl.all_reduce(a.get(), b.get(), first ? 100 : 101, ncclFloat32, ncclSum, comm,
                                stream_));
      },
      "all_reduce of 100");
  check(
      "types",
      [&](ncclComm_t comm) {
        QT_NCCL(nccl.all_reduce(a.get(), b.get(), 100, first ? ncclFloat32 : ncclBfloat16, ncclSum,
                                comm, stream_));
      },
      "all_reduce of 100");
  check(
      "reductions",
      [&](ncclComm_t comm) {
        QT_NCCL(nccl.all_reduce(a.get(), b.get(), 100, ncclFloat32, first ? ncclSum : ncclMax, comm,
                                stream_));
      },
      "all_reduce of 100");
  // Two that differ in their order; of equal size, where NCCL would exchange the wrong ones.
  check(
      "order",
      [&](ncclComm_t comm) {
        for (const bool reduce : {first, !first}) {
          if (reduce)
            QT_NCCL(nccl.all_reduce(a.get(), b.get(), 100, ncclFloat32, ncclSum, comm, stream_));
          else
            QT_NCCL(
                nccl.reduce_scatter(a.get(), b.get(), 100, ncclFloat32, ncclSum, comm, stream_));
        }
      },
      "reduce_scatter of 100");
  check(
      "two senders",
      [&](ncclComm_t comm) {
        QT_NCCL(nccl.send(a.get(), 100, ncclInt8, first ? 1 : 0, comm, stream_));
      },
      "send of 100");
}

TEST_F(NcclRanks, FindsARankThatDoesNotCome) {
  const auto world = make_subworld(test_world(), 2);
  if (world == nullptr) return;
  const DeviceBytes a(4096);
  ::setenv("QUINTET_STAND_IN_PATIENCE", "1", 1);
  ncclComm_t comm = join(*world);
  ::unsetenv("QUINTET_STAND_IN_PATIENCE");
  if (world->rank() == 0) {
    QT_NCCL(nccl_library()->all_reduce(a.get(), a.get(), 100, ncclFloat32, ncclSum, comm, stream_));
    EXPECT_NE(failure_of(comm).find("member 1 did not come to all_reduce"), std::string::npos);
  }
  world->barrier();
}

TEST_F(NcclRanks, FindsABufferThatIsWrittenInFlight) {
  const auto world = make_subworld(test_world(), 2);
  if (world == nullptr) return;
  const DeviceBytes in(4096), out(4096);
  QT_CUDA(cudaMemset(in.get(), 0, 4096));
  for (const bool input : {true, false}) {
    ncclComm_t comm = join(*world);
    if (world->rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    QT_NCCL(
        nccl_library()->all_reduce(in.get(), out.get(), 100, ncclFloat32, ncclSum, comm, stream_));
    if (world->rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      // The output is written by the call itself later on: what is seen is who reads it too early.
      float early = 0;
      if (!input) {
        QT_CUDA(cudaMemcpyAsync(&early, out.get(), 4, cudaMemcpyDeviceToHost, other_));
        QT_CUDA(cudaStreamSynchronize(other_));
        EXPECT_TRUE(std::isnan(early));
      } else {
        QT_CUDA(cudaMemsetAsync(in.get() + 200, 1, 1, other_));
        QT_CUDA(cudaStreamSynchronize(other_));
      }
    }
    if (input && world->rank() == 0) {
      EXPECT_NE(failure_of(comm).find("its input was written meanwhile"), std::string::npos);
    } else if (!input) {
      QT_CUDA(cudaStreamSynchronize(stream_));
      QT_NCCL(nccl_library()->destroy(comm));
    } else {
      QT_CUDA(cudaStreamSynchronize(stream_));
    }
    world->barrier();
  }
}

TEST_F(NcclRanks, FindsTwoCallsAtOnce) {
  const auto world = make_subworld(test_world(), 2);
  if (world == nullptr) return;
  const DeviceBytes a(4096), b(4096);
  ncclComm_t comm = join(*world);
  if (world->rank() == 0) {
    for (const auto& [data, stream] : {std::pair{a.get(), stream_}, std::pair{b.get(), other_}})
      QT_NCCL(nccl_library()->all_reduce(data, data, 100, ncclFloat32, ncclSum, comm, stream));
    EXPECT_NE(failure_of(comm).find("while another call is under way"), std::string::npos);
  }
  world->barrier();
}

// x -> all_reduce among all ranks.
Program reduction(World& world) {
  Program program;
  program.target.device = Device::kCuda;
  program.place.rank = world.rank();
  std::vector<std::int32_t> ranks;
  for (std::int32_t r = 0; r < world.size(); ++r) ranks.push_back(r);
  program.groups.push_back({"all", ranks, world.rank()});
  Op op;
  op.kind = OpKind::kAllReduce;
  op.attrs = CollectiveAttrs{
      .group = 0, .group_size = world.size(), .reduction = Reduction::kSum, .shape = Shape{1000}};
  op.stream = Stream::kDataComm;
  op.inputs = {program.add_tensor(Tensor{"x", Shape{1000}, DType::kF32, Storage::kIo})};
  op.outputs = {program.add_tensor(Tensor{"y", Shape{1000}, DType::kF32, Storage::kIo})};
  program.ops.push_back(std::move(op));
  plan_memory(program, *make_backend(program.target));
  return program;
}

// The host waits for its device, its device for a rank that has gone: the step fails, in words.
TEST_F(NcclRanks, AStepWithoutItsPeerFailsInsteadOfHanging) {
  const auto world = make_subworld(test_world(), 2);
  if (world == nullptr) return;
  const Program program = reduction(*world);
  ::setenv("QUINTET_STAND_IN_PATIENCE", "1", 1);
  auto executor = make_cuda_executor(program, *world);
  ::unsetenv("QUINTET_STAND_IN_PATIENCE");
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  for (int step = 0; step < 3; ++step) {  // launched, captured, replayed
    ASSERT_TRUE(executor.value()->run().ok());
    const Status done = executor.value()->wait();
    ASSERT_TRUE(done.ok()) << done.error().message;
  }
  if (world->rank() == 0) {
    ASSERT_TRUE(executor.value()->run().ok());
    const Status done = executor.value()->wait();
    ASSERT_FALSE(done.ok());
    EXPECT_NE(done.error().message.find("remote error"), std::string::npos) << done.error().message;
    EXPECT_NE(done.error().message.find("did not come"), std::string::npos) << done.error().message;
  }
  world->barrier();
}

}  // namespace
}  // namespace quintet::cuda
