#include "runtime/cuda/cublas_library.h"

#include <string>

#include <dlfcn.h>
#include <fmt/format.h>

#include "runtime/cuda/check.h"

namespace quintet::cuda {
namespace {

void* open_library() {
  // As the system finds it; else the one this quintet was built with.
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  if (void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr)
    return handle;
  const std::string why = ::dlerror();
  const std::string built_with = std::string(QUINTET_CUDA_LIBRARIES) + "/" + name;
  if (void* handle = ::dlopen(built_with.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr)
    return handle;
  throw DeviceError(
      fmt::format("no cuBLASLt ({}): install it, or name its folder in LD_LIBRARY_PATH", why));
}

CublasLibrary load() {
  void* const handle = open_library();
  CublasLibrary library;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (function == nullptr) throw DeviceError(fmt::format("this cuBLASLt has no {}", name));
  };
  find(library.create, "cublasLtCreate");
  find(library.destroy, "cublasLtDestroy");
  find(library.version, "cublasLtGetVersion");
  find(library.status_name, "cublasLtGetStatusName");
  find(library.layout_create, "cublasLtMatrixLayoutCreate");
  find(library.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(library.desc_create, "cublasLtMatmulDescCreate");
  find(library.desc_destroy, "cublasLtMatmulDescDestroy");
  find(library.desc_set, "cublasLtMatmulDescSetAttribute");
  find(library.preference_create, "cublasLtMatmulPreferenceCreate");
  find(library.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(library.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(library.suggest, "cublasLtMatmulAlgoGetHeuristic");
  find(library.check, "cublasLtMatmulAlgoCheck");
  find(library.matmul, "cublasLtMatmul");
  return library;
}

}  // namespace

const CublasLibrary& cublas_library() {
  static const CublasLibrary library = load();
  return library;
}

}  // namespace quintet::cuda
