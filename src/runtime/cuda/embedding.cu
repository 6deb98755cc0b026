#include <cub/device/device_radix_sort.cuh>

#include "program/ops/embedding.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/vector.cuh"

// The backward, without atomics on values:
//   1. Sort the tokens by id, keeping their order within an id.
//   2. Cut the sorted tokens into blocks of kBlock. Sum each run of one id inside its block. A run
//   that
//      lies in one block goes to its row at once; the pieces of longer runs go to the scratch.
//   3. For every run that leaves its block, add up its pieces, in order.
// Common ids (there are always some) are thus summed by many blocks, and every sum has one order.

namespace quintet::cuda {
namespace {

constexpr int kBlock = static_cast<int>(embedding_backward::kDeviceBlock);

template <class T, int N>
__global__ void gather_kernel(const T* table, const std::int32_t* ids, T* out, std::int64_t tokens,
                              std::int64_t width, std::int64_t first, std::int64_t rows) {
  const std::int64_t packs = width / N, count = tokens * packs;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const std::int64_t token = i / packs, col = (i - token * packs) * N;
    const std::int64_t row = ids[token] - first;
    Pack<T, N> pack{};
    if (row >= 0 && row < rows) pack = load_pack<N>(table + row * width + col);
    store_pack<N>(out + i * N, pack);
  }
}

struct Sorted {
  std::int32_t *keys, *tokens;  // row of the table (or `rows`: not here), token
};

// Step 1: the keys as they come, for the sort.
__global__ void keys_kernel(const std::int32_t* ids, int count, std::int64_t first,
                            std::int64_t rows, Sorted to) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const std::int64_t row = ids[i] - first;
  to.keys[i] = static_cast<std::int32_t>(row >= 0 && row < rows ? row : rows);
  to.tokens[i] = i;
}

// Returns which of the two holds the result.
Sorted sort(const OpContext& op, Sorted from, Sorted to, int count, int bits, std::byte* scratch,
            std::int64_t scratch_bytes) {
  cub::DoubleBuffer<std::int32_t> keys(from.keys, to.keys), tokens(from.tokens, to.tokens);
  std::size_t bytes = 0;
  QT_CUDA(
      cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, tokens, count, 0, bits, op.stream()));
  QT_CHECK(bytes <= static_cast<std::size_t>(scratch_bytes),
           "sorting {} tokens takes {} bytes, {} were planned", count, bytes, scratch_bytes);
  QT_CUDA(
      cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, tokens, count, 0, bits, op.stream()));
  return {keys.Current(), tokens.Current()};
}

// Step 2. blockIdx.x: block of kBlock sorted tokens; threads and blockIdx.y: packs of columns.
// pieces [blocks, 2, width]: of the run that enters the block from the left (or fills it), and of
// the one that leaves it to the right.
template <class T, class G, int N>
__global__ void pieces_kernel(const T* dy, Sorted sorted, int count, std::int64_t width, int rows,
                              float* pieces, G* table) {
  __shared__ int keys[kBlock + 2], tokens[kBlock];  // keys with a neighbour on each side
  const int begin = blockIdx.x * kBlock, size = min(kBlock, count - begin);
  for (int i = threadIdx.x; i < size + 2; i += blockDim.x) {
    const int at = begin + i - 1;
    keys[i] = at >= 0 && at < count ? sorted.keys[at] : -1;
    if (i < size) tokens[i] = sorted.tokens[begin + i];
  }
  __syncthreads();
  const std::int64_t col = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (col >= width) return;
  float sum[N] = {};
  bool entered = keys[0] == keys[1];
  for (int i = 0; i < size; ++i) {
    const int key = keys[i + 1];
    if (key >= rows) break;  // sorted to the end: not this rank's
    float value[N];
    load_floats<N>(dy + std::int64_t{tokens[i]} * width + col, value);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += value[j];
    const bool ends = keys[i + 2] != key, leaves = !ends && i + 1 == size;
    if (!ends && !leaves) continue;
    if (entered || leaves) {
      float* piece = pieces + (std::int64_t{blockIdx.x} * 2 + (entered ? 0 : 1)) * width + col;
#pragma unroll
      for (int j = 0; j < N; ++j) piece[j] = sum[j];
    } else {
      float row[N];
      load_floats<N>(table + std::int64_t{key} * width + col, row);
#pragma unroll
      for (int j = 0; j < N; ++j) row[j] += sum[j];
      store_floats<N>(table + std::int64_t{key} * width + col, row);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] = 0;
    entered = false;
  }
}

// Step 3. The block in which a long run begins adds up its pieces.
template <class G, int N>
__global__ void long_runs_kernel(Sorted sorted, int count, std::int64_t width, int rows,
                                 const float* pieces, G* table) {
  const int begin = blockIdx.x * kBlock, end = min(begin + kBlock, count);
  const int key = sorted.keys[end - 1];
  if (end == count || key >= rows || sorted.keys[end] != key) return;  // nothing leaves this block
  if (begin > 0 && sorted.keys[begin - 1] == key) return;              // it began further left
  const std::int64_t col = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (col >= width) return;
  float sum[N];
  load_floats<N>(table + std::int64_t{key} * width + col, sum);
  for (int block = blockIdx.x;; ++block) {
    const int first = block * kBlock;
    if (block > static_cast<int>(blockIdx.x) && (first >= count || sorted.keys[first] != key))
      break;
    const float* piece =
        pieces +
        (std::int64_t{block} * 2 + (block > static_cast<int>(blockIdx.x) ? 0 : 1)) * width + col;
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += piece[j];
  }
  store_floats<N>(table + std::int64_t{key} * width + col, sum);
}

}  // namespace

void embedding(const OpContext& op) {
  const Shape& shape = op.in(embedding::kTable).shape;
  const std::int64_t tokens = op.in(embedding::kIds).shape.numel(), width = shape.cols();
  with_device_type(op.in(embedding::kTable).dtype, [&]<class T>(T) {
    const auto* table = op.in_data<T>(embedding::kTable);
    const bool wide = width % kWide<T> == 0 && is_wide(table);
    const unsigned grid =
        grid_for(tokens * width / (wide ? kWide<T> : 1), 256, op.device().multiprocessors);
    const auto kernel = wide ? gather_kernel<T, kWide<T>> : gather_kernel<T, 1>;
    kernel<<<grid, 256, 0, op.stream()>>>(table, op.in_data<std::int32_t>(embedding::kIds),
                                          op.out_data<T>(embedding::kOut), tokens, width,
                                          op.attrs<EmbeddingAttrs>().first_row, shape.rows());
    QT_LAUNCHED();
  });
}

void embedding_backward(const OpContext& op) {
  using namespace embedding_backward;
  const Shape& shape = op.out(kDTable).shape;
  const std::int64_t tokens = op.in(kIds).shape.numel(), width = shape.cols();
  QT_CHECK(tokens < (1 << 30) && shape.rows() < (1 << 30), "{} tokens, {} rows", tokens,
           shape.rows());
  if (!op.has_in(kAddend)) {
    QT_CUDA(cudaMemsetAsync(op.out_data<std::byte>(kDTable), 0,
                            static_cast<std::size_t>(op.out(kDTable).bytes()), op.stream()));
  }
  const auto layout = DeviceScratch::of(tokens, width);
  auto* words = op.scratch<std::int32_t>();
  const Sorted a{words, words + tokens}, b{words + 2 * tokens, words + 3 * tokens};
  auto* pieces = op.scratch<float>(layout.pieces_offset);
  const int count = static_cast<int>(tokens), rows = static_cast<int>(shape.rows());
  int bits = 1;
  while ((std::int64_t{1} << bits) <= shape.rows()) ++bits;  // `rows` itself is a key
  keys_kernel<<<static_cast<unsigned>(ceil_div(count, 256)), 256, 0, op.stream()>>>(
      op.in_data<std::int32_t>(kIds), count, op.attrs<EmbeddingAttrs>().first_row, shape.rows(), a);
  QT_LAUNCHED();
  const Sorted sorted =
      sort(op, a, b, count, bits, op.scratch<std::byte>(layout.sort_offset), layout.sort_bytes());
  with_device_type(op.in(kDy).dtype, [&]<class T>(T) {
    with_device_type(op.out(kDTable).dtype, [&]<class G>(G) {
      const auto* dy = op.in_data<T>(kDy);
      auto* table = op.out_data<G>(kDTable);
      // Four columns a thread: wide enough, and enough threads for narrow tables.
      const auto launch = [&]<int N>() {
        const dim3 grid(static_cast<unsigned>(ceil_div(tokens, kBlock)),
                        static_cast<unsigned>(ceil_div(width / N, 128)));
        pieces_kernel<T, G, N>
            <<<grid, 128, 0, op.stream()>>>(dy, sorted, count, width, rows, pieces, table);
        QT_LAUNCHED();
        long_runs_kernel<G, N>
            <<<grid, 128, 0, op.stream()>>>(sorted, count, width, rows, pieces, table);
        QT_LAUNCHED();
      };
      width % 4 == 0 && is_wide(table) ? launch.template operator()<4>()
                                       : launch.template operator()<1>();
    });
  });
}

}  // namespace quintet::cuda
