// Runs a program, step after step, on one device. Storage is one arena of exactly
// Program::arena_bytes, allocated once; a step allocates nothing and decides nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "parallel/activity.h"
#include "parallel/communicator.h"
#include "program/backend.h"
#include "program/op_decl.h"
#include "program/program.h"
#include "runtime/op_timing.h"

namespace quintet {

class Executor {
 public:
  virtual ~Executor() = default;

  // Copies bytes into or out of a tensor, `offset` bytes from its start. Not while a step runs. The
  // host writes parameters, optimizer state and io before the first step; everything else is the
  // program's.
  virtual void write(TensorId tensor, std::int64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void read(TensorId tensor, std::int64_t offset, std::span<std::byte> bytes) const = 0;

  // Copies bytes of another executor's tensor into one of this one's, on the same device. Not while
  // either runs.
  virtual void copy_from(const Executor& other, TensorId from, std::int64_t from_offset,
                         TensorId tensor, std::int64_t offset, std::int64_t bytes) = 0;
  // Where `size` bytes of a tensor are, `offset` bytes from its start: on the device.
  virtual std::byte* locate(TensorId tensor, std::int64_t offset, std::size_t size) const = 0;
  // Host memory that read() fills fastest, for as long as it is held; null where the system refuses
  // it. Must not outlive the executor.
  virtual std::shared_ptr<std::byte> host_memory(std::int64_t bytes);

  // Executes the program once. May return before the device is done; write() to io tensors is then
  // for the next run, and read() waits.
  virtual Status run() = 0;
  // Whether it does: the host has time for other things while a step runs.
  virtual bool runs_beside_host() const { return false; }
  // Waits until everything that was run is done.
  virtual Status wait() { return {}; }
  // Whether timings() are wanted. A device that replays its step as a whole measures no ops unless
  // asked, and leaves the timings zero.
  virtual void measure_ops(bool) {}
  // Tells which op it is at, for the watchdog; the object must outlive it. A device whose steps the
  // host only starts does not know.
  virtual void report_to(Activity&) {}
  // What the last measured run spent its time on, by op, and when the last run began, on the steady
  // clock.
  virtual std::span<const OpTiming> timings() const = 0;
  virtual double began() const = 0;
  // Runs ops by themselves, whatever they wait for in a step: the batches in the order given, one
  // after the other without a pause, the ops of each as a step would issue them. Returns the
  // seconds of each entry of `order`.
  virtual Result<std::vector<double>> time_batches(std::span<const std::vector<OpId>> batches,
                                                   std::span<const std::size_t> order) = 0;
  // Bytes this rank sent in all runs so far, by op.
  virtual std::vector<std::int64_t> bytes_sent() const = 0;

  // What the arena really takes, for comparison with the plan; and how much of it the system has
  // given so far, which is all of it once a step has run.
  virtual std::int64_t arena_bytes() const = 0;
  virtual std::byte* arena() const = 0;
  virtual std::int64_t resident_bytes() const = 0;
  // Bytes in use on the device, by this process and others; 0 where the arena is all there is.
  virtual std::int64_t device_bytes_in_use() const { return 0; }
  virtual const Program& program() const = 0;
  // What carries and counts this run.
  virtual const Backend& backend() const = 0;

  // Typed convenience for whole small tensors.
  template <class T>
  void write_all(TensorId tensor, std::span<const T> values) {
    write(tensor, 0, std::as_bytes(values));
  }
  template <class T>
  std::vector<T> read_all(TensorId tensor) const {
    std::vector<T> values(static_cast<std::size_t>(program().tensor(tensor).shape.numel()));
    read(tensor, 0, std::as_writable_bytes(std::span(values)));
    return values;
  }
};

// On the device the program was planned for. Program and world must outlive the executor. Called by
// all ranks of the world together. Fails when the device has not enough free memory, before
// anything is allocated.
Result<std::unique_ptr<Executor>> make_executor(const Program& program, World& world);
// An executor in the arena of another, for a program that was planned to run between two of its
// steps (plan_memory_beside). Made before anything is in the arena, which it empties; neither may
// run while the other does. `step` must outlive it and have room for it.
Result<std::unique_ptr<Executor>> make_executor_beside(Executor& step, const Program& program,
                                                       World& world);

// The same for one device each; make_executor chooses. Where Quintet was built without CUDA there
// is no make_cuda_executor.
// `arena`: that of another executor; null: its own.
Result<std::unique_ptr<Executor>> make_cpu_executor(const Program& program, World& world,
                                                    std::byte* arena = nullptr);
Result<std::unique_ptr<Executor>> make_cuda_executor(const Program& program, World& world,
                                                     std::byte* arena = nullptr);

// Whether a device can be used here; why not, if it cannot.
Status device_available(Device device);
Status cuda_available();
// Memory that a step could have on a device now.
std::int64_t free_bytes(Device device);
std::int64_t free_cpu_bytes();
std::int64_t free_cuda_bytes();

// What a device is, as its driver or the system says.
struct DeviceFacts {
  std::string name;
  std::int64_t sm = 0;  // CUDA compute capability times ten
  std::int64_t memory_bytes = 0, cache_bytes = 0;
  std::int64_t devices = 1;  // of this kind, on this machine
};
Result<DeviceFacts> device_facts(Device device);
DeviceFacts cpu_facts();
Result<DeviceFacts> cuda_facts();

// Measures what the device can do at best.
class DeviceMeter {
 public:
  virtual ~DeviceMeter() = default;
  // C = op(A) op(B), C m x n: seconds of one product with warm, random operands.
  virtual double product_seconds(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k,
                                 DType dtype) = 0;
  // Bytes read and written a second by a large copy.
  virtual double copy_bytes_per_second() = 0;
};
Result<std::unique_ptr<DeviceMeter>> make_cuda_meter();

}  // namespace quintet
