// What the GPU can do at best, for benchmarks to compare with.
#include <algorithm>

#include "program/ops/matmul.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/scratch.h"
#include "runtime/executor.h"

namespace quintet {
namespace {

class CudaMeter final : public DeviceMeter {
 public:
  CudaMeter() : gemm_("meter", "") { QT_CUDA(cudaStreamCreate(&stream_)); }
  ~CudaMeter() override {
    cudaStreamDestroy(stream_);
    cudaFree(memory_);
  }

  double product_seconds(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k,
                         DType dtype) override {
    const auto bytes = [&](std::int64_t elements) {
      return aligned(elements * size_of(dtype), 256);
    };
    const std::int64_t b = bytes(m * k), c = b + bytes(n * k), workspace = c + bytes(m * n);
    reserve(workspace + matmul::kDeviceWorkspace);
    return gemm_.time({ta, tb, m, n, k, dtype, dtype, ta ? m : k, tb ? k : n, n},
                      {memory_, memory_ + b, nullptr, memory_ + c, 1, memory_ + workspace},
                      stream_);
  }

  double copy_bytes_per_second() override {
    const std::int64_t size = std::int64_t{2} << 30;
    reserve(2 * size);
    cudaEvent_t begin = nullptr, end = nullptr;
    QT_CUDA(cudaEventCreate(&begin));
    QT_CUDA(cudaEventCreate(&end));
    float best = 1e30f;
    for (int i = 0; i < 5; ++i) {
      QT_CUDA(cudaEventRecord(begin, stream_));
      QT_CUDA(cudaMemcpyAsync(memory_ + size, memory_, static_cast<std::size_t>(size),
                              cudaMemcpyDeviceToDevice, stream_));
      QT_CUDA(cudaEventRecord(end, stream_));
      QT_CUDA(cudaEventSynchronize(end));
      float milliseconds = 0;
      QT_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
      best = std::min(best, milliseconds);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return 2 * static_cast<double>(size) / (static_cast<double>(best) * 1e-3);
  }

 private:
  void reserve(std::int64_t bytes) {
    if (bytes <= size_) return;
    QT_CUDA(cudaFree(memory_));
    memory_ = nullptr;
    QT_CUDA(cudaMalloc(reinterpret_cast<void**>(&memory_), static_cast<std::size_t>(bytes)));
    size_ = bytes;
  }

  cuda::Gemm gemm_;
  cudaStream_t stream_ = nullptr;
  std::byte* memory_ = nullptr;
  std::int64_t size_ = 0;
};

}  // namespace

Result<std::unique_ptr<DeviceMeter>> make_cuda_meter() {
  QT_TRY(cuda_available());
  return std::unique_ptr<DeviceMeter>(std::make_unique<CudaMeter>());
}

}  // namespace quintet
