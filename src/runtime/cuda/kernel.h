// What a CUDA kernel function gets, and the table of them. A kernel function is plain host code of
// one op kind that launches on the op's stream. It allocates nothing, waits for nothing and reads
// no device memory, so that a step can be captured as a graph; but for those that talk to other
// ranks, which keep a step from being captured.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "program/program.h"
#include "runtime/cuda/device_comm.h"
#include "runtime/cuda/scratch.h"
#include "runtime/memory.h"

namespace quintet::cuda {

class Gemm;

struct DeviceInfo {
  int multiprocessors = 0;
  int major = 0;  // compute capability
  Gemm* gemm = nullptr;
};

// An op with its operands' addresses on the device.
class OpContext : public OpView {
 public:
  OpContext(const Program& program, const Op& op, const Memory& memory, cudaStream_t stream,
            const DeviceInfo& device, const DeviceComm* comm)
      : OpView{program, op}, memory_(memory), stream_(stream), device_(&device) {
    if (comm == nullptr) return;
    host_group_ = comm->host_group(op);
    device_group_ = comm->device_group(op);
  }

  // Null where the slot is empty.
  template <class T>
  const T* in_data(int i) const {
    return static_cast<const T*>(address(slot(op.inputs, i)));
  }
  template <class T>
  T* out_data(int i) const {
    return static_cast<T*>(address(slot(op.outputs, i)));
  }
  // The op's scratch memory, from a byte on.
  template <class T>
  T* scratch(std::int64_t offset = 0) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(address(op.workspace)) + offset);
  }
  cudaStream_t stream() const { return stream_; }
  const DeviceInfo& device() const { return *device_; }
  // The ranks an op of the compute stream talks to, one way or the other; null for all others.
  Communicator* host_group() const { return host_group_; }
  DeviceGroup* device_group() const { return device_group_; }

 private:
  void* address(TensorId id) const { return id < 0 ? nullptr : memory_.at(program, id); }
  Memory memory_;
  cudaStream_t stream_;
  const DeviceInfo* device_;
  Communicator* host_group_ = nullptr;
  DeviceGroup* device_group_ = nullptr;
};

using Kernel = void (*)(const OpContext&);
// Null for communication, which the executor starts and finishes by itself.
Kernel kernel_of(OpKind kind);

}  // namespace quintet::cuda
