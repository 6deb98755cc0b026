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
    const bool fp8 = is_fp8(dtype);
    const DType out = fp8 ? DType::kBF16 : dtype;
    const auto bytes = [](std::int64_t elements, DType type) {
      return aligned(elements * size_of(type), 256);
    };
    const std::int64_t b = bytes(m * k, dtype), c = b + bytes(n * k, dtype),
                       unit = c + bytes(m * n, out), workspace = unit + 256;
    reserve(workspace + matmul::kDeviceWorkspace);
    const auto* one = fp8 ? reinterpret_cast<const float*>(memory_ + unit) : nullptr;
    if (fp8) cuda::fill_random(memory_ + unit, 1, DType::kF32, 3, stream_);
    return gemm_.time(
        {ta, tb, m, n, k, dtype, dtype, out, ta ? m : k, tb ? k : n, n},
        {memory_, memory_ + b, nullptr, memory_ + c, 1, memory_ + workspace, one, one}, stream_);
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
