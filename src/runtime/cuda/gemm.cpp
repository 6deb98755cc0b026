#include "runtime/cuda/gemm.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "program/ops/matmul.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/cublas_library.h"
#include "runtime/cuda/scratch.h"

namespace quintet::cuda {
namespace {

// Products smaller than this are not worth measuring: launch latency is all there is to see.
constexpr double kWorthMeasuring = 1e9;
constexpr int kCandidates = 24;

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kE4M3:
      return CUDA_R_8F_E4M3;
    case DType::kE5M2:
      return CUDA_R_8F_E5M2;
    default:
      QT_CHECK(false, "products of {}", name_of(dtype));
  }
}

// What the library may assume of an address.
std::uint32_t alignment_of(const void* address, DType dtype) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0
             ? 16u
             : static_cast<std::uint32_t>(size_of(dtype));
}

cublasLtMatrixLayout_t make_layout(DType dtype, std::int64_t rows, std::int64_t cols,
                                   std::int64_t ld) {
  cublasLtMatrixLayout_t layout = nullptr;
  QT_CUBLAS(cublas_library().layout_create(&layout, type_of(dtype),
                                           static_cast<std::uint64_t>(rows),
                                           static_cast<std::uint64_t>(cols), ld));
  return layout;
}

class Timer {
 public:
  Timer() {
    QT_CUDA(cudaEventCreate(&begin_));
    QT_CUDA(cudaEventCreate(&end_));
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  template <class Body>
  double seconds(cudaStream_t stream, int repetitions, const Body& body) {
    QT_CUDA(cudaEventRecord(begin_, stream));
    for (int i = 0; i < repetitions; ++i) body();
    QT_CUDA(cudaEventRecord(end_, stream));
    QT_CUDA(cudaEventSynchronize(end_));
    float milliseconds = 0;
    QT_CUDA(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return static_cast<double>(milliseconds) * 1e-3 / repetitions;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace

// The library's matrices are column-major, so we have it compute C^T = op(B)^T op(A)^T: its first
// operand is our B, and what is stored row-major is to it the transpose.
struct Gemm::Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool plain = false;  // the library has nothing for this shape

  explicit Plan(const Product& p) {
    QT_CUBLAS(cublas_library().desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t op_first = p.tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_second = p.ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    QT_CUBLAS(
        cublas_library().desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_first, sizeof op_first));
    QT_CUBLAS(
        cublas_library().desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_second, sizeof op_second));
    first = p.tb ? make_layout(p.b, p.k, p.n, p.ldb) : make_layout(p.b, p.n, p.k, p.ldb);
    second = p.ta ? make_layout(p.a, p.m, p.k, p.lda) : make_layout(p.a, p.k, p.m, p.lda);
    result = make_layout(p.out, p.n, p.m, p.ldc);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    for (cublasLtMatrixLayout_t layout : {first, second, result})
      if (layout != nullptr) cublas_library().layout_destroy(layout);
    if (desc != nullptr) cublas_library().desc_destroy(desc);
  }
};

Gemm::Gemm(std::string device, std::string cache_file)
    : device_(std::move(device)), cache_file_(std::move(cache_file)) {
  QT_CUBLAS(cublas_library().create(&handle_));
  std::ifstream file(cache_file_);
  cached_ = read_choices(file);
}

Gemm::~Gemm() {
  plans_.clear();
  cublas_library().destroy(handle_);
}

void Gemm::launch(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Operands& o,
                  cudaStream_t stream) {
  if (o.unit_a != nullptr) {
    QT_CUBLAS(cublas_library().desc_set(plan.desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &o.unit_b,
                                        sizeof o.unit_b));
    QT_CUBLAS(cublas_library().desc_set(plan.desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &o.unit_a,
                                        sizeof o.unit_a));
  }
  const float beta = o.addend == nullptr ? 0.0f : 1.0f;
  const void* addend = o.addend == nullptr ? o.c : o.addend;
  QT_CUBLAS(cublas_library().matmul(handle_, plan.desc, &o.alpha, o.b, plan.first, o.a, plan.second,
                                    &beta, addend, plan.result, o.c, plan.result, &algorithm,
                                    o.workspace, static_cast<std::size_t>(matmul::kDeviceWorkspace),
                                    stream));
}

void Gemm::run(const Product& product, const Operands& operands, cudaStream_t stream) {
  if (product.m == 0 || product.n == 0) return;
  const Plan& plan = plan_for(product, operands, stream);
  if (plan.plain) {
    plain_product(product, operands, stream);
  } else {
    launch(plan, plan.algorithm, operands, stream);
  }
}

Gemm::Plan& Gemm::plan_for(const Product& p, const Operands& o, cudaStream_t stream) {
  const std::string operands =
      p.a == p.b ? std::string(name_of(p.a)) : fmt::format("{}+{}", name_of(p.a), name_of(p.b));
  const std::string key =
      fmt::format("{}{}:{}x{}x{}:{}-{}:{},{},{}:{}{}:{},{},{},{}", p.ta ? 't' : 'n',
                  p.tb ? 't' : 'n', p.m, p.n, p.k, operands, name_of(p.out), p.lda, p.ldb, p.ldc,
                  o.addend == nullptr ? 0 : 1, o.addend == o.c ? 1 : 0, alignment_of(o.a, p.a),
                  alignment_of(o.b, p.b), alignment_of(o.addend, p.out), alignment_of(o.c, p.out));
  auto& plan = plans_[key];
  if (plan == nullptr) {
    plan = std::make_unique<Plan>(p);
    choose(*plan, key, p, o, stream);
  }
  return *plan;
}

void Gemm::choose(Plan& plan, const std::string& key, const Product& p, const Operands& o,
                  cudaStream_t stream) {
  // 1. What was best the last time, if this library still accepts it.
  if (const auto known = cached_.find(key); known != cached_.end()) {
    cublasLtMatmulHeuristicResult_t check{};
    if (cublas_library().check(handle_, plan.desc, plan.first, plan.second, plan.result,
                               plan.result, &known->second, &check) == CUBLAS_STATUS_SUCCESS &&
        check.workspaceSize <= static_cast<std::size_t>(matmul::kDeviceWorkspace)) {
      plan.algorithm = known->second;
      measured_ += line_of(key, plan.algorithm, 0);
      return;
    }
  }
  // 2. The library's suggestions. Split sums only where they are added up in a fixed order, in
  //    float32, in the workspace.
  cublasLtMatmulPreference_t preference = nullptr;
  QT_CUBLAS(cublas_library().preference_create(&preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    QT_CUBLAS(cublas_library().preference_set(preference, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<std::uint64_t>(matmul::kDeviceWorkspace));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(o.b, p.b));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(o.a, p.a));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      alignment_of(o.addend == nullptr ? o.c : o.addend, p.out));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(o.c, p.out));
  std::vector<cublasLtMatmulHeuristicResult_t> found(kCandidates);
  int count = 0;
  const cublasStatus_t status =
      cublas_library().suggest(handle_, plan.desc, plan.first, plan.second, plan.result,
                               plan.result, preference, kCandidates, found.data(), &count);
  cublas_library().preference_destroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
    QT_CHECK(!is_fp8(p.a), "cuBLASLt {} has no product for {}", cublas_library().version(), key);
    plan.plain = true;
    return;
  }
  plan.algorithm = found.front().algo;
  const double flops =
      2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  if (!tuning_ || flops < kWorthMeasuring) return;

  // 3. Measure them. Random operands: on zeros the device draws less power and runs faster.
  fill_random(const_cast<void*>(o.a), (p.ta ? p.k : p.m) * p.lda, p.a, 1, stream);
  fill_random(const_cast<void*>(o.b), (p.tb ? p.n : p.k) * p.ldb, p.b, 2, stream);
  Timer timer;
  const int repetitions = std::clamp(static_cast<int>(2e12 / flops), 1, 20);
  double best = 1e30;
  for (int i = 0; i < count; ++i) {
    const auto& candidate = found[static_cast<std::size_t>(i)];
    if (candidate.state != CUBLAS_STATUS_SUCCESS) continue;
    const auto once = [&] { launch(plan, candidate.algo, o, stream); };
    timer.seconds(stream, 1, once);  // warm
    double seconds = timer.seconds(stream, repetitions, once);
    if (seconds < best * 1.05)
      seconds = std::min(seconds, timer.seconds(stream, repetitions, once));
    if (seconds < best) {
      best = seconds;
      plan.algorithm = candidate.algo;
    }
  }
  share(key, plan, best);
  measured_ += line_of(key, plan.algorithm, best);
}

double Gemm::time(const Product& p, const Operands& o, cudaStream_t stream) {
  fill_random(const_cast<void*>(o.a), (p.ta ? p.k : p.m) * p.lda, p.a, 1, stream);
  fill_random(const_cast<void*>(o.b), (p.tb ? p.n : p.k) * p.ldb, p.b, 2, stream);
  const bool tuning = tuning_;
  tuning_ = true;
  run(p, o, stream);
  tuning_ = tuning;
  Timer timer;
  double best = 1e30;
  for (int i = 0; i < 3; ++i)
    best = std::min(best, timer.seconds(stream, 5, [&] { run(p, o, stream); }));
  return best;
}

// A line: device, library version, shape, the algorithm's bytes in hex, seconds. The first line for
// a shape holds.
std::string Gemm::line_of(const std::string& key, const cublasLtMatmulAlgo_t& algorithm,
                          double seconds) const {
  std::string hex;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&algorithm);
  for (std::size_t i = 0; i < sizeof algorithm; ++i) hex += fmt::format("{:02x}", bytes[i]);
  return fmt::format("{} {} {} {} {:.3e}\n", device_, cublas_library().version(), key, hex,
                     seconds);
}

std::map<std::string, cublasLtMatmulAlgo_t> Gemm::read_choices(std::istream& lines) const {
  std::map<std::string, cublasLtMatmulAlgo_t> choices;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string device, key, hex;
    std::size_t version = 0;
    if (!(words >> device >> version >> key >> hex)) continue;
    cublasLtMatmulAlgo_t algorithm{};
    if (device != device_ || version != cublas_library().version() ||
        hex.size() != 2 * sizeof algorithm)
      continue;
    auto* bytes = reinterpret_cast<unsigned char*>(&algorithm);
    for (std::size_t i = 0; i < sizeof algorithm; ++i) {
      bytes[i] =
          static_cast<unsigned char>(std::strtoul(hex.substr(2 * i, 2).c_str(), nullptr, 16));
    }
    choices.emplace(key, algorithm);
  }
  return choices;
}

// Into the file, if nobody was faster: then the plan gets what is there.
void Gemm::share(const std::string& key, Plan& plan, double seconds) {
  if (cache_file_.empty()) return;
  // A cache that cannot be written costs time, nothing else.
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(cache_file_).parent_path(), ignored);
  const int file = ::open(cache_file_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  // Others of this machine measure the same shapes at the same time: whoever was first is right.
  if (::flock(file, LOCK_EX) == 0) {
    std::ifstream now(cache_file_);
    const auto choices = read_choices(now);
    if (const auto first = choices.find(key); first != choices.end()) {
      plan.algorithm = first->second;
    } else {
      const std::string line = line_of(key, plan.algorithm, seconds);
      [[maybe_unused]] const auto written = ::write(file, line.data(), line.size());
    }
  }
  ::close(file);
}

void Gemm::adopt(const std::string& choices) {
  std::istringstream lines(choices);
  for (const auto& [key, algorithm] : read_choices(lines)) {
    if (const auto plan = plans_.find(key); plan != plans_.end() && !plan->second->plain)
      plan->second->algorithm = algorithm;
    cached_.insert_or_assign(key, algorithm);
  }
}

std::string product_cache_file() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return std::string(cache) + "/quintet/products.txt";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::string(home) + "/.cache/quintet/products.txt";
  return "";
}

}  // namespace quintet::cuda
