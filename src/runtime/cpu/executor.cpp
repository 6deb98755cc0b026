#include <sys/mman.h>
#include <unistd.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>

#include "base/clock.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "runtime/backend.h"
#include "runtime/cpu/comm_streams.h"
#include "runtime/cpu/kernel.h"
#include "runtime/executor.h"
#include "runtime/host_memory.h"

namespace quintet {

std::int64_t free_cpu_bytes() {
  return host_memory().free();
}

DeviceFacts cpu_facts() {
  DeviceFacts facts;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; facts.name.empty() && std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos)
      facts.name = line.substr(colon + 2);
  }
  if (facts.name.empty()) facts.name = "CPU";
  facts.memory_bytes = ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE);
  // What a core has to itself beyond doubt: the last cache is shared, with other machines even.
  facts.cache_bytes = std::max<std::int64_t>(::sysconf(_SC_LEVEL2_CACHE_SIZE), 0);
  return facts;
}

namespace {

// Makes every thread of the team treat denormal numbers as zero. Softmax tails and the second
// moments of rare words are full of them, they cost a hundred times a normal operation, and no
// result needs them.
void flush_denormals(int threads) {
#if defined(__SSE2__)
#pragma omp parallel num_threads(threads)
  {
    _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
    _mm_setcsr(_mm_getcsr() | 0x0040);  // denormals are zero on input, too
  }
#else
  static_cast<void>(threads);
#endif
}

// Zero-filled pages from the system, taken as they are first touched; or somebody else's memory.
class Arena {
 public:
  explicit Arena(std::size_t size, std::byte* borrowed = nullptr)
      : data_(borrowed), size_(size), borrowed_(borrowed != nullptr) {
    if (size == 0 || borrowed_) return;
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data_ = data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
    if (data_ != nullptr) ::madvise(data_, size, MADV_HUGEPAGE);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    if (data_ != nullptr && !borrowed_) ::munmap(data_, size_);
  }
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool allocated() const { return data_ != nullptr || size_ == 0; }
  // Bytes of it that the system has given pages for.
  std::int64_t resident() const {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> pages((size_ + page - 1) / page);
    if (pages.empty() || ::mincore(data_, size_, pages.data()) != 0) return 0;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      if ((pages[i] & 1) != 0) bytes += static_cast<std::int64_t>(std::min(page, size_ - i * page));
    }
    return bytes;
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_;
  bool borrowed_;
};

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(const Program& program, World& world, std::byte* arena)
      : program_(program),
        backend_(make_backend(program.target)),
        threads_(program.target.threads),
        arena_(static_cast<std::size_t>(program.arena_bytes), arena),
        host_(static_cast<std::size_t>(program.host_bytes)),
        comm_(program, arena_.data(), world),
        timings_(program.ops.size()),
        bytes_sent_(program.ops.size(), 0) {
    flush_denormals(threads_);
    steps_.reserve(program.ops.size());
    for (const Op& op : program.ops) {
      steps_.push_back(
          {cpu::kernel_of(op.kind), cpu::OpContext(program, op, memory(), comm_.group_of(op))});
      if (!is_communication(op.kind)) ++computations_;
    }
  }
  bool allocated() const { return arena_.allocated() && host_.allocated(); }

  void write(TensorId tensor, std::int64_t offset, std::span<const std::byte> bytes) override {
    if (!bytes.empty())
      std::memcpy(locate(tensor, offset, bytes.size()), bytes.data(), bytes.size());
  }
  void read(TensorId tensor, std::int64_t offset, std::span<std::byte> bytes) const override {
    if (!bytes.empty())
      std::memcpy(bytes.data(), locate(tensor, offset, bytes.size()), bytes.size());
  }

  void copy_from(const Executor& other, TensorId from, std::int64_t from_offset, TensorId tensor,
                 std::int64_t offset, std::int64_t bytes) override {
    const auto size = static_cast<std::size_t>(bytes);
    std::memcpy(locate(tensor, offset, size), other.locate(from, from_offset, size), size);
  }
  std::byte* locate(TensorId tensor, std::int64_t offset, std::size_t size) const override {
    const Tensor& t = program_.tensor(tensor);
    QT_CHECK(offset >= 0 && offset + static_cast<std::int64_t>(size) <= t.bytes(),
             "bytes [{}, +{}) of {} ({} bytes)", offset, size, t.name, t.bytes());
    return memory().at(program_, tensor) + offset;
  }
  void report_to(Activity& activity) override {
    activity_ = &activity;
    comm_.report_to(activity);
  }

  // The compute stream is this loop; the other streams are comm_'s queues.
  Status run() override {
    omp_set_num_threads(threads_);
    const double begin = began_ = now();
    comm_.begin_step(begin, timings_);
    std::size_t computations_left = computations_;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Op& op = program_.ops[i];
      if (is_communication(op.kind)) {
        comm_.enqueue(static_cast<OpId>(i));
        continue;
      }
      OpTiming& timing = timings_[i];
      timing = {.start = now() - begin};
      for (const OpId wait : op.waits) {
        if (comm_.is_done(wait)) continue;
        activity_->enter_op(wait, true);
        comm_.wait(wait);
        timing.blocked_by = wait;
      }
      if (timing.blocked_by >= 0) {
        const double ready = now() - begin;
        timing.blocked = ready - timing.start;
        timing.start = ready;
      }
      Communicator* const group = steps_[i].context.group();
      activity_->enter_op(static_cast<OpId>(i), group != nullptr);
      if (group != nullptr) group->sent_now = {};
      steps_[i].kernel(steps_[i].context);
      if (group != nullptr) {
        bytes_sent_[i] += group->sent_now.bytes;
        timing.talking = group->sent_now.seconds;
      }
      timing.end = now() - begin;
      if (is_transfer(op.kind)) {
        bytes_sent_[i] += bytes_sent_by(*backend_, program_, op);
        timing.talking = timing.end - timing.start;
      }
      // After the last computation there is nothing that communication could hold up: all that
      // follows is waiting for it.
      if (--computations_left == 0) comm_.nothing_else_to_do();
      comm_.progress();
    }
    comm_.wait_all();
    return {};
  }

  Result<std::vector<double>> time_batches(std::span<const std::vector<OpId>> batches,
                                           std::span<const std::size_t> order) override {
    omp_set_num_threads(threads_);
    std::vector<double> seconds;
    for (const std::size_t batch : order) {
      const double begin = now();
      for (const OpId op : batches[batch]) {
        const Step& step = steps_[static_cast<std::size_t>(op)];
        step.kernel(step.context);
      }
      seconds.push_back(now() - begin);
    }
    return seconds;
  }

  std::span<const OpTiming> timings() const override { return timings_; }
  double began() const override { return began_; }
  std::vector<std::int64_t> bytes_sent() const override {
    std::vector<std::int64_t> bytes = bytes_sent_;
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] += comm_.bytes_sent(static_cast<OpId>(i));
    return bytes;
  }
  std::int64_t arena_bytes() const override { return static_cast<std::int64_t>(arena_.size()); }
  std::byte* arena() const override { return arena_.data(); }
  std::int64_t resident_bytes() const override { return arena_.resident(); }
  const Program& program() const override { return program_; }
  const Backend& backend() const override { return *backend_; }

 private:
  struct Step {
    cpu::Kernel kernel;
    cpu::OpContext context;
  };

  Memory memory() const { return {arena_.data(), host_.data()}; }

  const Program& program_;
  const std::unique_ptr<const Backend> backend_;
  const int threads_;
  Arena arena_, host_;
  cpu::CommStreams comm_;
  std::vector<Step> steps_;
  Activity nobody_, *activity_ = &nobody_;
  std::size_t computations_ = 0;  // among them
  std::vector<OpTiming> timings_;
  double began_ = 0;
  std::vector<std::int64_t> bytes_sent_;  // by ops that comm_ does not carry
};

}  // namespace

Result<std::unique_ptr<Executor>> make_cpu_executor(const Program& program, World& world,
                                                    std::byte* arena) {
  const std::int64_t available = free_cpu_bytes();
  const std::int64_t needed = (arena == nullptr ? program.arena_bytes : 0) + program.host_bytes;
  if (available >= 0 && needed > available) {
    return make_error(ErrorCode::kOutOfMemory, "this step needs {} and the machine has {} free",
                      human_bytes(static_cast<double>(needed)),
                      human_bytes(static_cast<double>(available)));
  }
  auto executor = std::make_unique<CpuExecutor>(program, world, arena);
  if (!executor->allocated()) {
    return make_error(ErrorCode::kOutOfMemory, "the system refused {} of memory for the arena",
                      human_bytes(static_cast<double>(needed)));
  }
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace quintet
