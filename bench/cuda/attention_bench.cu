// Checks and times the Hopper attention kernels (runtime/cuda/attention_sm90.h) by themselves.
//
//   attention_bench [few] [check] [time] [profile]     (default: check and time)
//
// Builds without the rest of the project, by one line:
//   nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a -I src
//     bench/cuda/attention_bench.cu src/runtime/cuda/attention_sm90*.cu -o attention_bench
//
// check: values against a plain computation on the CPU (float32 products, float64 sums) from the
// same bf16 inputs, by ||x - ref|| / ||ref||; outputs are poisoned before; two runs must agree
// bitwise. time: median over repeats, inputs rotated so that they don't stay in the cache.
// TFLOP/s count 4 b h t s 64 forward and 2.5 times that backward, causal or not.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "runtime/cuda/attention_sm90.h"

namespace {

using quintet::cuda::sm90::Attention;
using quintet::cuda::sm90::AttentionBackward;
using quintet::cuda::sm90::kBiasBand;
namespace kernels = quintet::cuda::sm90;
using bf16 = __nv_bfloat16;

constexpr int kDim = 64, kBuckets = 32, kMaxDistance = 128;

void check_cuda(cudaError_t error, const char* what, int line) {
  if (error == cudaSuccess) return;
  std::printf("line %d: %s: %s\n", line, what, cudaGetErrorString(error));
  std::exit(1);
}
#define CUDA(call) check_cuda((call), #call, __LINE__)

struct Case {
  int batch, heads, queries, keys;
  bool causal = false, cross = false, lengths = false, plain = false;  // plain: no bias
  bool biased() const { return !cross && !plain; }
  std::string name() const {
    char text[96];
    std::snprintf(text, sizeof text, "b %d h %d %dx%d%s%s%s%s", batch, heads, queries, keys,
                  causal ? " causal" : "", cross ? " cross" : "", lengths ? " lengths" : "",
                  plain ? " no bias" : "");
    return text;
  }
};

int bucket_of(int distance, bool causal) {
  int buckets = kBuckets, first = 0;
  if (!causal) {
    buckets /= 2;
    if (distance > 0) first = buckets;
  }
  const int n = causal ? std::max(-distance, 0) : std::abs(distance), exact = buckets / 2;
  if (n < exact) return first + n;
  const float log_range = std::log(static_cast<float>(kMaxDistance) / exact);
  const int step = static_cast<int>(std::log(static_cast<float>(n) / exact) / log_range *
                                    static_cast<float>(buckets - exact));
  return first + std::min(exact + step, buckets - 1);
}

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    CUDA(cudaMalloc(&data_, std::max<std::size_t>(bytes(), 16)));
  }
  DeviceArray(DeviceArray&& other) noexcept : data_(other.data_), count_(other.count_) {
    other.data_ = nullptr;
  }
  DeviceArray(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }
  T* get() const { return data_; }
  std::size_t bytes() const { return count_ * sizeof(T); }
  void fill(const std::vector<T>& from) {
    CUDA(cudaMemcpy(data_, from.data(), bytes(), cudaMemcpyHostToDevice));
  }
  void poison() { CUDA(cudaMemset(data_, 0xff, bytes())); }
  std::vector<T> read() const {
    std::vector<T> to(count_);
    CUDA(cudaMemcpy(to.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return to;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

std::vector<bf16> random_bf16(std::size_t count, float scale, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  // A block of true normals, repeated at odd places: drawing millions would take longer than all
  // else.
  std::vector<bf16> block(1 << 16), to(count);
  for (bf16& x : block) x = __float2bfloat16(normal(engine));
  for (std::size_t i = 0; i < count; i += 977) {
    const std::size_t at = engine() % (block.size() - 977);
    std::copy_n(block.begin() + at, std::min<std::size_t>(977, count - i), to.begin() + i);
  }
  return to;
}

// All operands of one attention and its backward, on the device.
struct Operands {
  Case c;
  std::int64_t width, q_ld, kv_ld;
  DeviceArray<bf16> q, kv, bias, out, d_out, d_q, d_kv;
  DeviceArray<float> lse, d_bias;
  DeviceArray<std::int32_t> lengths;
  std::vector<bf16> host_q, host_kv, host_bias, host_d_out;
  std::vector<std::int32_t> host_lengths;
  Attention forward;
  AttentionBackward backward;

  explicit Operands(const Case& c, unsigned seed)
      : c(c),
        width(std::int64_t{c.heads} * kDim),
        q_ld(c.cross ? width : 3 * width),
        kv_ld(c.cross ? 2 * width : 3 * width),
        q(c.batch * c.queries * q_ld),
        kv(c.cross ? c.batch * c.keys * kv_ld : 0),
        bias(kBuckets * c.heads),
        out(c.batch * c.queries * width),
        d_out(c.batch * c.queries * width),
        d_q(c.batch * c.queries * q_ld),
        d_kv(c.cross ? c.batch * c.keys * kv_ld : 0),
        lse(std::int64_t{c.batch} * c.heads * c.queries),
        d_bias(kBuckets * c.heads),
        lengths(c.batch) {
    host_q = random_bf16(c.batch * c.queries * q_ld, 0.6f, seed);
    host_kv = random_bf16(c.cross ? c.batch * c.keys * kv_ld : 0, 0.6f, seed + 1);
    host_bias = random_bf16(kBuckets * c.heads, 1.0f, seed + 2);
    host_d_out = random_bf16(c.batch * c.queries * width, 1.0f, seed + 3);
    std::mt19937 engine(seed + 4);
    for (int b = 0; b < c.batch; ++b) {
      // The last sample is full, the one before empty.
      int length = b == c.batch - 1 ? c.keys : static_cast<int>(engine() % (c.keys + 1));
      if (b + 2 == c.batch) length = 0;
      host_lengths.push_back(length);
    }
    q.fill(host_q);
    if (c.cross) kv.fill(host_kv);
    bias.fill(host_bias);
    d_out.fill(host_d_out);
    lengths.fill(host_lengths);

    bf16* keys = c.cross ? kv.get() : q.get() + width;
    forward.batch = c.batch;
    forward.heads = c.heads;
    forward.queries = c.queries;
    forward.keys = c.keys;
    forward.causal = c.causal;
    forward.q = q.get();
    forward.k = keys;
    forward.v = keys + width;
    forward.q_ld = q_ld;
    forward.kv_ld = kv_ld;
    forward.lengths = c.lengths ? lengths.get() : nullptr;
    if (c.biased()) {
      forward.bias.table = bias.get();
      forward.bias.buckets = kBuckets;
      for (int i = 0; i <= 2 * kBiasBand; ++i) {
        forward.bias.bucket[i] = static_cast<std::uint8_t>(bucket_of(i - kBiasBand, c.causal));
      }
    }
    bf16* d_keys = c.cross ? d_kv.get() : d_q.get() + width;
    backward.d_out = d_out.get();
    backward.out = out.get();
    backward.lse = lse.get();
    backward.d_q = d_q.get();
    backward.d_k = d_keys;
    backward.d_v = d_keys + width;
    backward.d_bias = c.biased() ? d_bias.get() : nullptr;
  }
  std::size_t bytes() const {
    return q.bytes() + kv.bytes() + out.bytes() + d_out.bytes() + d_q.bytes() + d_kv.bytes();
  }
};

// --- Check ---------------------------------------------------------------------------------------

// ||x - ref|| and ||ref||, NaN-proof.
struct Error {
  double difference = 0, reference = 0;
  std::int64_t bad = 0;
  void add(double x, double ref) {
    if (!std::isfinite(x)) ++bad;
    difference += (x - ref) * (x - ref);
    reference += ref * ref;
  }
  void add(const Error& e) {
    difference += e.difference;
    reference += e.reference;
    bad += e.bad;
  }
  double relative() const {
    if (bad > 0) return INFINITY;
    return std::sqrt(difference) / std::max(std::sqrt(reference), 1e-6);
  }
};

struct Results {
  std::vector<bf16> out, d_q, d_kv;
  std::vector<float> lse, d_bias;
  bool operator==(const Results& o) const {
    const auto same = [](const auto& x, const auto& y) {
      return std::memcmp(x.data(), y.data(), x.size() * sizeof x[0]) == 0;
    };
    return same(out, o.out) && same(d_q, o.d_q) && same(d_kv, o.d_kv) && same(lse, o.lse) &&
           same(d_bias, o.d_bias);
  }
};

Results run_once(Operands& x, void* workspace, std::size_t workspace_bytes) {
  x.out.poison();
  x.lse.poison();
  x.d_q.poison();
  x.d_kv.poison();
  CUDA(cudaMemset(workspace, 0xff, workspace_bytes));
  if (x.c.biased()) x.d_bias.poison();
  CUDA(kernels::forward(x.forward, x.out.get(), x.lse.get(), nullptr, nullptr));
  CUDA(cudaDeviceSynchronize());
  CUDA(kernels::backward(x.forward, x.backward, workspace, nullptr));
  CUDA(cudaDeviceSynchronize());
  return {x.out.read(), x.d_q.read(), x.d_kv.read(), x.lse.read(), x.d_bias.read()};
}

struct HeadErrors {
  Error out, lse, d_q, d_k, d_v;
  std::vector<double> d_bias = std::vector<double>(kBuckets);
};

// One (sample, head) on the CPU, compared.
HeadErrors compare_head(const Operands& x, const Results& r, int b, int h) {
  const Case& c = x.c;
  HeadErrors e;
  const auto rows = [&](const std::vector<bf16>& from, std::int64_t count, std::int64_t ld,
                        std::int64_t offset) {
    std::vector<float> to(count * kDim);
    for (std::int64_t i = 0; i < count; ++i) {
      for (int d = 0; d < kDim; ++d) {
        to[i * kDim + d] = __bfloat162float(from[(b * count + i) * ld + offset + h * kDim + d]);
      }
    }
    return to;
  };
  const std::int64_t t = c.queries, s = c.keys, w = x.width;
  const auto& keys = c.cross ? x.host_kv : x.host_q;
  const auto& got_keys = c.cross ? r.d_kv : r.d_q;
  const std::int64_t k_at = c.cross ? 0 : w, v_at = k_at + w;
  const auto q = rows(x.host_q, t, x.q_ld, 0), k = rows(keys, s, x.kv_ld, k_at);
  const auto v = rows(keys, s, x.kv_ld, v_at), d_out = rows(x.host_d_out, t, w, 0);
  const auto got_out = rows(r.out, t, w, 0), got_dq = rows(r.d_q, t, x.q_ld, 0);
  const auto got_dk = rows(got_keys, s, x.kv_ld, k_at), got_dv = rows(got_keys, s, x.kv_ld, v_at);
  std::vector<double> d_k(s * kDim), d_v(s * kDim);
  const std::int64_t valid = c.lengths ? x.host_lengths[b] : s;
  std::vector<double> p(s), d_s(s);
  for (std::int64_t i = 0; i < t; ++i) {
    const std::int64_t seen = c.causal ? std::min(valid, i + 1) : valid;
    double max = -1e300, sum = 0, delta = 0;
    double out[kDim] = {}, d_q[kDim] = {};
    const auto dot = [](const float* a, const float* b) {
      float sums[8] = {};
      for (int d = 0; d < kDim; d += 8) {
        for (int u = 0; u < 8; ++u) sums[u] += a[d + u] * b[d + u];
      }
      float all = 0;
      for (float u : sums) all += u;
      return all;
    };
    for (std::int64_t j = 0; j < seen; ++j) {
      p[j] = dot(&q[i * kDim], &k[j * kDim]);
      if (c.biased()) {
        const int bucket = bucket_of(static_cast<int>(j - i), c.causal);
        p[j] += __bfloat162float(x.host_bias[bucket * c.heads + h]);
      }
      max = std::max(max, p[j]);
    }
    for (std::int64_t j = 0; j < seen; ++j) sum += p[j] = std::exp(p[j] - max);
    for (std::int64_t j = 0; j < seen; ++j) {
      p[j] /= sum;
      for (int d = 0; d < kDim; ++d) out[d] += p[j] * v[j * kDim + d];
      d_s[j] = dot(&d_out[i * kDim], &v[j * kDim]);
      delta += p[j] * d_s[j];
    }
    for (std::int64_t j = 0; j < seen; ++j) {
      d_s[j] = p[j] * (d_s[j] - delta);
      for (int d = 0; d < kDim; ++d) {
        d_v[j * kDim + d] += p[j] * d_out[i * kDim + d];
        d_k[j * kDim + d] += d_s[j] * q[i * kDim + d];
        d_q[d] += d_s[j] * k[j * kDim + d];
      }
      if (c.biased()) e.d_bias[bucket_of(static_cast<int>(j - i), c.causal)] += d_s[j];
    }
    e.lse.add(r.lse[(std::int64_t{b} * c.heads + h) * t + i], seen > 0 ? max + std::log(sum) : 0);
    for (int d = 0; d < kDim; ++d) {
      e.out.add(got_out[i * kDim + d], out[d]);
      e.d_q.add(got_dq[i * kDim + d], d_q[d]);
    }
  }
  for (std::int64_t i = 0; i < s * kDim; ++i) {
    e.d_k.add(got_dk[i], d_k[i]);
    e.d_v.add(got_dv[i], d_v[i]);
  }
  return e;
}

// Heads from `first_head` on, all samples. Returns whether all is within tolerance: bf16 operands
// and outputs give a few 1e-3; the gradient of the bias sums many terms that cancel.
bool check(const Case& c, unsigned seed, int first_head = 0) {
  Operands x(c, seed);
  if (!kernels::supported(x.forward)) {
    std::printf("%-40s not supported\n", c.name().c_str());
    return false;
  }
  const auto bytes = static_cast<std::size_t>(kernels::backward_workspace(x.forward));
  DeviceArray<char> workspace(bytes);
  const Results r = run_once(x, workspace.get(), bytes);
  bool repeats = true;
  for (int i = 0; i < 3; ++i) repeats = repeats && r == run_once(x, workspace.get(), bytes);

  const int heads = c.heads - first_head;
  std::vector<HeadErrors> errors(static_cast<std::size_t>(c.batch) * heads);
  std::atomic<int> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      for (int item; (item = next++) < static_cast<int>(errors.size());) {
        errors[item] = compare_head(x, r, item / heads, first_head + item % heads);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  HeadErrors all;
  for (const HeadErrors& e : errors) {
    all.out.add(e.out);
    all.lse.add(e.lse);
    all.d_q.add(e.d_q);
    all.d_k.add(e.d_k);
    all.d_v.add(e.d_v);
  }
  Error d_bias;
  for (int h = 0; c.biased() && h < heads; ++h) {
    for (int bucket = 0; bucket < kBuckets; ++bucket) {
      double sum = 0;
      for (int b = 0; b < c.batch; ++b) sum += errors[b * heads + h].d_bias[bucket];
      d_bias.add(r.d_bias[bucket * c.heads + first_head + h], sum);
    }
  }
  // One key leaves nothing to learn: gradients of scores are rounding errors.
  const bool trivial = c.keys == 1;
  const bool good = repeats && all.out.relative() < 6e-3 && all.lse.relative() < 1e-4 &&
                    all.d_v.relative() < 6e-3 &&
                    (trivial || (all.d_q.relative() < 1e-2 && all.d_k.relative() < 1e-2 &&
                                 d_bias.relative() < 2e-2));
  std::printf("%-40s out %.1e lse %.1e dq %.1e dk %.1e dv %.1e dbias %.1e %s %s\n",
              c.name().c_str(), all.out.relative(), all.lse.relative(), all.d_q.relative(),
              all.d_k.relative(), all.d_v.relative(), d_bias.relative(),
              repeats ? "repeats" : "DIFFERS", good ? "ok" : "WRONG");
  std::fflush(stdout);
  return good;
}

// The gradient of the bias added to what is there, and in bf16.
bool check_bias_outputs() {
  Operands x({2, 3, 300, 300}, 99);
  const std::size_t count = kBuckets * x.c.heads;
  DeviceArray<char> workspace(static_cast<std::size_t>(kernels::backward_workspace(x.forward)));
  DeviceArray<bf16> in_bf16(count);
  const auto run = [&](void* to, bool f32, bool add) {
    AttentionBackward b = x.backward;
    b.d_bias = to;
    b.d_bias_f32 = f32;
    b.add_to_d_bias = add;
    CUDA(kernels::backward(x.forward, b, workspace.get(), nullptr));
    CUDA(cudaDeviceSynchronize());
  };
  CUDA(kernels::forward(x.forward, x.out.get(), x.lse.get(), nullptr, nullptr));
  run(x.d_bias.get(), true, false);
  const std::vector<float> once = x.d_bias.read();
  run(x.d_bias.get(), true, true);
  const std::vector<float> twice = x.d_bias.read();
  run(in_bf16.get(), false, false);
  const std::vector<bf16> rounded = in_bf16.read();
  run(in_bf16.get(), false, true);
  const std::vector<bf16> added = in_bf16.read();
  bool good = true;
  for (std::size_t i = 0; i < count; ++i) {
    good &= twice[i] == once[i] + once[i];
    good &= __bfloat162float(rounded[i]) == __bfloat162float(__float2bfloat16(once[i]));
    good &= __bfloat162float(added[i]) ==
            __bfloat162float(__float2bfloat16(__bfloat162float(rounded[i]) + once[i]));
  }
  std::printf("%-40s %s\n", "bias gradient added, and in bf16", good ? "ok" : "WRONG");
  return good;
}

// A few small cases, for a memory checker.
bool check_few() {
  bool good = check_bias_outputs();
  for (const bool causal : {false, true}) good &= check({3, 2, 200, 200, causal, false, true}, 5);
  return good & check({3, 2, 65, 300, false, true, true}, 6);
}

bool check_all() {
  bool good = check_few();
  unsigned seed = 1;
  for (const int n : {128, 64, 256, 1, 63, 65, 200, 384, 1000}) {
    for (const bool causal : {false, true}) {
      good &= check({2, 3, n, n, causal}, seed++);
      good &= check({4, 2, n, n, causal, false, true}, seed++);
    }
    good &= check({2, 2, n, 128, false, true}, seed++);
    good &= check({2, 2, 200, n, false, true}, seed++);
    good &= check({4, 1, n, 300, false, true, true}, seed++);
  }
  // More heads than multiprocessors, the size of the benchmarks; one head of all samples compared.
  good &= check({32, 12, 1024, 1024}, seed++, 11);
  good &= check({32, 12, 256, 256, true}, seed++, 10);
  good &= check({32, 12, 256, 1024, false, true, true}, seed++, 11);
  return good;
}

// --- Time ----------------------------------------------------------------------------------------

template <class Launch>
double median_seconds(int sets, Launch&& launch) {
  constexpr int kRepeats = 9;
  const int calls = 3 * sets;
  cudaEvent_t start, stop;
  CUDA(cudaEventCreate(&start));
  CUDA(cudaEventCreate(&stop));
  std::vector<double> seconds;
  for (int repeat = -2; repeat < kRepeats; ++repeat) {
    CUDA(cudaEventRecord(start));
    for (int i = 0; i < calls; ++i) launch(i % sets);
    CUDA(cudaEventRecord(stop));
    CUDA(cudaEventSynchronize(stop));
    float ms = 0;
    CUDA(cudaEventElapsedTime(&ms, start, stop));
    if (repeat >= 0) seconds.push_back(ms * 1e-3 / calls);
  }
  CUDA(cudaEventDestroy(start));
  CUDA(cudaEventDestroy(stop));
  std::nth_element(seconds.begin(), seconds.begin() + kRepeats / 2, seconds.end());
  return seconds[kRepeats / 2];
}

void time_case(const Case& c) {
  std::vector<Operands> sets;
  sets.reserve(4);
  do {
    sets.emplace_back(c, 7u + static_cast<unsigned>(sets.size()));
  } while (sets.size() < 4 && sets.size() * sets[0].bytes() < (400u << 20));
  DeviceArray<char> workspace(
      static_cast<std::size_t>(kernels::backward_workspace(sets[0].forward)));
  const int n = static_cast<int>(sets.size());
  const double forward = median_seconds(n, [&](int i) {
    CUDA(kernels::forward(sets[i].forward, sets[i].out.get(), sets[i].lse.get(), nullptr, nullptr));
  });
  const double backward = median_seconds(n, [&](int i) {
    CUDA(kernels::backward(sets[i].forward, sets[i].backward, workspace.get(), nullptr));
  });
  const double flops = 4.0 * c.batch * c.heads * c.queries * c.keys * kDim * 1e-12;
  std::printf("%-34s %8.1f us %8.1f us   %6.1f %6.1f %6.1f TFLOP/s\n", c.name().c_str(),
              forward * 1e6, backward * 1e6, flops / forward, 2.5 * flops / backward,
              3.5 * flops / (forward + backward));
  std::fflush(stdout);
}

void time_all() {
  std::printf("%-34s %11s %11s   forward, backward, both\n", "", "forward", "backward");
  time_case({32, 12, 1024, 1024});
  time_case({8, 32, 1024, 1024});
  time_case({32, 12, 256, 256, true});
  time_case({32, 12, 256, 1024, false, true});
  const int models[][2] = {{16, 16}, {8, 48}, {4, 64}};  // batch, heads
  for (const auto& [batch, heads] : models) {
    time_case({batch, heads, 1024, 1024});
    time_case({batch, heads, 256, 256, true});
    time_case({batch, heads, 256, 1024, false, true});
  }
  time_case({32, 12, 1024, 1024, false, false, false, true});
  time_case({32, 12, 256, 256, true, false, false, true});
  time_case({32, 12, 1024, 1024});  // again: the spread
}

// One launch of each kernel, for a profiler.
void profile_all() {
  for (const Case& c : {Case{8, 32, 1024, 1024}, Case{8, 32, 1024, 1024, false, false, false, true},
                        Case{32, 12, 256, 256, true}}) {
    Operands x(c, 7);
    DeviceArray<char> workspace(static_cast<std::size_t>(kernels::backward_workspace(x.forward)));
    CUDA(kernels::forward(x.forward, x.out.get(), x.lse.get(), nullptr, nullptr));
    CUDA(kernels::backward(x.forward, x.backward, workspace.get(), nullptr));
    CUDA(cudaDeviceSynchronize());
  }
}

}  // namespace

int main(int argc, char** argv) {
  bool checks = argc < 2, few = false, times = argc < 2, good = true;
  for (int i = 1; i < argc; ++i) {
    checks |= std::strcmp(argv[i], "check") == 0;
    few |= std::strcmp(argv[i], "few") == 0;
    times |= std::strcmp(argv[i], "time") == 0;
  }
  if (few) good = check_few();
  if (checks) good &= check_all();
  if (few || checks) std::printf("%s\n", good ? "all within tolerance" : "SOMETHING IS WRONG");
  if (times) time_all();
  if (argc == 2 && std::strcmp(argv[1], "profile") == 0) profile_all();
  return good ? 0 : 1;
}
