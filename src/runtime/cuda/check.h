// Every call of a CUDA library goes through one of these macros. A failure throws DeviceError,
// which the executor turns into an Error at its edge: what failed, where, and what the library
// says.
#pragma once

#include <stdexcept>
#include <string>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

namespace quintet::cuda {

class DeviceError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void cuda_failed(const char* file, int line, const char* call, cudaError_t error);
[[noreturn]] void cublas_failed(const char* file, int line, const char* call,
                                cublasStatus_t status);

}  // namespace quintet::cuda

#define QT_CUDA(call)                                                                \
  do {                                                                               \
    if (const cudaError_t qt_error = (call); qt_error != cudaSuccess) [[unlikely]] { \
      ::quintet::cuda::cuda_failed(__FILE__, __LINE__, #call, qt_error);             \
    }                                                                                \
  } while (false)

#define QT_CUBLAS(call)                                                              \
  do {                                                                               \
    if (const cublasStatus_t qt_status = (call); qt_status != CUBLAS_STATUS_SUCCESS) \
        [[unlikely]] {                                                               \
      ::quintet::cuda::cublas_failed(__FILE__, __LINE__, #call, qt_status);          \
    }                                                                                \
  } while (false)

// After a kernel launch: a bad launch geometry shows up here, not three ops later.
#define QT_LAUNCHED() QT_CUDA(cudaGetLastError())
