// Runs a program on one GPU: a CUDA stream for each of the program's streams, an event for each op
// that another stream waits for, one arena. From the second step on the whole step is one graph.
#include "runtime/executor.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/index.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "runtime/backend.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/device_comm.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/kernel.h"

namespace quintet {
namespace {

using cuda::DeviceError;

// A stream or event that is destroyed with its owner.
template <class T, cudaError_t (*kDestroy)(T)>
class Handle {
 public:
  Handle() = default;
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (value_ != nullptr) kDestroy(value_);
  }
  T* out() { return &value_; }
  T get() const { return value_; }
  explicit operator bool() const { return value_ != nullptr; }

 private:
  T value_ = nullptr;
};
using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;
using GraphHandle = Handle<cudaGraph_t, cudaGraphDestroy>;
using GraphExecHandle = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;

struct DeviceMemory {
  explicit DeviceMemory(std::size_t size, std::byte* borrowed = nullptr)
      : data(borrowed), is_own(borrowed == nullptr) {
    if (size > 0 && is_own) QT_CUDA(cudaMalloc(reinterpret_cast<void**>(&data), size));
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() {
    if (is_own) cudaFree(data);
  }
  std::byte* data = nullptr;
  bool is_own = true;
};
struct PinnedMemory {
  explicit PinnedMemory(std::size_t size) {
    if (size > 0) QT_CUDA(cudaMallocHost(reinterpret_cast<void**>(&data), size));
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory() { cudaFreeHost(data); }
  std::byte* data = nullptr;
};

// Io tensors lie side by side: at the beginning of the arena, or after what another program keeps.
struct IoRange {
  std::int64_t begin = 0, end = 0;
};
IoRange io_range_of(const Program& program) {
  IoRange range{INT64_MAX, 0};
  for (const Tensor& t : program.tensors) {
    if (t.storage != Storage::kIo || t.base != kNone) continue;
    range.begin = std::min(range.begin, t.offset);
    range.end = std::max(range.end, t.offset + t.bytes());
  }
  return range.end == 0 ? IoRange{} : range;
}

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(const Program& program, const cudaDeviceProp& properties, World& world,
               std::byte* arena)
      : program_(program),
        graph_wanted_(program.target.graph),
        arena_(index(program.arena_bytes), arena),
        host_(index(program.host_bytes)),
        io_(io_range_of(program)),
        io_mirror_(index(io_.end - io_.begin)),
        gemm_(device_name(properties), cuda::product_cache_file()),
        info_{properties.multiProcessorCount, properties.major, &gemm_},
        timings_(program.ops.size()) {
    for (std::size_t s = 0; s < kStreamCount; ++s) {
      const bool used =
          s == 0 || std::any_of(program.ops.begin(), program.ops.end(),
                                [&](auto& op) { return static_cast<std::size_t>(op.stream) == s; });
      if (!used) continue;
      QT_CUDA(cudaStreamCreateWithFlags(streams_[s].out(), cudaStreamNonBlocking));
      QT_CUDA(cudaEventCreateWithFlags(joins_[s].out(), cudaEventDisableTiming));
    }
    QT_CUDA(cudaEventCreateWithFlags(uploaded_.out(), cudaEventDisableTiming));
    events_.resize(program.ops.size());
    for (const Op& op : program.ops) {
      for (const OpId wait : op.waits) {
        EventHandle& event = events_[index(wait)];
        if (!event) QT_CUDA(cudaEventCreateWithFlags(event.out(), cudaEventDisableTiming));
      }
    }
    make_comm(world);
    steps_.reserve(program.ops.size());
    for (const Op& op : program.ops) {
      steps_.push_back({cuda::kernel_of(op.kind),
                        cuda::OpContext(program, op, memory(), stream_of(op), info_, comm_.get())});
    }
    clear();
    rehearse();
    agree_on_products(world);
  }

  void write(TensorId tensor, std::int64_t offset, std::span<const std::byte> bytes) override {
    if (bytes.empty()) return;
    std::byte* const to = locate(tensor, offset, bytes.size());
    if (program_.tensor(tensor).storage == Storage::kIo) {
      const std::int64_t at = to - arena_.data;
      // The mirror is free again once the last upload from it is through, early in its step.
      QT_CUDA(cudaEventSynchronize(uploaded_.get()));
      std::memcpy(io_mirror_.data + at - io_.begin, bytes.data(), bytes.size());
      pending_.emplace_back(at, static_cast<std::int64_t>(bytes.size()));
      return;
    }
    settle();
    QT_CUDA(cudaMemcpy(to, bytes.data(), bytes.size(), cudaMemcpyDefault));
  }

  void read(TensorId tensor, std::int64_t offset, std::span<std::byte> bytes) const override {
    if (bytes.empty()) return;
    upload();
    settle();
    QT_CUDA(cudaMemcpy(bytes.data(), locate(tensor, offset, bytes.size()), bytes.size(),
                       cudaMemcpyDefault));
  }

  void copy_from(const Executor& other, TensorId from, std::int64_t from_offset, TensorId tensor,
                 std::int64_t offset, std::int64_t bytes) override {
    QT_CUDA(cudaMemcpyAsync(locate(tensor, offset, index(bytes)),
                            other.locate(from, from_offset, index(bytes)), index(bytes),
                            cudaMemcpyDefault, compute()));
  }
  std::byte* locate(TensorId tensor, std::int64_t offset, std::size_t size) const override {
    const Tensor& t = program_.tensor(tensor);
    QT_CHECK(offset >= 0 && offset + static_cast<std::int64_t>(size) <= t.bytes(),
             "bytes [{}, +{}) of {} ({} bytes)", offset, size, t.name, t.bytes());
    return memory().at(program_, tensor) + offset;
  }
  // Pinned: the device writes it directly, several times as fast as through the driver's own
  // buffers.
  std::shared_ptr<std::byte> host_memory(std::int64_t bytes) override {
    void* data = nullptr;
    if (cudaMallocHost(&data, index(bytes)) != cudaSuccess) {
      cudaGetLastError();  // else the next call would report it
      return nullptr;
    }
    return {static_cast<std::byte*>(data), [](std::byte* p) { cudaFreeHost(p); }};
  }

  Status run() override {
    began_ = now();
    return guarded([&] {
      upload();
      if (comm_ && !comm_->is_capturable()) {
        run_with_host();
      } else if (measured_) {
        run_measured();
      } else if (!graph_wanted_ || runs_ == 0) {
        issue();  // the first time eagerly: code is loaded on first use
      } else {
        if (!graph_) capture(graph_, [&] { issue(); });
        QT_CUDA(cudaGraphLaunch(graph_.get(), compute()));
      }
      ++runs_;
    });
  }
  bool runs_beside_host() const override { return comm_ == nullptr || comm_->is_capturable(); }
  Status wait() override {
    return guarded([&] { settle(); });
  }

  void measure_ops(bool on) override { measured_ = on; }
  Result<std::vector<double>> time_batches(std::span<const std::vector<OpId>> batches,
                                           std::span<const std::size_t> order) override {
    std::vector<double> seconds(order.size());
    QT_TRY(guarded([&] { time_batches(batches, order, seconds); }));
    return seconds;
  }
  std::span<const OpTiming> timings() const override { return timings_; }
  double began() const override { return began_; }
  std::vector<std::int64_t> bytes_sent() const override {
    std::vector<std::int64_t> bytes(program_.ops.size(), 0);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const Op& op = program_.ops[i];
      const bool counted = comm_ && !comm_->is_capturable() && op.kind != OpKind::kCopy;
      bytes[i] = counted ? comm_->bytes_sent(static_cast<OpId>(i)) + sent_inside_[i]
                         : runs_ * bytes_sent_by(*backend_, program_, op);
    }
    return bytes;
  }
  std::int64_t arena_bytes() const override { return program_.arena_bytes; }
  std::byte* arena() const override { return arena_.data; }
  std::int64_t resident_bytes() const override { return program_.arena_bytes; }
  std::int64_t device_bytes_in_use() const override {
    std::size_t free = 0, total = 0;
    QT_CUDA(cudaMemGetInfo(&free, &total));
    return static_cast<std::int64_t>(total - free);
  }
  const Program& program() const override { return program_; }
  const Backend& backend() const override { return *backend_; }

 private:
  struct Step {
    cuda::Kernel kernel;
    cuda::OpContext context;
  };

  static std::string device_name(const cudaDeviceProp& properties) {
    std::string name = properties.name;
    std::replace(name.begin(), name.end(), ' ', '_');
    return name;
  }
  template <class Body>
  static Status guarded(const Body& body) {
    try {
      body();
      return {};
    } catch (const DeviceError& error) {
      return make_error(ErrorCode::kIo, "the GPU failed: {}", error.what());
    }
  }

  cudaStream_t stream_of(const Op& op) const {
    return streams_[static_cast<std::size_t>(op.stream)].get();
  }
  cudaStream_t compute() const { return streams_[0].get(); }

  Memory memory() const { return {arena_.data, host_.data}; }

  // Waits for what has been launched; not for a rank that will never answer the device.
  void settle() const {
    if (comm_ == nullptr || !comm_->is_capturable()) {
      QT_CUDA(cudaStreamSynchronize(compute()));
      return;
    }
    double look = now() + 0.1;
    cudaError_t state = cudaSuccess;
    while ((state = cudaStreamQuery(compute())) == cudaErrorNotReady) {
      if (now() > look) {
        comm_->check();
        look = now() + 0.1;
      }
      std::this_thread::yield();
    }
    QT_CUDA(state);
    comm_->check();
  }

  void clear() {
    parallel_for(program_.host_bytes, 1 << 24, [&](std::int64_t begin, std::int64_t end, int) {
      std::memset(host_.data + begin, 0, index(end - begin));
    });
    QT_CUDA(cudaMemsetAsync(arena_.data, 0, index(program_.arena_bytes), compute()));
    QT_CUDA(cudaStreamSynchronize(compute()));
  }

  // Before there is anything in the arena, runs the ops with matrix products, so that each shape's
  // algorithm is measured where it will be used.
  void rehearse() {
    gemm_.set_tuning(true);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const OpKind kind = program_.ops[i].kind;
      if (kind == OpKind::kMatmul || kind == OpKind::kLinearCrossEntropy)
        steps_[i].kernel(steps_[i].context);
    }
    gemm_.set_tuning(false);
    QT_CUDA(cudaDeviceSynchronize());
    clear();
  }

  // Ranks that multiply the same shapes do so by the same algorithm: that of the first of them.
  void agree_on_products(World& world) {
    if (world.size() == 1) return;
    std::string all;
    for (const std::string& choices : world.gather(gemm_.choices())) all += choices;
    gemm_.adopt(world.broadcast(all));
  }

  // What the host wrote since the last step, in as few copies as its places allow.
  void upload() const {
    if (pending_.empty()) return;
    std::sort(pending_.begin(), pending_.end());
    std::int64_t begin = pending_.front().first, end = begin;
    const auto flush = [&] {
      QT_CUDA(cudaMemcpyAsync(arena_.data + begin, io_mirror_.data + begin - io_.begin,
                              index(end - begin), cudaMemcpyHostToDevice, compute()));
    };
    for (const auto& [at, size] : pending_) {
      if (at > end) {
        flush();
        begin = at;
        end = at;
      }
      end = std::max(end, at + size);
    }
    flush();
    pending_.clear();
    QT_CUDA(cudaEventRecord(uploaded_.get(), compute()));
  }

  // Launches every op. Other streams start after what the compute stream has before the step, and
  // the compute stream ends after all of them.
  template <class Before, class After>
  void issue(const Before& before, const After& after) {
    QT_CUDA(cudaEventRecord(joins_[0].get(), compute()));
    for (std::size_t s = 1; s < kStreamCount; ++s)
      if (streams_[s]) QT_CUDA(cudaStreamWaitEvent(streams_[s].get(), joins_[0].get(), 0));
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Op& op = program_.ops[i];
      for (const OpId wait : op.waits)
        QT_CUDA(cudaStreamWaitEvent(stream_of(op), events_[index(wait)].get(), 0));
      before(i);
      if (is_communication(op.kind)) {
        comm_->issue(static_cast<OpId>(i));
      } else {
        steps_[i].kernel(steps_[i].context);
      }
      after(i);
      if (events_[i]) QT_CUDA(cudaEventRecord(events_[i].get(), stream_of(op)));
    }
    for (std::size_t s = 1; s < kStreamCount; ++s) {
      if (!streams_[s]) continue;
      QT_CUDA(cudaEventRecord(joins_[s].get(), streams_[s].get()));
      QT_CUDA(cudaStreamWaitEvent(compute(), joins_[s].get(), 0));
    }
  }
  void issue() {
    issue([](std::size_t) {}, [](std::size_t) {});
  }

  // The ops of a batch, each stream in order, beside each other.
  void issue_batch(const std::vector<OpId>& batch) {
    std::array<bool, kStreamCount> used{};
    for (const OpId op : batch)
      used[static_cast<std::size_t>(program_.ops[index(op)].stream)] = true;
    QT_CUDA(cudaEventRecord(joins_[0].get(), compute()));
    for (std::size_t s = 1; s < kStreamCount; ++s)
      if (used[s]) QT_CUDA(cudaStreamWaitEvent(streams_[s].get(), joins_[0].get(), 0));
    for (const OpId op : batch) steps_[index(op)].kernel(steps_[index(op)].context);
    for (std::size_t s = 1; s < kStreamCount; ++s) {
      if (!used[s]) continue;
      QT_CUDA(cudaEventRecord(joins_[s].get(), streams_[s].get()));
      QT_CUDA(cudaStreamWaitEvent(compute(), joins_[s].get(), 0));
    }
  }

  void time_batches(std::span<const std::vector<OpId>> batches, std::span<const std::size_t> order,
                    std::vector<double>& seconds) {
    upload();
    // Code is loaded on first use, which cannot be captured.
    std::vector<bool> ran(steps_.size(), false);
    for (const auto& batch : batches) {
      for (const OpId op : batch) {
        if (!ran[index(op)]) steps_[index(op)].kernel(steps_[index(op)].context);
        ran[index(op)] = true;
      }
    }
    QT_CUDA(cudaDeviceSynchronize());
    std::vector<GraphExecHandle> graphs(graph_wanted_ ? batches.size() : 0);
    for (std::size_t b = 0; b < graphs.size(); ++b)
      capture(graphs[b], [&] { issue_batch(batches[b]); });
    std::vector<EventHandle> marks(2 * order.size());
    for (EventHandle& mark : marks) QT_CUDA(cudaEventCreate(mark.out()));
    for (std::size_t i = 0; i < order.size(); ++i) {
      QT_CUDA(cudaEventRecord(marks[2 * i].get(), compute()));
      if (graph_wanted_) {
        QT_CUDA(cudaGraphLaunch(graphs[order[i]].get(), compute()));
      } else {
        issue_batch(batches[order[i]]);
      }
      QT_CUDA(cudaEventRecord(marks[2 * i + 1].get(), compute()));
    }
    QT_CUDA(cudaStreamSynchronize(compute()));
    for (std::size_t i = 0; i < order.size(); ++i) {
      float milliseconds = 0;
      QT_CUDA(cudaEventElapsedTime(&milliseconds, marks[2 * i].get(), marks[2 * i + 1].get()));
      seconds[i] = static_cast<double>(milliseconds) * 1e-3;
    }
  }

  void make_comm(World& world) {
    std::array<cudaStream_t, kStreamCount> streams{};
    for (std::size_t s = 0; s < kStreamCount; ++s) streams[s] = streams_[s].get();
    std::vector<cudaEvent_t> events;
    for (const EventHandle& event : events_) events.push_back(event.get());
    comm_ = cuda::make_device_comm({program_, arena_.data, world, streams, std::move(events)});
    Target target = program_.target;
    target.staged = comm_ != nullptr && !comm_->is_capturable();
    backend_ = make_backend(target);
    sent_inside_.resize(program_.ops.size(), 0);
  }

  // As issue(), with the host taking part in the communication.
  void run_with_host() {
    comm_->begin_step();
    QT_CUDA(cudaEventRecord(joins_[0].get(), compute()));
    for (std::size_t s = 1; s < kStreamCount; ++s)
      if (streams_[s]) QT_CUDA(cudaStreamWaitEvent(streams_[s].get(), joins_[0].get(), 0));
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Op& op = program_.ops[i];
      if (is_communication(op.kind)) {
        comm_->issue(static_cast<OpId>(i));
        continue;
      }
      for (const OpId wait : op.waits) {
        comm_->wait(wait);
        QT_CUDA(cudaStreamWaitEvent(stream_of(op), events_[index(wait)].get(), 0));
      }
      Communicator* const group = steps_[i].context.host_group();
      if (group != nullptr) group->sent_now = {};
      steps_[i].kernel(steps_[i].context);
      if (group != nullptr) sent_inside_[i] += group->sent_now.bytes;
      if (events_[i]) QT_CUDA(cudaEventRecord(events_[i].get(), stream_of(op)));
      comm_->progress();
    }
    comm_->wait_all();
    for (std::size_t s = 1; s < kStreamCount; ++s) {
      if (!streams_[s]) continue;
      QT_CUDA(cudaEventRecord(joins_[s].get(), streams_[s].get()));
      QT_CUDA(cudaStreamWaitEvent(compute(), joins_[s].get(), 0));
    }
  }

  template <class Issue>
  void capture(GraphExecHandle& into, const Issue& issue) {
    GraphHandle graph;
    QT_CUDA(cudaStreamBeginCapture(compute(), cudaStreamCaptureModeThreadLocal));
    try {
      issue();
    } catch (...) {
      cudaStreamEndCapture(compute(), graph.out());
      throw;
    }
    QT_CUDA(cudaStreamEndCapture(compute(), graph.out()));
    QT_CUDA(cudaGraphInstantiate(into.out(), graph.get(), 0));
  }

  void run_measured() {
    if (marks_.empty()) {
      marks_.resize(2 * steps_.size() + 1);
      for (EventHandle& mark : marks_) QT_CUDA(cudaEventCreate(mark.out()));
    }
    QT_CUDA(cudaEventRecord(marks_.back().get(), compute()));
    issue(
        [&](std::size_t i) {
          QT_CUDA(cudaEventRecord(marks_[2 * i].get(), stream_of(program_.ops[i])));
        },
        [&](std::size_t i) {
          QT_CUDA(cudaEventRecord(marks_[2 * i + 1].get(), stream_of(program_.ops[i])));
        });
    settle();
    std::array<double, kStreamCount> free{};  // when each stream was done with what came before
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Op& op = program_.ops[i];
      float start = 0, end = 0;
      QT_CUDA(cudaEventElapsedTime(&start, marks_.back().get(), marks_[2 * i].get()));
      QT_CUDA(cudaEventElapsedTime(&end, marks_.back().get(), marks_[2 * i + 1].get()));
      OpTiming& t = timings_[i];
      t = {.start = static_cast<double>(start) * 1e-3, .end = static_cast<double>(end) * 1e-3};
      // The stream stood still for as long as what the op waits for went on.
      double& before = free[static_cast<std::size_t>(op.stream)];
      for (const OpId wait : op.waits) {
        const double until = std::min(timings_[index(wait)].end, t.start);
        if (until - before <= t.blocked) continue;
        t.blocked = until - before;
        t.blocked_by = wait;
      }
      before = std::max(before, t.end);
    }
  }

  const Program& program_;
  const bool graph_wanted_;
  DeviceMemory arena_;
  PinnedMemory host_;
  const IoRange io_;
  PinnedMemory io_mirror_;
  std::array<StreamHandle, kStreamCount> streams_;
  std::array<EventHandle, kStreamCount> joins_;
  EventHandle uploaded_;
  std::vector<EventHandle> events_;  // by op; none where nobody on another stream waits for it
  std::vector<EventHandle> marks_;   // for timings: two for each op, and the beginning
  cuda::Gemm gemm_;
  const cuda::DeviceInfo info_;
  std::unique_ptr<const Backend> backend_;
  std::unique_ptr<cuda::DeviceComm> comm_;  // null where this rank is alone
  std::vector<std::int64_t> sent_inside_;   // by kernels that talk to other ranks themselves
  std::vector<Step> steps_;
  std::vector<OpTiming> timings_;
  mutable std::vector<std::pair<std::int64_t, std::int64_t>> pending_;  // written, not yet uploaded
  GraphExecHandle graph_;
  std::int64_t runs_ = 0;
  double began_ = 0;
  bool measured_ = false;
};

}  // namespace

// This rank's number among those of its machine, as its launcher has it.
static int local_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    if (const char* rank = std::getenv(name); rank != nullptr) return std::atoi(rank);
  }
  return 0;
}

Status cuda_available() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    return usage_error("no CUDA device: {}; use --device cpu",
                       error == cudaSuccess ? "the driver lists none" : cudaGetErrorString(error));
  }
  return {};
}

Result<DeviceFacts> cuda_facts() {
  QT_TRY(cuda_available());
  try {
    DeviceFacts facts;
    int devices = 1;
    QT_CUDA(cudaGetDeviceCount(&devices));
    cudaDeviceProp properties{};
    QT_CUDA(cudaGetDeviceProperties(&properties, local_rank() % devices));
    facts.name = properties.name;
    facts.sm = 10 * properties.major + properties.minor;
    facts.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
    facts.cache_bytes = properties.l2CacheSize;
    facts.devices = devices;
    return facts;
  } catch (const DeviceError& error) {
    return make_error(ErrorCode::kIo, "the GPU failed: {}", error.what());
  }
}

std::int64_t free_cuda_bytes() {
  std::size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<std::int64_t>(free) : 0;
}

Result<std::unique_ptr<Executor>> make_cuda_executor(const Program& program, World& world,
                                                     std::byte* arena) {
  QT_TRY(cuda_available());
  try {
    // Ranks take the GPUs of their machine in turn; several may share one.
    int devices = 1;
    QT_CUDA(cudaGetDeviceCount(&devices));
    QT_CUDA(cudaSetDevice(local_rank() % devices));
    cudaDeviceProp properties{};
    QT_CUDA(cudaGetDeviceProperties(&properties, local_rank() % devices));
    const bool fp8 = std::any_of(program.ops.begin(), program.ops.end(),
                                 [](const Op& op) { return op.kind == OpKind::kQuantize; });
    if (const int sm = 10 * properties.major + properties.minor; fp8 && sm < 89) {
      return make_error(ErrorCode::kUsage,
                        "train.precision = \"fp8\" needs a GPU of compute capability 8.9 or later, "
                        "and {} has {}.{}; use \"bf16\"",
                        properties.name, properties.major, properties.minor);
    }
    std::size_t free = 0, total = 0;
    QT_CUDA(cudaMemGetInfo(&free, &total));
    if (arena == nullptr && program.arena_bytes > static_cast<std::int64_t>(free)) {
      return make_error(ErrorCode::kOutOfMemory, "this step needs {} and the GPU has {} free of {}",
                        human_bytes(static_cast<double>(program.arena_bytes)),
                        human_bytes(static_cast<double>(free)),
                        human_bytes(static_cast<double>(total)));
    }
    if (const std::int64_t host = free_cpu_bytes(); host >= 0 && program.host_bytes > host) {
      return make_error(ErrorCode::kOutOfMemory,
                        "this step keeps {} of the optimizer's state in host memory, of which {} "
                        "are free",
                        human_bytes(static_cast<double>(program.host_bytes)),
                        human_bytes(static_cast<double>(host)));
    }
    return std::unique_ptr<Executor>(
        std::make_unique<CudaExecutor>(program, properties, world, arena));
  } catch (const DeviceError& error) {
    return make_error(ErrorCode::kIo, "the GPU failed: {}", error.what());
  }
}

}  // namespace quintet
