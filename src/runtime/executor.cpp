// Which device runs a program.
#include "runtime/executor.h"

#include "runtime/backend.h"

namespace quintet {

#ifndef QUINTET_HAS_CUDA
Status cuda_available() {
  return usage_error(
      "this quintet was built without CUDA: use --device cpu, or build it on a machine with the "
      "CUDA "
      "toolkit");
}
Result<std::unique_ptr<Executor>> make_cuda_executor(const Program&, World&) {
  return cuda_available().error();
}
Result<std::unique_ptr<DeviceMeter>> make_cuda_meter() {
  return cuda_available().error();
}
std::int64_t free_cuda_bytes() {
  return 0;
}
Result<DeviceFacts> cuda_facts() {
  return cuda_available().error();
}
#endif

Status device_available(Device device) {
  return device == Device::kCuda ? cuda_available() : Status();
}

Result<DeviceFacts> device_facts(Device device) {
  if (device == Device::kCuda) return cuda_facts();
  return cpu_facts();
}

std::unique_ptr<const Backend> make_backend(const Target& target) {
  return target.device == Device::kCuda ? make_cuda_backend(target) : make_cpu_backend(target);
}

std::int64_t free_bytes(Device device) {
  return device == Device::kCuda ? free_cuda_bytes() : free_cpu_bytes();
}

Result<std::unique_ptr<Executor>> make_executor(const Program& program, World& world) {
  return program.target.device == Device::kCuda ? make_cuda_executor(program, world)
                                                : make_cpu_executor(program, world);
}

}  // namespace quintet
