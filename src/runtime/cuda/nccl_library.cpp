#include "runtime/cuda/nccl_library.h"

#include <cstdlib>

#include <dlfcn.h>
#include <fmt/format.h>

#include "runtime/cuda/check.h"

namespace quintet::cuda {
namespace {

struct Loaded {
  NcclLibrary library;
  std::string missing;
};

Loaded load() {
  Loaded loaded;
  NcclLibrary& library = loaded.library;
  const char* named = std::getenv("QUINTET_NCCL");
  void* handle = ::dlopen(named != nullptr ? named : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    loaded.missing = why != nullptr ? why : "no libnccl.so.2";
    return loaded;
  }
  const auto look = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    return function != nullptr;
  };
  const auto find = [&](auto& function, const char* name) {
    if (!look(function, name)) loaded.missing = fmt::format("NCCL has no {}", name);
  };
  find(library.error_string, "ncclGetErrorString");
  find(library.get_unique_id, "ncclGetUniqueId");
  find(library.init_rank, "ncclCommInitRank");
  find(library.destroy, "ncclCommDestroy");
  find(library.abort, "ncclCommAbort");
  find(library.async_error, "ncclCommGetAsyncError");
  find(library.all_reduce, "ncclAllReduce");
  find(library.all_gather, "ncclAllGather");
  find(library.reduce_scatter, "ncclReduceScatter");
  find(library.send, "ncclSend");
  find(library.recv, "ncclRecv");
  look(library.last_error, "ncclGetLastError");
  library.shares_devices = ::dlsym(handle, "quintetStandInSharesDevices") != nullptr;
  return loaded;
}

const Loaded& loaded() {
  static const Loaded value = load();
  return value;
}

}  // namespace

const NcclLibrary* nccl_library() {
  return loaded().missing.empty() ? &loaded().library : nullptr;
}
const std::string& nccl_missing() {
  return loaded().missing;
}

void nccl_failed(const char* file, int line, const char* call, ncclResult_t result) {
  const NcclLibrary* library = nccl_library();
  if (library == nullptr)
    throw DeviceError(fmt::format("{}:{}: {}: {}", file, line, call, nccl_missing()));
  const char* more = library->last_error != nullptr ? library->last_error(nullptr) : nullptr;
  throw DeviceError(fmt::format("{}:{}: {}: {}{}{}", file, line, call,
                                library->error_string(result), more != nullptr ? ": " : "",
                                more != nullptr ? more : ""));
}

}  // namespace quintet::cuda
