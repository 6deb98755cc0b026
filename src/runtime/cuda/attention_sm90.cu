#include <cudaTypedefs.h>

#include "runtime/cuda/attention_sm90.h"
#include "runtime/cuda/attention_sm90_common.h"

namespace quintet::cuda::sm90 {

namespace {

// The driver's encoder of tensor maps, fetched through the runtime so that nothing links to the
// driver library.
PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  static const auto encoder = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                               12000, cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) function = nullptr;
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  return encoder;
}

bool aligned16(const void* p) {
  return p != nullptr && reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}

}  // namespace

cudaError_t make_tensor_map(CUtensorMap* map, const void* data, std::int64_t samples,
                            std::int64_t rows, int heads, std::int64_t ld, int box_rows) {
  const auto encoder = tensor_map_encoder();
  if (encoder == nullptr) return cudaErrorNotSupported;
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(heads) * kHeadDim,
                               static_cast<cuuint64_t>(rows), static_cast<cuuint64_t>(samples)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(ld) * 2,
                                 static_cast<cuuint64_t>(rows * ld) * 2};  // bytes
  const cuuint32_t box[3] = {kHeadDim, static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t element_strides[3] = {1, 1, 1};
  const CUresult result =
      encoder(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(data), sizes, strides,
              box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

bool supported(const Attention& a) {
  int device = 0, major = 0, minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (major != 9 || minor != 0) return false;
  if (a.batch < 1 || a.heads < 1 || a.queries < 1 || a.keys < 1) return false;
  if (std::int64_t{a.batch} * a.heads > 65535) return false;  // the most blocks in a grid's y
  if (!aligned16(a.q) || !aligned16(a.k) || !aligned16(a.v)) return false;
  if (a.query_segments != nullptr && a.causal && a.bias.table == nullptr) return false;
  if (a.q_ld % 8 != 0 || a.kv_ld % 8 != 0) return false;
  return a.bias.table == nullptr || a.bias.buckets <= RelativeBias::kMaxBuckets;
}

}  // namespace quintet::cuda::sm90
