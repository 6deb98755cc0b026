#include "program/ops/rms_norm.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/codes_tile.cuh"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/largest.cuh"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/vector.cuh"

// A row of d elements is held in the registers of a group of G threads, V packs of N elements each:
// a warp for narrow rows, a block of its own for wide ones. Each row is read once, and all of its
// loads are under way before the first sum.

namespace quintet::cuda {
namespace {

template <int G>
inline constexpr int kThreads = G == 32 ? 256 : G;

// Sums over a row's group of threads.
template <int G>
class GroupSum {
 public:
  __device__ __forceinline__ float operator()(float value) {
    value = warp_sum(value);
    if constexpr (G == 32) return value;
    // Two buffers in turn: one barrier a sum is enough.
    __shared__ float shared[2][G / 32];
    float* sums = shared[turn_ ^= 1];
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    float total = 0;
#pragma unroll
    for (int i = 0; i < G / 32; ++i) total += sums[i];
    return total;
  }

 private:
  int turn_ = 0;
};

// Where rows of y go as they are.
template <class T>
struct RowsOut {
  T* y;
  Largest largest;
  template <int N>
  __device__ __forceinline__ void put(std::int64_t at, const float (&values)[N]) {
    largest.template store<N>(y + at, values);
  }
};
// Where their codes go, if they are wanted, with the unit that is guessed (Units).
template <class F>
struct CodesRowsOut {
  std::uint8_t* codes;
  Units units;
  Largest largest;
  float scale = 1;

  template <int N>
  __device__ __forceinline__ void put(std::int64_t at, const float (&values)[N]) {
    static_assert(N == kWide<dbf16>);
    const uint4 pack = bits_of(values, largest);
    if (codes == nullptr) return;
    *reinterpret_cast<uint2*>(codes + at) =
        uint2{codes_of<F>(pack.x, pack.y, scale), codes_of<F>(pack.z, pack.w, scale)};
  }
};

template <class T, int N, int G, int V, class Out>
__global__ void __launch_bounds__(kThreads<G>)
    forward_kernel(const T* x, const T* weight, float* rstd, Out out, std::int64_t rows, int d,
                   float epsilon) {
  if constexpr (requires { out.units; }) out.scale = fp8_scale(guessed_unit(out.units));
  const int lane = threadIdx.x % G;
  const std::int64_t row = std::int64_t{blockIdx.x} * (kThreads<G> / G) + threadIdx.x / G;
  if (row >= rows) return;  // with a block for every row this cannot be
  GroupSum<G> group_sum;
  Pack<T, N> values[V];
  float sum = 0;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const int col = (k * G + lane) * N;
    if (col < d) values[k] = load_pack<N>(x + row * d + col);
  }
#pragma unroll
  for (int k = 0; k < V; ++k) {
    if ((k * G + lane) * N >= d) continue;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float value = to_float(values[k].v[j]);
      sum += value * value;
    }
  }
  const float inverse = 1.0f / sqrtf(group_sum(sum) / static_cast<float>(d) + epsilon);
  if (lane == 0) rstd[row] = inverse;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const int col = (k * G + lane) * N;
    if (col >= d) continue;
    float w[N];
    load_floats<N>(weight + col, w);
#pragma unroll
    for (int j = 0; j < N; ++j) w[j] *= to_float(values[k].v[j]) * inverse;
    out.template put<N>(row * d + col, w);
  }
  out.largest.say();
}

// The second launch: turns the codes; or makes them if they are only wanted turned, or if their
// unit was not the right one.
template <class F>
__global__ void __launch_bounds__(kTileThreads)
    settle_codes_kernel(const dbf16* x, const dbf16* weight, const float* rstd, CodesOut out,
                        const Units units) {
  __shared__ std::uint32_t turned[kTurnedWords];
  const SettledUnit settled = settled_unit<F>(units);
  const bool there = !settled.was_wrong && out.codes != nullptr;
  if (there && out.transposed == nullptr) return;
  const float scale = fp8_scale(settled.unit);
  const TilePlace place;
  for (std::int64_t tile = out.tiles() - 1 - blockIdx.x; tile >= 0; tile -= gridDim.x) {
    const std::int64_t row0 = tile / out.across() * kTileRows;
    const std::int64_t col0 = tile % out.across() * kTileCols, col = col0 + place.eight;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int fourth = place.four + 16 * half;
      const std::int64_t row = row0 + 4 * fourth;
      if (row >= out.rows || col >= out.cols) continue;
      if (there) {
        turn_codes(out.codes, out.ld, row, col, place.eight, fourth, turned);
        continue;
      }
      float w[8];
      load_floats<8>(weight + col, w);
      uint4 values[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float y[8];
        load_floats<8>(x + (row + i) * out.cols + col, y);
        const float inverse = rstd[row + i];
#pragma unroll
        for (int j = 0; j < 8; ++j) y[j] = w[j] * (y[j] * inverse);
        Largest nobody(nullptr);
        values[i] = bits_of(y, nobody);
      }
      put_codes<F>(values, out, row, col, place.eight, fourth, scale, turned);
    }
    if (out.transposed == nullptr) continue;
    __syncthreads();
    put_turned(out, row0, col0, turned);
    __syncthreads();
  }
}

// With n = x rstd and g = dy w:  dx = rstd (g - n mean(g n)),  dw = sum over rows of dy n. A block
// takes rows in a fixed pattern and leaves its part of dw in partial [blocks, d].
template <class T, int N, int G, int V, bool kAdds>
__global__ void __launch_bounds__(kThreads<G>)
    backward_kernel(const T* dy, const T* x, const T* weight, const float* rstd, const T* addend,
                    T* dx, float* partial, Largest largest, std::int64_t rows, int d) {
  constexpr int kRows = kThreads<G> / G;
  const int lane = threadIdx.x % G, group = threadIdx.x / G;
  GroupSum<G> group_sum;
  float dw[V][N] = {};
  for (std::int64_t first = std::int64_t{blockIdx.x} * kRows; first < rows;
       first += std::int64_t{gridDim.x} * kRows) {
    const std::int64_t row = first + group;
    const bool live = row < rows;
    Pack<T, N> gs[V], xs[V], as[kAdds ? V : 1];
    const float inverse = live ? rstd[row] : 0.0f;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const int col = (k * G + lane) * N;
      if (!live || col >= d) continue;
      gs[k] = load_pack<N>(dy + row * d + col);
      xs[k] = load_pack<N>(x + row * d + col);
      if constexpr (kAdds) as[k] = load_pack<N>(addend + row * d + col);
    }
    float dot = 0;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const int col = (k * G + lane) * N;
      if (!live || col >= d) continue;
      float w[N];
      load_floats<N>(weight + col, w);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float g = to_float(gs[k].v[j]), n = to_float(xs[k].v[j]) * inverse;
        dot += g * w[j] * n;
        dw[k][j] += g * n;
      }
    }
    const float mean = group_sum(dot) / static_cast<float>(d);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const int col = (k * G + lane) * N;
      if (!live || col >= d) continue;
      float w[N];
      load_floats<N>(weight + col, w);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float n = to_float(xs[k].v[j]) * inverse;
        w[j] = inverse * (to_float(gs[k].v[j]) * w[j] - n * mean);
        if constexpr (kAdds) w[j] += to_float(as[k].v[j]);
      }
      // dx may lie where dy or the addend did: this thread has read what it overwrites.
      largest.template store<N>(dx + row * d + col, w);
    }
  }
  largest.say();
  extern __shared__ float sums[];  // [kRows, d] where a block holds several rows
  float* own = kRows > 1 ? sums + group * d : partial + std::int64_t{blockIdx.x} * d;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const int col = (k * G + lane) * N;
    if (col >= d) continue;
#pragma unroll
    for (int j = 0; j < N; ++j) own[col + j] = dw[k][j];
  }
  if constexpr (kRows > 1) {
    __syncthreads();
    for (int col = threadIdx.x; col < d; col += kThreads<G>) {
      float sum = 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum += sums[r * d + col];
      partial[std::int64_t{blockIdx.x} * d + col] = sum;
    }
  }
}

// dw[col] (+)= sum over blocks of partial[block][col]; 32 columns and as many shares of the blocks
// at a time.
constexpr int kShares = 32;
template <class G>
__global__ void weight_gradient_kernel(const float* partial, int blocks, int d, bool accumulate,
                                       G* dw) {
  __shared__ float shared[kShares][33];
  const int col = blockIdx.x * 32 + threadIdx.x;
  float sum = 0;
  if (col < d) {
#pragma unroll 8
    for (int b = threadIdx.y; b < blocks; b += kShares) sum += partial[std::int64_t{b} * d + col];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= d) return;
  float total = accumulate ? to_float(dw[col]) : 0.0f;
#pragma unroll
  for (int i = 0; i < kShares; ++i) total += shared[i][threadIdx.x];
  dw[col] = from_float<G>(total);
}

// Calls launch.template operator()<N, G, V>() with a shape that holds rows of d elements.
template <class T, class Launch>
void with_row_shape(std::int64_t d, bool wide, const Launch& launch) {
  const std::int64_t packs = wide ? d / kWide<T> : d;
  if (wide && packs <= 64) return launch.template operator()<kWide<T>, 32, 2>();
  if (wide && packs <= 96) return launch.template operator()<kWide<T>, 32, 3>();
  if (wide && packs <= 128) return launch.template operator()<kWide<T>, 32, 4>();
  if (wide && packs <= 256) return launch.template operator()<kWide<T>, 128, 2>();
  if (wide && packs <= 512) return launch.template operator()<kWide<T>, 256, 2>();
  if (wide && packs <= 2048) return launch.template operator()<kWide<T>, 256, 8>();
  QT_CHECK(packs <= 16 * 256, "rows of {} elements are too long for this kernel", d);
  return launch.template operator()<1, 256, 16>();
}

}  // namespace

namespace {

template <class T, class Out>
void launch_forward(const OpContext& op, bool wide, const Out& out) {
  const Shape& shape = op.in(rms_norm::kX).shape;
  const std::int64_t rows = shape.rows(), d = shape.cols();
  const auto launch = [&]<int N, int G, int V>() {
    const auto blocks = static_cast<unsigned>(ceil_div(rows, kThreads<G> / G));
    forward_kernel<T, N, G, V><<<blocks, kThreads<G>, 0, op.stream()>>>(
        op.in_data<T>(rms_norm::kX), op.in_data<T>(rms_norm::kWeight),
        op.out_data<float>(rms_norm::kRstd), out, rows, static_cast<int>(d),
        op.attrs<RmsNormAttrs>().epsilon);
    QT_LAUNCHED();
  };
  with_row_shape<T>(d, wide, [&]<int N, int G, int V>() {
    // Codes are written eight at a time, and so are all rows of which there are codes.
    if constexpr (N == kWide<T> || !requires { out.units; }) launch.template operator()<N, G, V>();
  });
}

void rms_norm_codes(const OpContext& op) {
  const Shape& shape = op.in(rms_norm::kX).shape;
  const auto *x = op.in_data<dbf16>(rms_norm::kX), *weight = op.in_data<dbf16>(rms_norm::kWeight);
  QT_CHECK(op.in(rms_norm::kX).dtype == DType::kBF16 && is_wide(x) && is_wide(weight),
           "eight-bit codes of rows that are not of bf16 on 16 bytes");
  const CodesOut out = codes_out(op, shape.rows(), shape.cols());
  const Units units = empty_units(op);
  with_fp8_type(codes_format(op), [&]<class F>(F) {
    launch_forward<dbf16>(op, true, CodesRowsOut<F>{out.codes, units, Largest(units.slots)});
    settle_codes_kernel<F>
        <<<grid_of_tiles(out.tiles(), op.device().multiprocessors), kTileThreads, 0, op.stream()>>>(
            x, weight, op.out_data<float>(rms_norm::kRstd), out, units);
    QT_LAUNCHED();
  });
}

}  // namespace

void rms_norm(const OpContext& op) {
  if (quantize::elements_rounded(op) > 0) return rms_norm_codes(op);
  const Largest largest(empty_slots(op, rms_norm::kLargest, op.in(rms_norm::kX).dtype));
  with_device_type(op.in(rms_norm::kX).dtype, [&]<class T>(T) {
    auto* y = op.out_data<T>(rms_norm::kY);
    const bool wide = op.in(rms_norm::kX).shape.cols() % kWide<T> == 0 &&
                      is_wide(op.in_data<T>(rms_norm::kX)) &&
                      is_wide(op.in_data<T>(rms_norm::kWeight)) && is_wide(y);
    launch_forward<T>(op, wide, RowsOut<T>{y, largest});
  });
}

void rms_norm_backward(const OpContext& op) {
  using namespace rms_norm_backward;
  const Shape& shape = op.in(kX).shape;
  const std::int64_t rows = shape.rows(), d = shape.cols();
  const std::int64_t blocks = device_blocks(rows, d);
  auto* partial = op.scratch<float>();
  const Largest largest(empty_slots(op, kLargest, op.in(kX).dtype));
  with_device_type(op.in(kX).dtype, [&]<class T>(T) {
    const auto *dy = op.in_data<T>(kDy), *x = op.in_data<T>(kX), *weight = op.in_data<T>(kWeight);
    const auto* addend = op.in_data<T>(kAddend);
    auto* dx = op.out_data<T>(kDx);
    const bool wide = d % kWide<T> == 0 && is_wide(dy) && is_wide(x) && is_wide(weight) &&
                      is_wide(addend) && is_wide(dx);
    with_row_shape<T>(d, wide, [&]<int N, int G, int V>() {
      constexpr int kRows = kThreads<G> / G;
      const std::size_t shared = kRows == 1 ? 0 : sizeof(float) * kRows * d;
      const auto kernel = addend == nullptr ? backward_kernel<T, N, G, V, false>
                                            : backward_kernel<T, N, G, V, true>;
      kernel<<<static_cast<unsigned>(blocks), kThreads<G>, shared, op.stream()>>>(
          dy, x, weight, op.in_data<float>(kRstd), addend, dx, partial, largest, rows,
          static_cast<int>(d));
      QT_LAUNCHED();
    });
  });
  with_device_type(op.out(kDWeight).dtype, [&]<class G>(G) {
    const dim3 threads(32, kShares);
    weight_gradient_kernel<<<static_cast<unsigned>(ceil_div(d, 32)), threads, 0, op.stream()>>>(
        partial, static_cast<int>(blocks), static_cast<int>(d), op.has_in(kDWeightAddend),
        op.out_data<G>(kDWeight));
    QT_LAUNCHED();
  });
}

}  // namespace quintet::cuda
