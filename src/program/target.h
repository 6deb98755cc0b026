// What a program is planned for: carried by the program, so that nothing runs it on anything else.
#pragma once

#include <cstdint>

namespace quintet {

enum class Device : std::uint8_t { kCpu, kCuda };

struct Target {
  Device device = Device::kCpu;
  int threads = 1;    // of the executor, on the CPU
  bool graph = true;  // on CUDA: replay a step as one graph instead of launching op by op
  // On CUDA: ranks share a GPU or have no NCCL, and MPI carries their tensors through the host.
  bool staged = false;
  bool operator==(const Target&) const = default;
};

}  // namespace quintet
