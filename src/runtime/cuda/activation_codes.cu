#include <array>

#include "program/ops/activation.h"
#include "runtime/cuda/activation_codes.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/codes_tile.cuh"
#include "runtime/cuda/largest.cuh"
#include "runtime/cuda/nonlinearity.cuh"
#include "runtime/cuda/vector.cuh"

namespace quintet::cuda {
namespace {

constexpr int kPack = 8;  // values in 16 bytes
using Values = Pack<dbf16, kPack>;

__device__ __forceinline__ void to_floats(const Values& pack, float (&to)[kPack]) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) to[i] = to_float(pack.v[i]);
}

// h is [rows, f], or [rows, 2f] where gated; so is the result of the backward, and that of the
// forward is [rows, f]. `parts`: where its first f columns go, and the others.
template <class F, template <class> class A, bool kGated, bool kBackward>
__global__ void __launch_bounds__(kTileThreads, kBackward ? 2 : 3)
    codes_kernel(const dbf16* dy, const dbf16* h, const std::array<CodesOut, 2> parts,
                 const Units units, bool again) {
  constexpr int kParts = kGated && kBackward ? 2 : 1;
  __shared__ std::uint32_t turned[kParts][kTurnedWords];

  float unit;
  if (again) {
    const SettledUnit settled = settled_unit<F>(units);
    if (!settled.was_wrong) return;
    unit = settled.unit;
  } else {
    unit = guessed_unit(units);
  }
  const float scale = fp8_scale(unit);
  Largest largest(again ? nullptr : units.slots);

  const CodesOut& out = parts[0];
  const std::int64_t f = out.cols, width = kGated ? 2 * f : f;
  const TilePlace place;
  const std::int64_t tiles = out.tiles();
  for (std::int64_t n = blockIdx.x; n < tiles; n += gridDim.x) {
    // From the end on, as in quantize, and back: what was read last is still in the cache.
    const std::int64_t tile = again ? n : tiles - 1 - n;
    const std::int64_t row0 = tile / out.across() * kTileRows;
    const std::int64_t col0 = tile % out.across() * kTileCols, col = col0 + place.eight;
#pragma unroll(kBackward ? 1 : 2)  // by measurement
    for (int half = 0; half < 2; ++half) {
      const int fourth = place.four + 16 * half;
      const std::int64_t row = row0 + 4 * fourth;
      if (row >= out.rows || col >= f) continue;
      Values x[4], gate[4], d[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[i] = load_pack<kPack>(h + (row + i) * width + col);
        if constexpr (kGated) gate[i] = load_pack<kPack>(h + (row + i) * width + f + col);
        if constexpr (kBackward) d[i] = load_pack<kPack>(dy + (row + i) * f + col);
      }
      uint4 results[kParts][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float xs[kPack], gates[kPack], ds[kPack];
        to_floats(x[i], xs);
        if constexpr (kGated) to_floats(gate[i], gates);
        if constexpr (kBackward) to_floats(d[i], ds);
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          float value, derivative;
          A<dbf16>::both(xs[j], value, derivative);
          if constexpr (kBackward) {
            xs[j] = ds[j] * derivative * (kGated ? gates[j] : 1.0f);
            if constexpr (kGated) gates[j] = ds[j] * value;
          } else {
            xs[j] = kGated ? value * gates[j] : value;
          }
        }
        results[0][i] = bits_of(xs, largest);
        if constexpr (kParts == 2) results[1][i] = bits_of(gates, largest);
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        put_codes<F>(results[part], parts[part], row, col, place.eight, fourth, scale,
                     turned[part]);
      }
    }
    if (out.transposed == nullptr) continue;
    __syncthreads();
#pragma unroll
    for (int part = 0; part < kParts; ++part) put_turned(parts[part], row0, col0, turned[part]);
    __syncthreads();
  }
  largest.say();
}

template <class F, template <class> class A, bool kGated, bool kBackward>
void launch(const OpContext& op) {
  const Shape& h = op.in(kBackward ? int{activation_backward::kH} : activation::kH).shape;
  const std::int64_t rows = h.rows(), f = h.cols() / (kGated ? 2 : 1);
  const CodesOut all = codes_out(op, rows, kBackward ? h.cols() : f);
  const auto columns_from = [&](std::int64_t col) {
    return CodesOut{all.codes == nullptr ? nullptr : all.codes + col,
                    all.transposed == nullptr ? nullptr : all.transposed + col * rows, rows, f,
                    all.ld};
  };
  const std::array<CodesOut, 2> parts = {columns_from(0), columns_from(f)};
  const Units units = empty_units(op);
  const unsigned blocks = grid_of_tiles(parts[0].tiles(), op.device().multiprocessors);
  for (const bool again : {false, true}) {
    codes_kernel<F, A, kGated, kBackward><<<blocks, kTileThreads, 0, op.stream()>>>(
        kBackward ? op.in_data<dbf16>(activation_backward::kDy) : nullptr,
        op.in_data<dbf16>(kBackward ? int{activation_backward::kH} : activation::kH), parts, units,
        again);
    QT_LAUNCHED();
  }
}

}  // namespace

void activation_codes(const OpContext& op) {
  const auto& attrs = op.attrs<ActivationAttrs>();
  const bool backward = op.op.kind == OpKind::kActivationBackward;
  QT_CHECK(op.in(backward ? int{activation_backward::kH} : activation::kH).dtype == DType::kBF16,
           "eight-bit codes of something else than bf16");
  with_fp8_type(codes_format(op), [&]<class F>(F) {
    const auto with_function = [&]<template <class> class A>() {
      const auto with_gate = [&]<bool kGated>() {
        backward ? launch<F, A, kGated, true>(op) : launch<F, A, kGated, false>(op);
      };
      attrs.gated ? with_gate.template operator()<true>() : with_gate.template operator()<false>();
    };
    attrs.function == Nonlinearity::kGeluTanh ? with_function.template operator()<Gelu>()
                                              : with_function.template operator()<Relu>();
  });
}

}  // namespace quintet::cuda
