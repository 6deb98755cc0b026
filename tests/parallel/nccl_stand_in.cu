// A stand-in for NCCL where several ranks share one GPU, which NCCL itself refuses: the same
// functions, so that the very code which talks between GPUs, captured graphs included, can run
// where there is only one. And a stricter one. It finds, and reports as an asynchronous error, what
// NCCL would hang on or let pass:
//
// - members that call different things, or the same in another order;
// - a member that does not come;
// - two calls of one communicator at the same time;
// - a buffer that is written while a call has it. Who reads an output too early reads NaN.
//
// Each member has a board in its device memory that the others open by CUDA IPC. A call is one
// kernel: every block copies its share of the input to its board, piece by piece, meets the same
// block of the other members, and takes from their boards what it needs. Counts of meetings are
// kept on the device, so that a captured call can be replayed. Sums go round the members as a ring
// of NCCL's does, beginning behind the one that owns the result and rounded at every hop.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include <cuda/atomic>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr int kMostMembers = 8, kBlocks = 8, kThreads = 512;
constexpr std::uint64_t kPieceBytes = 1 << 20;    // of a block's share, on the board at a time
constexpr std::uint64_t kSmallBytes = 64 * 1024;  // up to here one block is enough

enum class Kind : std::uint32_t { kAllReduce, kAllGather, kReduceScatter, kSend, kRecv };
const char* const kKindNames[] = {"all_reduce", "all_gather", "reduce_scatter", "send", "recv"};

// What members have to agree on.
struct Call {
  Kind kind;
  std::uint32_t type, reduction;
  std::int32_t peer;  // of a message
  std::uint64_t count;
};

struct Board {
  // By the other member and block: how often we have come to meet it, how often it has come, and
  // its calls at the last two meetings.
  std::uint64_t met[kMostMembers][kBlocks];
  std::uint64_t arrived[kMostMembers][kBlocks];
  Call posted[2][kMostMembers][kBlocks];
  std::uint32_t failed;  // here or at another member
  std::uint32_t reported;
  std::uint64_t active;  // the call that is running; 0: none
  std::uint32_t blocks_done;
  alignas(16) std::byte pieces[kBlocks][2][kPieceBytes];
};

enum class Reason : int { kNone, kDiffer, kAbsent, kTwoAtOnce, kInputWritten, kOutputWritten };

// In host memory, written by the device.
struct Report {
  Reason reason;
  int member;
  Call mine, theirs;
};

struct Members {
  int rank, size;
  Board* boards[kMostMembers];
  Report* report;
  volatile int* aborted;
  std::uint64_t patience_ns;
};

__host__ __device__ std::uint64_t bytes_of(std::uint32_t type) {
  return type == ncclFloat32 ? 4 : type == ncclBfloat16 ? 2 : 1;
}

__device__ std::uint64_t now_ns() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__device__ void fail(const Members& m, Reason reason, int member, const Call& mine,
                     const Call& theirs) {
  Board& own = *m.boards[m.rank];
  if (atomicExch(&own.reported, 1u) == 0) {
    m.report->member = member;
    m.report->mine = mine;
    m.report->theirs = theirs;
    __threadfence_system();
    *const_cast<volatile Reason*>(&m.report->reason) = reason;
  }
  for (int i = 0; i < m.size; ++i) *const_cast<volatile std::uint32_t*>(&m.boards[i]->failed) = 1;
  __threadfence_system();
}

__device__ bool agree(const Call& mine, const Call& theirs, int me, int them) {
  if (mine.count != theirs.count || mine.type != theirs.type) return false;
  if (mine.kind == Kind::kSend || mine.kind == Kind::kRecv) {
    return theirs.kind == (mine.kind == Kind::kSend ? Kind::kRecv : Kind::kSend) &&
           mine.peer == them && theirs.peer == me;
  }
  return mine.kind == theirs.kind && mine.reduction == theirs.reduction;
}

// Waits for the same block of the other members of a call, and holds its call against theirs; what
// they put on their boards before can then be read. False: the call has failed. By all threads.
__device__ bool meet(const Members& m, const Call& call) {
  __threadfence_system();
  __syncthreads();
  const int them = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  bool good = true;
  if (them < m.size && them != m.rank && (call.peer < 0 || call.peer == them)) {
    Board& own = *m.boards[m.rank];
    Board& other = *m.boards[them];
    const std::uint64_t turn = ++own.met[them][block];
    other.posted[turn & 1][m.rank][block] = call;
    using Flag = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>;
    Flag(other.arrived[m.rank][block]).store(turn, cuda::std::memory_order_release);
    const std::uint64_t begin = now_ns();
    while (Flag(own.arrived[them][block]).load(cuda::std::memory_order_acquire) < turn) {
      if (*const_cast<volatile std::uint32_t*>(&own.failed) != 0 || *m.aborted != 0) {
        good = false;
        break;
      }
      if (now_ns() - begin > m.patience_ns) {
        fail(m, Reason::kAbsent, them, call, call);
        good = false;
        break;
      }
      __nanosleep(500);
    }
    const Call& theirs = own.posted[turn & 1][them][block];
    if (good && !agree(call, theirs, m.rank, them)) {
      fail(m, Reason::kDiffer, them, call, theirs);
      good = false;
    }
  }
  return __syncthreads_and(good) != 0;
}

// By all threads of a block. Boards are read past the first-level cache: they change meanwhile.
__device__ void copy_bytes(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const auto misalignment =
      reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes;
  if (misalignment % 16 == 0) {
    for (std::uint64_t i = threadIdx.x; i < bytes / 16; i += kThreads)
      reinterpret_cast<uint4*>(to)[i] = __ldcg(reinterpret_cast<const uint4*>(from) + i);
  } else {
    for (std::uint64_t i = threadIdx.x; i < bytes; i += kThreads)
      to[i] = static_cast<std::byte>(__ldcg(reinterpret_cast<const unsigned char*>(from) + i));
  }
}
__device__ void poison(std::byte* to, std::uint64_t bytes) {
  for (std::uint64_t i = threadIdx.x; i < bytes; i += kThreads) to[i] = std::byte{0xff};
}
// The same bytes give the same number, whoever reads which of them.
__device__ void add_to_sum(unsigned long long& sum, const std::byte* from, std::uint64_t bytes) {
  for (std::uint64_t i = threadIdx.x; i < bytes; i += kThreads) {
    const auto value = __ldcg(reinterpret_cast<const unsigned char*>(from) + i);
    sum += (static_cast<unsigned long long>(value) + 1) * (2 * i + 0x9e3779b97f4a7c15ull);
  }
}

template <class T>
__device__ T combine(T a, T b, std::uint32_t reduction) {
  const float x = static_cast<float>(a), y = static_cast<float>(b);
  return static_cast<T>(reduction == ncclMax ? fmaxf(x, y) : x + y);
}
// Element `at` of the pieces, over all members, beginning behind `owner`.
template <class T>
__device__ T reduced(const Members& m, int slot, std::uint64_t at, int owner,
                     std::uint32_t reduction) {
  T sum{};
  for (int hop = 1; hop <= m.size; ++hop) {
    const int member = (owner + hop) % m.size;
    const T value =
        __ldcg(reinterpret_cast<const T*>(m.boards[member]->pieces[blockIdx.x][slot]) + at);
    sum = hop == 1 ? value : combine(sum, value, reduction);
  }
  return sum;
}

// The bytes of a block's share: of every part, where a buffer has one for each member.
struct Share {
  std::uint64_t begin, end;
};
__device__ Share share_of(std::uint64_t bytes) {
  const std::uint64_t each = ((bytes + gridDim.x - 1) / gridDim.x + 15) / 16 * 16;
  const auto least = [&](std::uint64_t at) { return at < bytes ? at : bytes; };
  return {least(blockIdx.x * each), least((blockIdx.x + 1) * each)};
}

struct Buffers {
  const std::byte* in;
  std::byte* out;
  int in_parts, out_parts;  // each of the call's count
  bool overlap;
};

// Moves this block's share; false when the call has failed.
template <class T>
__device__ bool transfer(const Members& m, const Call& call, const Buffers& b) {
  const std::uint64_t part = call.count * sizeof(T);
  const Share share = share_of(part);
  const std::uint64_t most = kPieceBytes / (b.in_parts > 1 ? m.size : 1) / 16 * 16;
  int slot = 0;
  for (std::uint64_t begin = share.begin; begin < share.end; begin += most, slot ^= 1) {
    const std::uint64_t bytes = share.end - begin < most ? share.end - begin : most;
    std::byte* const board = m.boards[m.rank]->pieces[blockIdx.x][slot];
    for (int p = 0; p < b.in_parts; ++p)
      copy_bytes(board + p * most, b.in + p * part + begin, bytes);
    if (!meet(m, call)) return false;
    const auto from = [&](int member) { return m.boards[member]->pieces[blockIdx.x][slot]; };
    T* const out = reinterpret_cast<T*>(b.out + begin);
    if (call.kind == Kind::kAllReduce) {
      for (std::uint64_t i = threadIdx.x; i < bytes / sizeof(T); i += kThreads) {
        const auto owner = static_cast<int>((begin / sizeof(T) + i) * m.size / call.count);
        out[i] = reduced<T>(m, slot, i, owner, call.reduction);
      }
    } else if (call.kind == Kind::kReduceScatter) {
      for (std::uint64_t i = threadIdx.x; i < bytes / sizeof(T); i += kThreads)
        out[i] = reduced<T>(m, slot, m.rank * most / sizeof(T) + i, m.rank, call.reduction);
    } else if (call.kind == Kind::kAllGather) {
      for (int p = 0; p < m.size; ++p) copy_bytes(b.out + p * part + begin, from(p), bytes);
    } else if (call.kind == Kind::kRecv) {
      copy_bytes(b.out + begin, from(call.peer), bytes);
    }
  }
  return true;
}

__device__ unsigned long long block_sum(unsigned long long value) {
  __shared__ unsigned long long total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  atomicAdd(&total, value);
  __syncthreads();
  const unsigned long long sum = total;
  __syncthreads();
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    exchange(Members m, Call call, Buffers b, std::uint64_t number) {
  Board& own = *m.boards[m.rank];
  if (threadIdx.x == 0) {
    const auto before = atomicCAS(reinterpret_cast<unsigned long long*>(&own.active), 0ull, number);
    if (before != 0 && before != number) fail(m, Reason::kTwoAtOnce, m.rank, call, call);
  }
  __syncthreads();
  if (*const_cast<volatile std::uint32_t*>(&own.failed) == 0) {
    const std::uint64_t part = call.count * bytes_of(call.type);
    const Share share = share_of(part);
    const auto sum_of = [&](const std::byte* data, int parts) {
      unsigned long long sum = 0;
      for (int p = 0; p < parts; ++p)
        add_to_sum(sum, data + p * part + share.begin, share.end - share.begin);
      return block_sum(sum);
    };
    const unsigned long long given = sum_of(b.in, b.in_parts);
    if (!b.overlap) {
      for (int p = 0; p < b.out_parts; ++p)
        poison(b.out + p * part + share.begin, share.end - share.begin);
      __syncthreads();
    }
    const bool moved = call.type == ncclFloat32    ? transfer<float>(m, call, b)
                       : call.type == ncclBfloat16 ? transfer<__nv_bfloat16>(m, call, b)
                                                   : transfer<signed char>(m, call, b);
    __syncthreads();
    const unsigned long long result = sum_of(b.out, b.out_parts);
    // Nobody leaves before everybody has taken what it needs.
    if (moved && meet(m, call)) {
      const bool kept = b.overlap || sum_of(b.in, b.in_parts) == given;
      if (!kept && threadIdx.x == 0) fail(m, Reason::kInputWritten, m.rank, call, call);
      const bool stands = sum_of(b.out, b.out_parts) == result;
      if (!stands && threadIdx.x == 0) fail(m, Reason::kOutputWritten, m.rank, call, call);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    if (atomicAdd(&own.blocks_done, 1u) == gridDim.x - 1) {
      own.blocks_done = 0;
      __threadfence();
      atomicExch(reinterpret_cast<unsigned long long*>(&own.active), 0ull);
    }
  }
}

// How members of a communicator find each other, in shared memory of the host.
struct Lobby {
  std::atomic<int> joined, opened, closed;
  cudaIpcMemHandle_t boards[kMostMembers];
};

bool wait_for(const std::atomic<int>& count, int all) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (count.load() < all) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

std::uint64_t patience_ns() {
  const char* seconds = std::getenv("QUINTET_STAND_IN_PATIENCE");
  return static_cast<std::uint64_t>((seconds == nullptr ? 60.0 : std::atof(seconds)) * 1e9);
}

thread_local std::string last_error;

ncclResult_t refuse(ncclResult_t result, std::string why) {
  last_error = std::move(why);
  return result;
}

std::string describe(const Call& call) {
  std::string text = kKindNames[static_cast<int>(call.kind)];
  text += " of " + std::to_string(call.count) + " of type " + std::to_string(call.type);
  if (call.peer >= 0) text += " with member " + std::to_string(call.peer);
  return text;
}

}  // namespace

struct ncclComm {
  Members members{};
  Lobby* lobby = nullptr;
  int* aborted = nullptr;
  std::uint64_t calls = 0;
  bool said = false;
};

namespace {

ncclResult_t state_of(ncclComm& comm) {
  const Report& report = *comm.members.report;
  const Reason reason = *const_cast<const volatile Reason*>(&report.reason);
  if (reason == Reason::kNone) return ncclSuccess;
  const std::string member = "member " + std::to_string(report.member);
  const std::string mine = describe(report.mine);
  switch (reason) {
    case Reason::kDiffer:
      last_error = mine + " here, " + describe(report.theirs) + " on " + member;
      break;
    case Reason::kAbsent:
      last_error = member + " did not come to " + mine;
      break;
    case Reason::kTwoAtOnce:
      last_error = mine + " while another call is under way";
      break;
    case Reason::kInputWritten:
      last_error = mine + ": its input was written meanwhile";
      break;
    default:
      last_error = mine + ": its output was written meanwhile";
      break;
  }
  if (!comm.said) std::fprintf(stderr, "NCCL stand-in: %s\n", last_error.c_str());
  comm.said = true;
  return reason == Reason::kAbsent ? ncclRemoteError : ncclInvalidUsage;
}

ncclResult_t enqueue(const void* in, void* out, Call call, int in_parts, int out_parts,
                     ncclComm_t comm, cudaStream_t stream) {
  if (comm == nullptr) return refuse(ncclInvalidArgument, "no communicator");
  if (const ncclResult_t state = state_of(*comm); state != ncclSuccess) return state;
  if (call.type != ncclFloat32 && call.type != ncclBfloat16 && call.type != ncclInt8)
    return refuse(ncclInvalidArgument, "the stand-in does not know this type");
  if (call.reduction != ncclSum && call.reduction != ncclMax)
    return refuse(ncclInvalidArgument, "the stand-in does not know this reduction");
  const std::uint64_t bytes = call.count * bytes_of(call.type);
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(out);
  const bool overlap = in_parts > 0 && out_parts > 0 && from < to + out_parts * bytes &&
                       to < from + in_parts * bytes;
  const int blocks = bytes <= kSmallBytes ? 1 : kBlocks;
  exchange<<<blocks, kThreads, 0, stream>>>(
      comm->members, call, Buffers{from, to, in_parts, out_parts, overlap}, ++comm->calls);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? ncclSuccess
                              : refuse(ncclUnhandledCudaError, cudaGetErrorString(error));
}

}  // namespace

extern "C" {

// Says to quintet that ranks may share a GPU.
int quintetStandInSharesDevices() {
  return 1;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote error";
    case ncclSystemError:
      return "system error";
    default:
      return "CUDA error";
  }
}
const char* ncclGetLastError(ncclComm_t) {
  return last_error.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made{0};
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "/quintet-nccl-%ld-%d",
                static_cast<long>(::getpid()), made++);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* out, int size, ncclUniqueId id, int rank) {
  if (size < 1 || size > kMostMembers || rank < 0 || rank >= size)
    return refuse(ncclInvalidArgument, "the stand-in takes up to eight members");
  const int file = ::shm_open(id.internal, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ::ftruncate(file, sizeof(Lobby)) != 0)
    return refuse(ncclSystemError, std::string("shm_open: ") + std::strerror(errno));
  void* const mapped = ::mmap(nullptr, sizeof(Lobby), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (mapped == MAP_FAILED) return refuse(ncclSystemError, "mmap");
  auto* comm = new ncclComm;
  comm->lobby = static_cast<Lobby*>(mapped);
  Members& m = comm->members;
  m.rank = rank;
  m.size = size;
  m.patience_ns = patience_ns();
  cudaError_t error = cudaSuccess;
  const auto good = [&](cudaError_t now) { return (error = now) == cudaSuccess; };
  const bool made = good(cudaHostAlloc(reinterpret_cast<void**>(&m.report), sizeof(Report),
                                       cudaHostAllocMapped)) &&
                    good(cudaHostAlloc(reinterpret_cast<void**>(&comm->aborted), sizeof(int),
                                       cudaHostAllocMapped)) &&
                    good(cudaMalloc(reinterpret_cast<void**>(&m.boards[rank]), sizeof(Board))) &&
                    good(cudaMemset(m.boards[rank], 0, sizeof(Board))) &&
                    good(cudaDeviceSynchronize()) &&
                    good(cudaIpcGetMemHandle(&comm->lobby->boards[rank], m.boards[rank]));
  if (!made) return refuse(ncclUnhandledCudaError, cudaGetErrorString(error));
  std::memset(m.report, 0, sizeof(Report));
  *comm->aborted = 0;
  m.aborted = comm->aborted;
  ++comm->lobby->joined;
  if (!wait_for(comm->lobby->joined, size)) return refuse(ncclSystemError, "a member did not join");
  for (int i = 0; i < size; ++i) {
    if (i == rank) continue;
    if (!good(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&m.boards[i]), comm->lobby->boards[i],
                                   cudaIpcMemLazyEnablePeerAccess)))
      return refuse(ncclUnhandledCudaError, cudaGetErrorString(error));
  }
  ++comm->lobby->opened;
  if (!wait_for(comm->lobby->opened, size)) return refuse(ncclSystemError, "a member did not join");
  if (rank == 0) ::shm_unlink(id.internal);
  *out = comm;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = state_of(*comm);
  return ncclSuccess;
}

// Memory that another process has open is freed when that process has closed it.
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  cudaDeviceSynchronize();
  Members& m = comm->members;
  for (int i = 0; i < m.size; ++i)
    if (i != m.rank) cudaIpcCloseMemHandle(m.boards[i]);
  ++comm->lobby->closed;
  const bool closed = wait_for(comm->lobby->closed, m.size);
  cudaFree(m.boards[m.rank]);
  cudaFreeHost(m.report);
  cudaFreeHost(comm->aborted);
  ::munmap(comm->lobby, sizeof(Lobby));
  delete comm;
  return closed ? ncclSuccess : refuse(ncclRemoteError, "a member did not leave");
}

// What is running ends. The boards stay: others may still look at them.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  *const_cast<volatile int*>(comm->aborted) = 1;
  ++comm->lobby->closed;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const auto reduction = static_cast<std::uint32_t>(op);
  return enqueue(in, out,
                 {Kind::kAllReduce, static_cast<std::uint32_t>(type), reduction, -1, count}, 1, 1,
                 comm, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return enqueue(in, out, {Kind::kAllGather, static_cast<std::uint32_t>(type), 0, -1, count}, 1,
                 comm->members.size, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const auto reduction = static_cast<std::uint32_t>(op);
  return enqueue(in, out,
                 {Kind::kReduceScatter, static_cast<std::uint32_t>(type), reduction, -1, count},
                 comm->members.size, 1, comm, stream);
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return enqueue(in, nullptr, {Kind::kSend, static_cast<std::uint32_t>(type), 0, peer, count}, 1, 0,
                 comm, stream);
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return enqueue(nullptr, out, {Kind::kRecv, static_cast<std::uint32_t>(type), 0, peer, count}, 0,
                 1, comm, stream);
}

}  // extern "C"
