// Which device runs a program.
#include "runtime/executor.h"

#include <algorithm>
#include <new>

#include "base/check.h"
#include "base/index.h"
#include "base/large_array.h"
#include "runtime/backend.h"

namespace quintet {

std::shared_ptr<std::byte> Executor::host_memory(std::int64_t bytes) {
  try {
    auto array = std::make_shared<LargeArray<std::byte>>(index(std::max<std::int64_t>(bytes, 1)));
    return {array, array->data()};
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

#ifndef QUINTET_HAS_CUDA
Status cuda_available() {
  return usage_error(
      "this quintet was built without CUDA: use --device cpu, or build it on a machine with the "
      "CUDA "
      "toolkit");
}
Result<std::unique_ptr<Executor>> make_cuda_executor(const Program&, World&, std::byte*) {
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

namespace {

Result<std::unique_ptr<Executor>> make_executor_in(std::byte* arena, const Program& program,
                                                   World& world) {
  return program.target.device == Device::kCuda ? make_cuda_executor(program, world, arena)
                                                : make_cpu_executor(program, world, arena);
}

}  // namespace

Result<std::unique_ptr<Executor>> make_executor(const Program& program, World& world) {
  return make_executor_in(nullptr, program, world);
}

Result<std::unique_ptr<Executor>> make_executor_beside(Executor& step, const Program& program,
                                                       World& world) {
  QT_CHECK(program.arena_bytes <= step.arena_bytes() && program.host_bytes == 0,
           "a program of {} bytes beside a step of {}", program.arena_bytes, step.arena_bytes());
  return make_executor_in(step.arena(), program, world);
}

}  // namespace quintet
