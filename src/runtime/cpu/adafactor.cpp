#include "program/ops/adafactor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "runtime/cpu/kernel.h"
#include "runtime/cpu/master.h"

namespace quintet::cpu {
namespace {

// The run of a segment, cut into rows of the part: row r has columns [begin, end) of the part,
// found at flat[offset + column]. Padding rows are left out.
struct RowRun {
  std::int64_t begin, end, offset;
};
RowRun row_run(const AdafactorSegment& s, std::int64_t row) {
  const std::int64_t first = s.first, last = s.first + (s.end - s.begin);  // elements of the part
  const std::int64_t at = row * s.part_cols;
  return {std::clamp(first - at, std::int64_t{0}, s.part_cols),
          std::clamp(last - at, std::int64_t{0}, s.part_cols), s.begin + at - first};
}
using adafactor::first_row;
using adafactor::row_count;

bool is_poisoned(float scale) {
  return std::isnan(scale);
}

template <class G>
void sums_of(const AdafactorSegment& s, const G* grad, float* sums) {
  std::memset(sums, 0, static_cast<std::size_t>(s.state_size()) * sizeof(float));
  const auto square = [](G g) { return static_cast<float>(g) * static_cast<float>(g); };
  if (!s.counted) return;
  const std::int64_t base = first_row(s), count = row_count(s);
  if (!s.factored) {
    for (std::int64_t r = base; r < base + count; ++r) {
      const RowRun run = row_run(s, r);
      float* to = sums + (s.row0 + r) * s.cols + s.col0;
      for (std::int64_t c = run.begin; c < run.end; ++c) to[c] = square(grad[run.offset + c]);
    }
    return;
  }
  float *rows = sums + s.row0, *cols = sums + s.rows + s.col0;
  parallel_for(count, row_grain(s.part_cols), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = base + begin; r < base + end; ++r) {
      const RowRun run = row_run(s, r);
      const G* g = grad + run.offset;
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t c = run.begin; c < run.end; ++c) sum += square(g[c]);
      rows[r] = sum;
    }
  });
  const std::int64_t grain = std::max<std::int64_t>(64, row_grain(count));
  parallel_for(s.part_cols, grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = base; r < base + count; ++r) {
      const RowRun run = row_run(s, r);
      const G* g = grad + run.offset;
#pragma omp simd
      for (std::int64_t c = std::max(begin, run.begin); c < std::min(end, run.end); ++c) {
        cols[c] += square(g[c]);
      }
    }
  });
}

// Calls body(flat index, factor) along the elements of a segment's run in one row.
template <class Body>
void for_row(const AdafactorSegment& s, const float* factors, std::int64_t row, const Body& body) {
  const RowRun run = row_run(s, row);
  if (s.factored) {
    const float r = factors[s.row0 + row];
    const float* c = factors + s.rows + s.col0;
    for (std::int64_t i = run.begin; i < run.end; ++i) body(run.offset + i, r * c[i]);
  } else {
    const float* f = factors + (s.row0 + row) * s.cols + s.col0;
    for (std::int64_t i = run.begin; i < run.end; ++i) body(run.offset + i, f[i]);
  }
}

}  // namespace

void adafactor_sums(const OpContext& op) {
  const auto& attrs = op.attrs<AdafactorAttrs>();
  auto* sums = op.out_data<float>(adafactor_sums::kSums);
  double total = 0;
  with_float_type(op.in(adafactor_sums::kGrad).dtype, [&]<class G>(G) {
    const auto* grad = op.in_data<G>(adafactor_sums::kGrad);
    for (const AdafactorSegment& s : attrs.segments) {
      float* own = sums + s.state;
      sums_of(s, grad, own);
      if (!s.in_norm) continue;
      const std::int64_t once = s.factored ? s.rows : s.state_size();
      for (std::int64_t i = 0; i < once; ++i) total += static_cast<double>(own[i]);
    }
  });
  *op.out_data<float>(adafactor_sums::kSquare) = static_cast<float>(total);
}

void adafactor_moments(const OpContext& op) {
  const auto& attrs = op.attrs<AdafactorAttrs>();
  const auto* sums = op.in_data<float>(adafactor_moments::kSums);
  const auto step = static_cast<double>(*op.in_data<std::int64_t>(adafactor_moments::kStep));
  const auto beta2 = static_cast<float>(1 - std::pow(step, static_cast<double>(attrs.decay_rate)));
  auto* state = op.out_data<float>(adafactor_moments::kStateOut);
  auto* factors = op.out_data<float>(adafactor_moments::kFactors);
  const float scale = *op.in_data<float>(adafactor_moments::kScale);
  if (is_poisoned(scale)) {
    std::memset(factors, 0, static_cast<std::size_t>(op.out(adafactor_moments::kFactors).bytes()));
    return;
  }
  for (const AdafactorSegment& s : attrs.segments) {
    const float* sum = sums + s.state;
    float *mean = state + s.state, *factor = factors + s.state;
    const auto blend = [&](std::int64_t from, std::int64_t count, std::int64_t divisor) {
      for (std::int64_t i = from; i < from + count; ++i) {
        const float square = sum[i] * scale * scale / static_cast<float>(divisor) + attrs.epsilon1;
        mean[i] = beta2 * mean[i] + (1 - beta2) * square;
      }
    };
    if (!s.factored) {
      blend(0, s.state_size(), 1);
      for (std::int64_t i = 0; i < s.state_size(); ++i) factor[i] = 1 / std::sqrt(mean[i]);
      continue;
    }
    blend(0, s.rows, s.cols);
    blend(s.rows, s.cols, s.rows);
    double total = 0;
    for (std::int64_t i = 0; i < s.rows; ++i) total += static_cast<double>(mean[i]);
    const auto row_mean = static_cast<float>(total / static_cast<double>(s.rows));
    for (std::int64_t i = 0; i < s.rows; ++i) factor[i] = 1 / std::sqrt(mean[i] / row_mean);
    for (std::int64_t i = s.rows; i < s.rows + s.cols; ++i) factor[i] = 1 / std::sqrt(mean[i]);
  }
}

void adafactor_rms(const OpContext& op) {
  const auto& attrs = op.attrs<AdafactorAttrs>();
  const float scale = *op.in_data<float>(adafactor_rms::kScale);
  const auto* factors = op.in_data<float>(adafactor_rms::kFactors);
  auto* squares = op.out_data<float>(adafactor_rms::kSquares);
  const auto run = [&]<class G, class W>(const G* grad, const W* weights) {
    for (std::size_t w = 0; w < attrs.segments.size(); ++w) {
      const AdafactorSegment& s = attrs.segments[w];
      const std::int64_t base = first_row(s), rows = s.counted ? row_count(s) : 0;
      double of_weight[kReduceBlocks] = {}, of_update[kReduceBlocks] = {};
      const std::int64_t blocks = std::min(kReduceBlocks, rows);
      parallel_for(
          blocks, row_grain((rows + blocks - 1) / std::max<std::int64_t>(blocks, 1) * s.part_cols),
          [&](std::int64_t first, std::int64_t last, int) {
            for (std::int64_t block = first; block < last; ++block) {
              for (std::int64_t r = rows * block / blocks; r < rows * (block + 1) / blocks; ++r) {
                float update = 0, weight = 0;
                for_row(s, factors + s.state, base + r, [&](std::int64_t i, float factor) {
                  const float u = static_cast<float>(grad[i]) * scale * factor;
                  update += u * u;
                  weight += static_cast<float>(weights[i]) * static_cast<float>(weights[i]);
                });
                of_update[block] += static_cast<double>(update);
                of_weight[block] += static_cast<double>(weight);
              }
            }
          });
      double update = 0, weight = 0;
      for (std::int64_t block = 0; block < blocks; ++block) {
        update += of_update[block];
        weight += of_weight[block];
      }
      squares[2 * w] = static_cast<float>(update);
      squares[2 * w + 1] = static_cast<float>(weight);
    }
  };
  with_float_type(op.in(adafactor_rms::kGrad).dtype, [&]<class G>(G) {
    with_float_type(op.in(adafactor_rms::kWeights).dtype, [&]<class W>(W) {
      run(op.in_data<G>(adafactor_rms::kGrad), op.in_data<W>(adafactor_rms::kWeights));
    });
  });
}

void adafactor_apply(const OpContext& op) {
  const auto& attrs = op.attrs<AdafactorAttrs>();
  const float scale = *op.in_data<float>(adafactor_apply::kScale);
  if (is_poisoned(scale)) return;  // the gradients are not finite: leave everything as it was
  const float rate = *op.in_data<float>(adafactor_apply::kLearningRate);
  const auto* factors = op.in_data<float>(adafactor_apply::kFactors);
  const auto* squares = op.in_data<float>(adafactor_apply::kSquares);
  const bool has_ema = op.has_out(adafactor_apply::kEmaOut);
  const Ema ema{has_ema ? op.out_data<float>(adafactor_apply::kEmaOut) : nullptr, attrs.ema};
  const auto run = [&]<class G>(const G* grad, auto master) {
    for (std::size_t w = 0; w < attrs.segments.size(); ++w) {
      const AdafactorSegment& s = attrs.segments[w];
      const auto size = static_cast<float>(s.rows * s.cols);
      const float update_rms = std::sqrt(squares[2 * w] / size);
      const float weight_rms = std::sqrt(squares[2 * w + 1] / size);
      const float lr = rate * (attrs.scale_parameter ? std::max(attrs.epsilon2, weight_rms) : 1.0f);
      const float factor_all =
          scale * lr * s.rate_scale / std::max(1.0f, update_rms / attrs.clip_threshold);
      const float keep = 1 - lr * s.weight_decay;
      parallel_for(
          row_count(s), row_grain(s.part_cols), [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t r = first_row(s) + begin; r < first_row(s) + end; ++r) {
              for_row(s, factors + s.state, r, [&](std::int64_t i, float factor) {
                const float value =
                    master.load(i) * keep - static_cast<float>(grad[i]) * factor * factor_all;
                master.store(i, value);
                if (has_ema) ema.add(i, value);
              });
            }
          });
    }
  };
  with_float_type(op.in(adafactor_apply::kGrad).dtype, [&]<class G>(G) {
    with_master(op, adafactor_apply::kMaster, adafactor_apply::kWorkingIn,
                adafactor_apply::kWorking,
                [&](auto master) { run(op.in_data<G>(adafactor_apply::kGrad), master); });
  });
}

}  // namespace quintet::cpu
