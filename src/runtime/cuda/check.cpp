#include "runtime/cuda/check.h"

#include <fmt/format.h>

#include "runtime/cuda/cublas_library.h"

namespace quintet::cuda {

void cuda_failed(const char* file, int line, const char* call, cudaError_t error) {
  throw DeviceError(fmt::format("{}:{}: {}: {} ({})", file, line, call, cudaGetErrorName(error),
                                cudaGetErrorString(error)));
}

void cublas_failed(const char* file, int line, const char* call, cublasStatus_t status) {
  throw DeviceError(
      fmt::format("{}:{}: {}: {}", file, line, call, cublas_library().status_name(status)));
}

}  // namespace quintet::cuda
