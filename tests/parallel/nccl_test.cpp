// NCCL as far as one GPU goes: a group of this rank alone. The library is loaded, communicators
// come out of ids sent over the world, and collectives run, on a stream and in a captured graph.
#include <numeric>

#include <gtest/gtest.h>

#include "passes/memory_plan.h"
#include "runtime/backend.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/device_comm.h"
#include "runtime/cuda/nccl_library.h"

namespace quintet::cuda {
namespace {

constexpr std::int64_t kCount = 100003;

// x -> all_reduce -> all_gather -> reduce_scatter: all of them copies in a group of one.
Program collectives() {
  Program program;
  program.place = Place{};
  program.groups.push_back({"alone", {0}, 0});
  const auto tensor = [&](const char* name, Storage storage) {
    return program.add_tensor(Tensor{name, Shape{kCount}, DType::kF32, storage});
  };
  TensorId last = tensor("x", Storage::kIo);
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kReduceScatter}) {
    Op op;
    op.kind = kind;
    op.attrs = CollectiveAttrs{
        .group = 0, .group_size = 1, .reduction = Reduction::kSum, .shape = Shape{kCount}};
    op.stream = Stream::kDataComm;
    op.inputs = {last};
    last = tensor("y", Storage::kIo);
    op.outputs = {last};
    program.ops.push_back(std::move(op));
  }
  plan_memory(program, *make_backend({.device = Device::kCuda}));
  return program;
}

TEST(Nccl, CollectivesOfOneRank) {
  if (nccl_library() == nullptr) GTEST_SKIP() << "no NCCL library here";
  const Program program = collectives();
  std::byte* arena = nullptr;
  cudaStream_t stream = nullptr;
  QT_CUDA(
      cudaMalloc(reinterpret_cast<void**>(&arena), static_cast<std::size_t>(program.arena_bytes)));
  QT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    const auto world = make_single_world();
    std::array<cudaStream_t, kStreamCount> streams{};
    streams[static_cast<std::size_t>(Stream::kDataComm)] = stream;
    const auto comm = make_nccl_comm(
        {program, arena, *world, streams, std::vector<cudaEvent_t>(program.ops.size(), nullptr)});
    ASSERT_TRUE(comm->is_capturable());
    std::vector<float> values(kCount);
    const auto run = [&](float first, bool captured) {
      std::iota(values.begin(), values.end(), first);
      const std::size_t bytes = values.size() * sizeof(float);
      QT_CUDA(cudaMemcpy(arena + program.address_of(program.ops.front().inputs[0]), values.data(),
                         bytes, cudaMemcpyHostToDevice));
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t ready = nullptr;
      if (captured) QT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      for (OpId id = 0; id < static_cast<OpId>(program.ops.size()); ++id) comm->issue(id);
      if (captured) {
        QT_CUDA(cudaStreamEndCapture(stream, &graph));
        QT_CUDA(cudaGraphInstantiate(&ready, graph, 0));
        QT_CUDA(cudaGraphLaunch(ready, stream));
      }
      QT_CUDA(cudaStreamSynchronize(stream));
      std::vector<float> got(values.size());
      QT_CUDA(cudaMemcpy(got.data(), arena + program.address_of(program.ops.back().outputs[0]),
                         bytes, cudaMemcpyDeviceToHost));
      EXPECT_EQ(got, values) << (captured ? "captured" : "eager");
      if (captured) {
        QT_CUDA(cudaGraphExecDestroy(ready));
        QT_CUDA(cudaGraphDestroy(graph));
      }
    };
    run(1, false);
    run(500, true);
  }
  QT_CUDA(cudaStreamDestroy(stream));
  QT_CUDA(cudaFree(arena));
}

}  // namespace
}  // namespace quintet::cuda
