#include "runtime/cuda/device_comm.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <unistd.h>

#include "base/log.h"
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

// Why NCCL cannot carry the tensors of these ranks; empty when it can. The same on all of them.
std::string why_not_nccl(World& world) {
  const std::vector<std::string> missing = world.gather(nccl_missing());
  const std::vector<std::string> gpus = world.gather(own_gpu());
  std::string why;
  const auto lacks = std::find_if(missing.begin(), missing.end(),
                                  [](const std::string& text) { return !text.empty(); });
  if (lacks != missing.end()) {
    why = fmt::format("rank {} has no NCCL ({})", lacks - missing.begin(), *lacks);
  } else if (world.rank() == 0 && !nccl_library()->shares_devices) {
    std::map<std::string, std::size_t> seen;
    for (std::size_t rank = 0; rank < gpus.size() && why.empty(); ++rank) {
      const auto [first, is_new] = seen.emplace(gpus[rank], rank);
      if (!is_new) why = fmt::format("ranks {} and {} share a GPU", first->second, rank);
    }
  }
  return world.broadcast(why);
}
#else
std::string why_not_nccl(World&) {
  return "this quintet was built without NCCL";
}
#endif

// Once for each run, however many programs it has.
void say_that_mpi_carries(const std::string& why) {
  static std::set<std::string> said;
  if (said.insert(why).second)
    log_info("{}: tensors go between ranks by MPI through host memory, launched op by op", why);
}

}  // namespace

std::unique_ptr<DeviceComm> make_device_comm(CommSetup setup) {
  // Every rank of a world of several takes part in the choice, whatever its own program says.
  if (setup.world.size() == 1) return nullptr;
  const std::string why = why_not_nccl(setup.world);
#ifdef QUINTET_HAS_NCCL
  if (why.empty()) return make_nccl_comm(std::move(setup));
#endif
  if (setup.world.rank() == 0) say_that_mpi_carries(why);
  return std::make_unique<StagedComm>(std::move(setup));
}

}  // namespace quintet::cuda
