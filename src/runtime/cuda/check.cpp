#include "runtime/cuda/check.h"

#include <fmt/format.h>

namespace quintet::cuda {

void cuda_failed(const char* file, int line, const char* call, cudaError_t error) {
  throw DeviceError(fmt::format("{}:{}: {}: {} ({})", file, line, call, cudaGetErrorName(error),
                                cudaGetErrorString(error)));
}

void cublas_failed(const char* file, int line, const char* call, cublasStatus_t status) {
  throw DeviceError(fmt::format("{}:{}: {}: {}", file, line, call, cublasLtGetStatusName(status)));
}

}  // namespace quintet::cuda
