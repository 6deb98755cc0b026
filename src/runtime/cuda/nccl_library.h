// NCCL, found when it is needed and not before: a quintet built with CUDA runs where there is no
// NCCL, as long as no two GPUs have to talk.
#pragma once

#include <string>

#include <nccl.h>

namespace quintet::cuda {

struct NcclLibrary {
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRank) init_rank = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
};

// Null where libnccl.so.2 is not there or lacks something. The same every time.
const NcclLibrary* nccl_library();

[[noreturn]] void nccl_failed(const char* file, int line, const char* call, ncclResult_t result);

}  // namespace quintet::cuda

#define QT_NCCL(call)                                                                   \
  do {                                                                                  \
    if (const ncclResult_t qt_result = (call); qt_result != ncclSuccess) [[unlikely]] { \
      ::quintet::cuda::nccl_failed(__FILE__, __LINE__, #call, qt_result);               \
    }                                                                                   \
  } while (false)
