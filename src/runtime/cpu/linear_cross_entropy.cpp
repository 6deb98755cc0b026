#include "program/ops/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/kernel.h"
#include "runtime/cpu/vector_math.h"

namespace quintet::cpu {

namespace lce = linear_cross_entropy;

namespace {

// T: type of x, weight and dx; G: type of the weight's gradient.
template <class T, class G>
class Chunks {
 public:
  explicit Chunks(const OpContext& op)
      : op_(op),
        attrs_(op.attrs<LinearCrossEntropyAttrs>()),
        tokens_(op.in(lce::kX).shape.rows()),
        width_(op.in(lce::kX).shape.cols()),
        stored_(op.in(lce::kWeight).shape.rows()),
        vocabulary_(attrs_.words > 0 ? attrs_.words : stored_),
        chunk_(std::min(attrs_.chunk, tokens_)),
        layout_(lce::Scratch::of(chunk_, width_, stored_,
                                 op.group() == nullptr ? 1 : op.group()->size())),
        logits_(op.scratch()),
        max_(logits_ + layout_.logits),
        sum_(max_ + chunk_),
        target_(sum_ + chunk_),
        exchange_(max_ + layout_.stats),
        x_copy_(exchange_ + layout_.exchange),
        dx_copy_(x_copy_ + chunk_ * width_),
        w_copy_(dx_copy_ + chunk_ * width_),
        dw_copy_(w_copy_ + layout_.weight_rows * width_) {
    const float count = *op.in_data<float>(lce::kCount);
    inverse_count_ = count > 0 ? 1.0f / count : 0.0f;
    const std::int64_t all = attrs_.all_words > 0 ? attrs_.all_words : vocabulary_;
    spread_ = attrs_.smoothing / static_cast<float>(all);
  }

  void run() {
    const bool gradients = op_.has_out(lce::kDx);
    auto* token_loss =
        op_.has_out(lce::kTokenLoss) ? op_.out_data<float>(lce::kTokenLoss) : nullptr;
    double cross_entropy = 0, z_loss = 0;
    bool first = !op_.has_in(lce::kDWeightAddend);
    for (std::int64_t begin = 0; begin < tokens_; begin += chunk_) {
      const std::int64_t rows = std::min(chunk_, tokens_ - begin);
      compute_logits(begin, rows);
      compute_exponentials(begin, rows);
      const auto* labels = op_.in_data<std::int32_t>(lce::kLabels) + begin;
      for (std::int64_t r = 0; r < rows; ++r) {
        if (token_loss != nullptr) token_loss[begin + r] = 0;
        if (labels[r] < 0) continue;
        const double lse = log_sum_exp(r);
        const double loss = lse - static_cast<double>(target_[r]);
        if (token_loss != nullptr) token_loss[begin + r] = static_cast<float>(loss);
        cross_entropy += loss;
        z_loss += static_cast<double>(attrs_.z_loss) * lse * lse;
      }
      if (gradients) turn_into_gradients(begin, rows);
      if (gradients) accumulate_gradients(begin, rows, first);
      first = false;
    }
    auto* loss = op_.out_data<float>(lce::kLoss);
    const auto* addend = op_.in_data<float>(lce::kLossAddend);
    loss[0] = (addend == nullptr ? 0.0f : addend[0]) +
              static_cast<float>(cross_entropy * static_cast<double>(inverse_count_));
    loss[1] = (addend == nullptr ? 0.0f : addend[1]) +
              static_cast<float>(z_loss * static_cast<double>(inverse_count_));
  }

 private:
  static constexpr bool kIsFloat = std::is_same_v<T, float>;

  const float* x_rows(std::int64_t begin, std::int64_t rows) {
    const T* x = op_.in_data<T>(lce::kX) + begin * width_;
    if constexpr (kIsFloat) {
      return x;
    } else {
      widen(x, x_copy_, rows * width_);
      return x_copy_;
    }
  }

  // Calls body(first row, rows, weight in float32) for the whole weight, or block after block where
  // it has to be widened first.
  template <class Body>
  void for_weight_blocks(const Body& body) {
    const T* weight = op_.in_data<T>(lce::kWeight);
    if constexpr (kIsFloat) {
      body(std::int64_t{0}, vocabulary_, weight);
    } else {
      for (std::int64_t v = 0; v < vocabulary_; v += layout_.weight_rows) {
        const std::int64_t rows = std::min(layout_.weight_rows, vocabulary_ - v);
        widen(weight + v * width_, w_copy_, rows * width_);
        body(v, rows, w_copy_);
      }
    }
  }

  void compute_logits(std::int64_t begin, std::int64_t rows) {
    const float* x = x_rows(begin, rows);
    for_weight_blocks([&](std::int64_t v, std::int64_t count, const float* weight) {
      gemm(false, true, rows, count, width_, attrs_.scale, x, width_, weight, width_, 0,
           logits_ + v, vocabulary_);
    });
  }

  // Replaces each row of logits by exp(logit - max), and finds for each token the maximum, the sum
  // of these exponentials and the logit its label asks for: over all words, wherever they are.
  void compute_exponentials(std::int64_t begin, std::int64_t rows) {
    const auto* labels = op_.in_data<std::int32_t>(lce::kLabels) + begin;
    const auto for_rows = [&](const auto& body) {
      parallel_for(rows, row_grain(vocabulary_), [&](std::int64_t first, std::int64_t last, int) {
        for (std::int64_t r = first; r < last; ++r) body(r, logits_ + r * vocabulary_);
      });
    };
    for_rows([&](std::int64_t r, float* row) {
      if constexpr (!kIsFloat) round(row);  // stored in the working precision, here as on a device
      float max = -3e38f;
#pragma omp simd reduction(max : max)
      for (std::int64_t v = 0; v < vocabulary_; ++v) max = std::max(max, row[v]);
      max_[r] = max;
    });
    if (op_.group() != nullptr) op_.group()->all_reduce_now(max_, rows, Reduction::kMax, exchange_);
    for_rows([&](std::int64_t r, float* row) {
      const std::int64_t label = labels[r] - attrs_.first_word;
      target_[r] = label >= 0 && label < vocabulary_ ? (1 - attrs_.smoothing) * row[label] : 0.0f;
      if (spread_ > 0) target_[r] += spread_ * sum_of(row, [](float& logit) { return logit; });
      sum_[r] = exponentials(row, max_[r]);
    });
    // sum_ and target_ lie side by side, a whole chunk each.
    if (op_.group() != nullptr)
      op_.group()->all_reduce_now(sum_, 2 * chunk_, Reduction::kSum, exchange_);
  }

  double log_sum_exp(std::int64_t r) const {
    return static_cast<double>(max_[r]) + std::log(static_cast<double>(sum_[r]));
  }

  // d(loss)/d(logit) = (softmax (1 + 2 z lse) - target) / count, in place of the exponentials; the
  // target is 1 - smoothing for the label, and its share of the smoothing for each word.
  void turn_into_gradients(std::int64_t begin, std::int64_t rows) {
    const auto* labels = op_.in_data<std::int32_t>(lce::kLabels) + begin;
    parallel_for(rows, row_grain(vocabulary_), [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t r = first; r < last; ++r) {
        float* row = logits_ + r * vocabulary_;
        if (labels[r] < 0) {
          std::memset(row, 0, static_cast<std::size_t>(vocabulary_) * sizeof(float));
          continue;
        }
        const auto lse = static_cast<float>(log_sum_exp(r));
        const float factor = (1 + 2 * attrs_.z_loss * lse) * inverse_count_ / sum_[r];
        const float even = spread_ * inverse_count_;
#pragma omp simd
        for (std::int64_t v = 0; v < vocabulary_; ++v) row[v] = row[v] * factor - even;
        const std::int64_t label = labels[r] - attrs_.first_word;
        if (label >= 0 && label < vocabulary_)
          row[label] -= (1 - attrs_.smoothing) * inverse_count_;
        if constexpr (!kIsFloat) round(row);
      }
    });
  }

  void round(float* row) const {
#pragma omp simd
    for (std::int64_t v = 0; v < vocabulary_; ++v) row[v] = static_cast<float>(T(row[v]));
  }

  // Replaces a row by exp(row - max) and returns the sum.
  float exponentials(float* row, float max) const {
    return sum_of(row, [max](float& logit) { return logit = fast_exp(logit - max); });
  }

  // The sum of value(element) over a row, added up in blocks: a plain float32 sum over 250,112
  // words would lose four digits.
  template <class Value>
  float sum_of(float* row, const Value& value) const {
    double total = 0;
    constexpr std::int64_t kBlock = 1024;
    for (std::int64_t v = 0; v < vocabulary_; v += kBlock) {
      const std::int64_t end = std::min(v + kBlock, vocabulary_);
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = v; i < end; ++i) sum += value(row[i]);
      total += static_cast<double>(sum);
    }
    return static_cast<float>(total);
  }

  void accumulate_gradients(std::int64_t begin, std::int64_t rows, bool overwrite) {
    const float* x = x_rows(begin, rows);
    T* dx_out = op_.out_data<T>(lce::kDx) + begin * width_;
    float* dx = dx_copy_;
    if constexpr (kIsFloat) dx = dx_out;
    G* dw = op_.out_data<G>(lce::kDWeight);
    if (overwrite) std::fill(dw + vocabulary_ * width_, dw + stored_ * width_, G(0.0f));  // padding
    for_weight_blocks([&](std::int64_t v, std::int64_t count, const float* weight) {
      gemm(false, false, rows, width_, count, attrs_.scale, logits_ + v, vocabulary_, weight,
           width_, v == 0 ? 0.0f : 1.0f, dx, width_);
    });
    if constexpr (!kIsFloat) narrow(dx, dx_out, rows * width_);
    if constexpr (std::is_same_v<G, float>) {
      gemm(true, false, vocabulary_, width_, rows, attrs_.scale, logits_, vocabulary_, x, width_,
           overwrite ? 0.0f : 1.0f, dw, width_);
    } else {
      for (std::int64_t v = 0; v < vocabulary_; v += layout_.weight_rows) {
        const std::int64_t count = std::min(layout_.weight_rows, vocabulary_ - v);
        if (!overwrite) widen(dw + v * width_, dw_copy_, count * width_);
        gemm(true, false, count, width_, rows, attrs_.scale, logits_ + v, vocabulary_, x, width_,
             overwrite ? 0.0f : 1.0f, dw_copy_, width_);
        narrow(dw_copy_, dw + v * width_, count * width_);
      }
    }
  }

  const OpContext& op_;
  const LinearCrossEntropyAttrs& attrs_;
  const std::int64_t tokens_, width_;
  const std::int64_t stored_, vocabulary_;  // rows of the weight, and how many of them are words
  const std::int64_t chunk_;
  const lce::Scratch layout_;
  float* const logits_;
  float *const max_, *const sum_, *const target_;  // for each token of the chunk
  float* const exchange_;
  float *const x_copy_, *const dx_copy_, *const w_copy_, *const dw_copy_;
  float inverse_count_ = 0;
  float spread_ = 0;  // each word's share of the smoothing
};

}  // namespace

void linear_cross_entropy(const OpContext& op) {
  const DType dtype = op.in(lce::kX).dtype;
  const DType grad_dtype = op.has_out(lce::kDWeight) ? op.out(lce::kDWeight).dtype : dtype;
  with_float_type(dtype, [&]<class T>(T) {
    with_float_type(grad_dtype, [&]<class G>(G) { Chunks<T, G>(op).run(); });
  });
}

}  // namespace quintet::cpu
