// Communication over MPI.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

#include <fmt/format.h>
#include <mpi.h>
#include <omp.h>
#include <sched.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/parallel_for.h"
#include "parallel/communicator.h"
#include "parallel/mpi_algorithms.h"

// A call that fails does so because a peer or the network has gone.
#define QT_MPI(call)                                                          \
  do {                                                                        \
    const int qt_mpi_code = (call);                                           \
    if (qt_mpi_code != MPI_SUCCESS) communication_failed(#call, qt_mpi_code); \
  } while (false)

namespace quintet {
namespace {

[[noreturn]] void communication_failed(const std::string& call, int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommunicationFailure(fmt::format("{} failed: {}", call.substr(0, call.find('(')), text));
}

int narrow(std::int64_t value) {
  QT_CHECK(value >= 0 && value <= std::numeric_limits<int>::max(), "{} elements in one message",
           value);
  return static_cast<int>(value);
}

MPI_Datatype mpi_type(std::int64_t element) {
  return element == 2   ? MPI_UINT16_T
         : element == 4 ? MPI_UINT32_T
         : element == 8 ? MPI_UINT64_T
                        : MPI_BYTE;
}

// out[i] = reduction over m of copies[m * stride + i], in the order of m.
template <class T>
void reduce_copies(const T* copies, std::int64_t members, std::int64_t stride, std::int64_t count,
                   Reduction reduction, T* out) {
  parallel_for(count, kElementGrain, [&](std::int64_t begin, std::int64_t end, int) {
    constexpr std::int64_t kBlock = 512;
    float sum[kBlock];
    for (std::int64_t at = begin; at < end; at += kBlock) {
      const std::int64_t n = std::min(kBlock, end - at);
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) sum[i] = static_cast<float>(copies[at + i]);
      for (std::int64_t m = 1; m < members; ++m) {
        const T* from = copies + m * stride + at;
        if (reduction == Reduction::kSum) {
#pragma omp simd
          for (std::int64_t i = 0; i < n; ++i) sum[i] += static_cast<float>(from[i]);
        } else {
#pragma omp simd
          for (std::int64_t i = 0; i < n; ++i)
            sum[i] = std::max(sum[i], static_cast<float>(from[i]));
        }
      }
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) out[at + i] = static_cast<T>(sum[i]);
    }
  });
}

void reduce_copies(const void* copies, std::int64_t members, std::int64_t stride,
                   std::int64_t count, DType dtype, Reduction reduction, void* out) {
  with_float_type(dtype, [&]<class T>(T) {
    reduce_copies(static_cast<const T*>(copies), members, stride, count, reduction,
                  static_cast<T*>(out));
  });
}

bool is_done(MPI_Request& request) {
  int done = 0;
  QT_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
  return done != 0;
}

// One MPI call.
template <class Start>
class SingleCall final : public Transfer {
 public:
  SingleCall(Start start, std::int64_t bytes) : start_(std::move(start)), bytes_(bytes) {}
  void start() override {
    start_(&request_);
    bytes_sent += bytes_;
  }
  bool test() override { return is_done(request_); }

 private:
  Start start_;
  std::int64_t bytes_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};
template <class Start>
std::unique_ptr<Transfer> single_call(Start start, std::int64_t bytes) {
  return std::make_unique<SingleCall<Start>>(std::move(start), bytes);
}

// How `count` elements are cut into one part a member; the last parts may be smaller.
struct Parts {
  Parts(std::int64_t count, std::int64_t members) {
    const std::int64_t part = (count + members - 1) / members;
    for (std::int64_t m = 0; m < members; ++m) {
      const std::int64_t begin = std::min(m * part, count);
      offsets.push_back(narrow(begin));
      counts.push_back(narrow(std::min(part, count - begin)));
    }
  }
  std::vector<int> counts, offsets;
};

// Everybody gets everybody's part of the input, and adds up its own: the first half of an
// all-reduce, or all of a reduce-scatter.
class Exchange {
 public:
  Exchange(MPI_Comm comm, std::int32_t rank, const void* in, const Parts& parts, DType dtype,
           void* scratch)
      : comm_(comm),
        in_(in),
        parts_(parts),
        dtype_(dtype),
        scratch_(scratch),
        mine_(parts.counts[static_cast<std::size_t>(rank)]) {
    const auto members = parts.counts.size();
    recv_counts_.assign(members, narrow(mine_));
    for (std::size_t m = 0; m < members; ++m)
      recv_offsets_.push_back(narrow(static_cast<std::int64_t>(m) * mine_));
    for (std::size_t m = 0; m < members; ++m) {
      if (m != static_cast<std::size_t>(rank)) sent_ += parts.counts[m] * size_of(dtype);
    }
  }
  void start(MPI_Request* request) const {
    const MPI_Datatype type = mpi_type(size_of(dtype_));
    QT_MPI(MPI_Ialltoallv(in_, parts_.counts.data(), parts_.offsets.data(), type, scratch_,
                          recv_counts_.data(), recv_offsets_.data(), type, comm_, request));
  }
  void finish(Reduction reduction, void* out) const {
    reduce_copies(scratch_, static_cast<std::int64_t>(recv_counts_.size()), mine_, mine_, dtype_,
                  reduction, out);
  }
  std::int64_t bytes_sent() const { return sent_; }

 private:
  MPI_Comm comm_;
  const void* in_;
  Parts parts_;
  DType dtype_;
  void* scratch_;
  std::int64_t mine_, sent_ = 0;
  std::vector<int> recv_counts_, recv_offsets_;
};

class ReduceScatter final : public Transfer {
 public:
  ReduceScatter(Exchange exchange, void* part) : exchange_(std::move(exchange)), part_(part) {}
  void start() override {
    exchange_.start(&request_);
    bytes_sent += exchange_.bytes_sent();
  }
  bool test() override {
    if (!is_done(request_)) return false;
    exchange_.finish(Reduction::kSum, part_);
    return true;
  }

 private:
  Exchange exchange_;
  void* part_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

// Small: everybody sends everything to everybody and reduces all of it.
class OneRoundAllReduce final : public Transfer {
 public:
  OneRoundAllReduce(MPI_Comm comm, std::int32_t members, const void* in, void* out,
                    std::int64_t count, DType dtype, Reduction reduction, void* scratch)
      : comm_(comm),
        members_(members),
        in_(in),
        out_(out),
        count_(count),
        dtype_(dtype),
        reduction_(reduction),
        scratch_(scratch) {}
  void start() override {
    const MPI_Datatype type = mpi_type(size_of(dtype_));
    QT_MPI(MPI_Iallgather(in_, narrow(count_), type, scratch_, narrow(count_), type, comm_,
                          &request_));
    bytes_sent += (members_ - 1) * count_ * size_of(dtype_);
  }
  bool test() override {
    if (!is_done(request_)) return false;
    reduce_copies(scratch_, members_, count_, count_, dtype_, reduction_, out_);
    return true;
  }

 private:
  MPI_Comm comm_;
  std::int64_t members_;
  const void* in_;
  void* out_;
  std::int64_t count_;
  DType dtype_;
  Reduction reduction_;
  void* scratch_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

// Everybody sends its part to everybody. Between nodes not by MPI's own all-gather: Open MPI's lets
// large parts go one way after the other, where a network carries both ways at the same time. In
// shared memory that is what is faster.
class Gather {
 public:
  Gather(MPI_Comm comm, std::int32_t rank, bool one_node, Parts parts, std::int64_t element)
      : comm_(comm),
        mine_(static_cast<std::size_t>(rank)),
        one_node_(one_node),
        parts_(std::move(parts)),
        element_(element) {
    const std::size_t members = parts_.counts.size();
    send_counts_.assign(members, parts_.counts[mine_]);
    send_offsets_.assign(members, -parts_.counts[mine_]);
    // A member's own part is never on its way: MPI's buffers must not overlap.
    send_counts_[mine_] = 0;
    bytes_ = parts_.counts[mine_] * element_;
    offset_ = parts_.offsets[mine_] * element_;
    if (!one_node_) parts_.counts[mine_] = 0;
  }
  void start(const void* part, void* whole, MPI_Request* request) const {
    const MPI_Datatype type = mpi_type(element_);
    std::byte* place = static_cast<std::byte*>(whole) + offset_;
    if (one_node_) {
      const bool in_place = part == place;
      QT_MPI(MPI_Iallgatherv(in_place ? MPI_IN_PLACE : part, in_place ? 0 : parts_.counts[mine_],
                             type, whole, parts_.counts.data(), parts_.offsets.data(), type, comm_,
                             request));
      return;
    }
    if (part != place) std::memcpy(place, part, static_cast<std::size_t>(bytes_));
    // The part is told from its end: Open MPI takes two buffers that begin at the same address, as
    // the first member's would, for an exchange in place.
    QT_MPI(MPI_Ialltoallv(place + bytes_, send_counts_.data(), send_offsets_.data(), type, whole,
                          parts_.counts.data(), parts_.offsets.data(), type, comm_, request));
  }
  std::int64_t bytes_sent() const {
    return bytes_ * static_cast<std::int64_t>(parts_.counts.size() - 1);
  }

 private:
  MPI_Comm comm_;
  std::size_t mine_;
  bool one_node_;
  Parts parts_;  // to receive
  std::int64_t element_, bytes_ = 0, offset_ = 0;
  std::vector<int> send_counts_, send_offsets_;
};

class AllGather final : public Transfer {
 public:
  AllGather(Gather gather, const void* part, void* whole)
      : gather_(std::move(gather)), part_(part), whole_(whole) {}
  void start() override {
    gather_.start(part_, whole_, &request_);
    bytes_sent += gather_.bytes_sent();
  }
  bool test() override { return is_done(request_); }

 private:
  Gather gather_;
  const void* part_;
  void* whole_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

// Large: everybody reduces its part, then the parts are gathered.
class TwoRoundAllReduce final : public Transfer {
 public:
  TwoRoundAllReduce(Exchange exchange, Gather gather, void* mine, void* out, Reduction reduction)
      : exchange_(std::move(exchange)),
        gather_(std::move(gather)),
        mine_(mine),
        out_(out),
        reduction_(reduction) {}
  void start() override {
    exchange_.start(&request_);
    gathering_ = false;
    bytes_sent += exchange_.bytes_sent() + gather_.bytes_sent();
  }
  bool test() override {
    if (!is_done(request_)) return false;
    if (gathering_) return true;
    exchange_.finish(reduction_, mine_);
    gather_.start(mine_, out_, &request_);
    gathering_ = true;
    return is_done(request_);
  }

 private:
  Exchange exchange_;
  Gather gather_;
  void *mine_, *out_;
  Reduction reduction_;
  bool gathering_ = false;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class MpiCommunicator final : public Communicator {
 public:
  // Takes ownership of the communicator.
  explicit MpiCommunicator(MPI_Comm comm) : comm_(comm) {
    int value = 0;
    QT_MPI(MPI_Comm_size(comm, &value));
    size_ = value;
    QT_MPI(MPI_Comm_rank(comm, &value));
    rank_ = value;
    MPI_Comm node = MPI_COMM_NULL;
    QT_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node));
    QT_MPI(MPI_Comm_size(node, &value));
    one_node_ = value == size_;
    QT_MPI(MPI_Comm_free(&node));
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;
  ~MpiCommunicator() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0) MPI_Comm_free(&comm_);
  }

  std::int32_t size() const override { return size_; }
  std::int32_t rank() const override { return rank_; }

  std::unique_ptr<Transfer> all_reduce(const void* in, void* out, std::int64_t count, DType dtype,
                                       Reduction reduction, void* scratch) override {
    if (count * size_of(dtype) <= kOneRoundBytes) {
      return std::make_unique<OneRoundAllReduce>(comm_, size_, in, out, count, dtype, reduction,
                                                 scratch);
    }
    const Parts parts(count, size_);
    const std::int64_t element = size_of(dtype);
    return std::make_unique<TwoRoundAllReduce>(
        Exchange(comm_, rank_, in, parts, dtype, scratch),
        Gather(comm_, rank_, one_node_, parts, element),
        static_cast<std::byte*>(out) + parts.offsets[static_cast<std::size_t>(rank_)] * element,
        out, reduction);
  }
  std::unique_ptr<Transfer> all_gather(const void* part, void* whole, std::int64_t bytes) override {
    const std::int64_t element = bytes % 4 == 0 ? 4 : bytes % 2 == 0 ? 2 : 1;
    return std::make_unique<AllGather>(
        Gather(comm_, rank_, one_node_, Parts(bytes / element * size_, size_), element), part,
        whole);
  }
  std::unique_ptr<Transfer> reduce_scatter(const void* whole, void* part, std::int64_t count,
                                           DType dtype, void* scratch) override {
    return std::make_unique<ReduceScatter>(
        Exchange(comm_, rank_, whole, Parts(count * size_, size_), dtype, scratch), part);
  }
  std::unique_ptr<Transfer> broadcast(void* data, std::int64_t bytes, std::int32_t root) override {
    return single_call(
        [comm = comm_, data, count = narrow(bytes), root](MPI_Request* request) {
          QT_MPI(MPI_Ibcast(data, count, MPI_BYTE, root, comm, request));
        },
        rank_ == root ? (size_ - 1) * bytes : 0);
  }
  void all_reduce_now(float* data, std::int64_t count, Reduction reduction,
                      void* scratch) override {
    OneRoundAllReduce all(comm_, size_, data, data, count, DType::kF32, reduction, scratch);
    const double begin = now();
    all.start();
    while (!all.test()) ::sched_yield();  // ranks may outnumber cores
    sent_now.bytes += all.bytes_sent;
    sent_now.seconds += now() - begin;
  }
  std::unique_ptr<Transfer> send(const void* data, std::int64_t bytes, std::int32_t to,
                                 std::int32_t tag) override {
    return single_call(
        [comm = comm_, data, count = narrow(bytes), to, tag](MPI_Request* request) {
          QT_MPI(MPI_Isend(data, count, MPI_BYTE, to, tag, comm, request));
        },
        bytes);
  }
  std::unique_ptr<Transfer> recv(void* data, std::int64_t bytes, std::int32_t from,
                                 std::int32_t tag) override {
    return single_call(
        [comm = comm_, data, count = narrow(bytes), from, tag](MPI_Request* request) {
          QT_MPI(MPI_Irecv(data, count, MPI_BYTE, from, tag, comm, request));
        },
        0);
  }

 private:
  MPI_Comm comm_;
  std::int32_t size_ = 1, rank_ = 0;
  bool one_node_ = true;
};

// Calls send(first byte, count) for messages that MPI can count.
template <class Send>
void in_messages(std::int64_t bytes, const Send& send) {
  constexpr std::int64_t kMessage = std::int64_t{1} << 30;
  for (std::int64_t at = 0; at < bytes; at += kMessage)
    send(at, narrow(std::min(kMessage, bytes - at)));
}

class MpiWorld final : public World {
 public:
  explicit MpiWorld(MPI_Comm comm) : comm_(comm) {
    int value = 0;
    QT_MPI(MPI_Comm_size(comm, &value));
    size_ = value;
    QT_MPI(MPI_Comm_rank(comm, &value));
    rank_ = value;
  }

  std::int32_t size() const override { return size_; }
  std::int32_t rank() const override { return rank_; }
  MPI_Comm comm() const { return comm_; }

  std::unique_ptr<Communicator> group(const std::vector<std::int32_t>& ranks,
                                      std::int32_t key) override {
    MPI_Group all = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
    QT_MPI(MPI_Comm_group(comm_, &all));
    QT_MPI(MPI_Group_incl(all, narrow(static_cast<std::int64_t>(ranks.size())), ranks.data(),
                          &members));
    MPI_Comm comm = MPI_COMM_NULL;
    QT_MPI(MPI_Comm_create_group(comm_, members, key, &comm));
    MPI_Group_free(&members);
    MPI_Group_free(&all);
    return std::make_unique<MpiCommunicator>(comm);
  }
  std::int64_t minimum(std::int64_t value) override {
    std::int64_t result = 0;
    QT_MPI(MPI_Allreduce(&value, &result, 1, MPI_INT64_T, MPI_MIN, comm_));
    return result;
  }
  std::vector<std::string> gather(const std::string& text) override {
    const auto length = static_cast<std::int64_t>(text.size());
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(size_));
    QT_MPI(MPI_Gather(&length, 1, MPI_INT64_T, lengths.data(), 1, MPI_INT64_T, 0, comm_));
    std::vector<std::string> texts;
    if (rank_ != 0) {
      in_messages(length, [&](std::int64_t at, int count) {
        QT_MPI(MPI_Send(text.data() + at, count, MPI_CHAR, 0, kGatherTag, comm_));
      });
      return texts;
    }
    for (std::int32_t r = 0; r < size_; ++r) {
      texts.emplace_back(r == 0 ? text : std::string());
      if (r == 0) continue;
      const std::int64_t bytes = lengths[static_cast<std::size_t>(r)];
      texts.back().resize(static_cast<std::size_t>(bytes));
      in_messages(bytes, [&](std::int64_t at, int count) {
        QT_MPI(MPI_Recv(texts.back().data() + at, count, MPI_CHAR, r, kGatherTag, comm_,
                        MPI_STATUS_IGNORE));
      });
    }
    return texts;
  }
  std::string broadcast(const std::string& text) override {
    auto length = static_cast<std::int64_t>(text.size());
    QT_MPI(MPI_Bcast(&length, 1, MPI_INT64_T, 0, comm_));
    std::string all = text;
    all.resize(static_cast<std::size_t>(length));
    in_messages(length, [&](std::int64_t at, int count) {
      QT_MPI(MPI_Bcast(all.data() + at, count, MPI_CHAR, 0, comm_));
    });
    return all;
  }
  void barrier() override { QT_MPI(MPI_Barrier(comm_)); }

 private:
  static constexpr int kGatherTag = 1;
  MPI_Comm comm_;
  std::int32_t size_ = 1, rank_ = 0;
};

int number_in_environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

// The ranks that SLURM started together with this one; 0 where it started none. A batch script, in
// which a process is one of its own, has the job's number of tasks in its environment, too.
int slurm_tasks() {
  if (std::getenv("SLURM_PROCID") == nullptr) return 0;
  if (std::getenv("SLURM_STEP_NUM_TASKS") != nullptr)
    return number_in_environment("SLURM_STEP_NUM_TASKS");
  const bool batch_script =
      std::getenv("SLURM_JOB_ID") != nullptr && std::getenv("SLURM_STEP_ID") == nullptr;
  return batch_script ? 0 : number_in_environment("SLURM_NTASKS");
}

// Launchers tell the number of ranks in the environment; without one this process is alone, and MPI
// stays out of it.
bool started_by_a_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return slurm_tasks() > 1;
}

}  // namespace

Result<std::unique_ptr<World>> join_world() {
  if (!started_by_a_launcher()) return make_single_world();
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    int provided = 0;
    QT_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided));
    // Failures are ours to report; communicators made from this one inherit that.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    std::atexit([] {
      int finalized = 0;
      MPI_Finalized(&finalized);
      if (finalized == 0) MPI_Finalize();
    });
  }
  auto world = std::make_unique<MpiWorld>(MPI_COMM_WORLD);
  const int told = std::max({number_in_environment("OMPI_COMM_WORLD_SIZE"),
                             number_in_environment("PMI_SIZE"), slurm_tasks()});
  if (world->size() == 1 && told > 1) {
    return usage_error(
        "this process is one of {} that were started together, and MPI finds it alone: the "
        "launcher "
        "and this program's MPI do not know each other. Under SLURM use srun --mpi=pmix (srun "
        "--mpi=list names what there is), or mpirun",
        told);
  }
  return std::unique_ptr<World>(std::move(world));
}

std::int32_t launcher_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(name); rank != nullptr) return std::atoi(rank);
  }
  return 0;
}

int share_of_cores() {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return omp_get_max_threads();
  const int all = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  cpu_set_t bound;
  CPU_ZERO(&bound);
  if (::sched_getaffinity(0, sizeof bound, &bound) == 0 && CPU_COUNT(&bound) < all)
    return CPU_COUNT(&bound);
  for (const char* name :
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_TASKS_PER_NODE"}) {
    if (const char* ranks = std::getenv(name); ranks != nullptr)
      return std::max(1, all / std::max(1, std::atoi(ranks)));
  }
  return all;
}

std::unique_ptr<World> make_subworld(World& world, std::int32_t size) {
  auto* mpi = dynamic_cast<MpiWorld*>(&world);
  if (mpi == nullptr) return size >= 1 ? make_single_world() : nullptr;
  MPI_Comm comm = MPI_COMM_NULL;
  QT_MPI(MPI_Comm_split(mpi->comm(), mpi->rank() < size ? 0 : MPI_UNDEFINED, mpi->rank(), &comm));
  if (comm == MPI_COMM_NULL) return nullptr;
  if (size == 1) {
    MPI_Comm_free(&comm);
    return make_single_world();
  }
  return std::make_unique<MpiWorld>(comm);
}

}  // namespace quintet
