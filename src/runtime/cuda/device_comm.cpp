#include "runtime/cuda/device_comm.h"

#include <algorithm>
#include <set>
#include <string>

#include <unistd.h>

#include "runtime/cuda/check.h"
#include "runtime/cuda/staged_comm.h"
#ifdef QUINTET_HAS_NCCL
#include "runtime/cuda/nccl_library.h"
#endif

namespace quintet::cuda {
namespace {

#ifdef QUINTET_HAS_NCCL
// Machine and GPU of this rank: no two ranks may have the same.
std::string own_gpu() {
  int device = 0;
  QT_CUDA(cudaGetDevice(&device));
  char bus[64] = {}, host[256] = {};
  QT_CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, device));
  ::gethostname(host, sizeof host - 1);
  return std::string(host) + " " + bus;
}

bool nccl_can_carry(World& world) {
  const std::int64_t everywhere = world.minimum(nccl_library() != nullptr ? 1 : 0);
  const std::vector<std::string> gpus = world.gather(own_gpu());
  const bool distinct = std::set<std::string>(gpus.begin(), gpus.end()).size() == gpus.size();
  const std::string verdict = world.broadcast(distinct ? "distinct" : "shared");
  return everywhere == 1 && verdict == "distinct";
}
#endif

}  // namespace

std::unique_ptr<DeviceComm> make_device_comm(CommSetup setup) {
  // Every rank of a world of several takes part in the choice, whatever its own program says.
  if (setup.world.size() == 1) return nullptr;
#ifdef QUINTET_HAS_NCCL
  if (nccl_can_carry(setup.world)) return make_nccl_comm(std::move(setup));
#endif
  return std::make_unique<StagedComm>(std::move(setup));
}

}  // namespace quintet::cuda
