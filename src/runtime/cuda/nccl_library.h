// NCCL, found when it is needed and not before: a quintet built with CUDA runs where there is no
// NCCL, as long as no two GPUs have to talk. QUINTET_NCCL names a library to take instead of the
// system's.
#pragma once

#include <string>

#include <nccl.h>

namespace quintet::cuda {

struct NcclLibrary {
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRank) init_rank = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  // What NCCL has to say beyond the kind of error; null in old versions.
  decltype(&ncclGetLastError) last_error = nullptr;
  bool shares_devices = false;  // the tests' stand-in: ranks may share a GPU
};

// Null where there is none or it lacks something: nccl_missing() says what. The same every time.
const NcclLibrary* nccl_library();
const std::string& nccl_missing();

[[noreturn]] void nccl_failed(const char* file, int line, const char* call, ncclResult_t result);

}  // namespace quintet::cuda

#define QT_NCCL(call)                                                                   \
  do {                                                                                  \
    if (const ncclResult_t qt_result = (call); qt_result != ncclSuccess) [[unlikely]] { \
      ::quintet::cuda::nccl_failed(__FILE__, __LINE__, #call, qt_result);               \
    }                                                                                   \
  } while (false)
