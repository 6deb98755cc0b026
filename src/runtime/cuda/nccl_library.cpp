#include "runtime/cuda/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "runtime/cuda/check.h"

namespace quintet::cuda {
namespace {

NcclLibrary* load() {
  void* handle = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return nullptr;
  static NcclLibrary library;
  bool complete = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    complete = complete && function != nullptr;
  };
  find(library.error_string, "ncclGetErrorString");
  find(library.get_unique_id, "ncclGetUniqueId");
  find(library.init_rank, "ncclCommInitRank");
  find(library.destroy, "ncclCommDestroy");
  find(library.all_reduce, "ncclAllReduce");
  find(library.all_gather, "ncclAllGather");
  find(library.reduce_scatter, "ncclReduceScatter");
  find(library.send, "ncclSend");
  find(library.recv, "ncclRecv");
  return complete ? &library : nullptr;
}

}  // namespace

const NcclLibrary* nccl_library() {
  static const NcclLibrary* const library = load();
  return library;
}

void nccl_failed(const char* file, int line, const char* call, ncclResult_t result) {
  const NcclLibrary* library = nccl_library();
  throw DeviceError(fmt::format("{}:{}: {}: {}", file, line, call,
                                library == nullptr ? "no NCCL" : library->error_string(result)));
}

}  // namespace quintet::cuda
