#include "tests/ops/reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/philox.h"

namespace quintet::testing {
namespace {

HostTensor like(const HostTensor& t, Shape shape) {
  return {shape, t.dtype, std::vector<double>(static_cast<std::size_t>(shape.numel()), 0)};
}

// The bucket of a relative position, from the definition: the first half of the buckets are single
// distances, the others divide what is left up to max_distance evenly on a logarithmic scale.
std::int64_t bucket(std::int64_t distance, bool causal, std::int64_t buckets,
                    std::int64_t max_distance) {
  std::int64_t offset = 0;
  if (!causal) {
    buckets /= 2;
    offset = distance > 0 ? buckets : 0;
    distance = std::abs(distance);
  } else {
    distance = std::max<std::int64_t>(-distance, 0);
  }
  const std::int64_t half = buckets / 2;
  if (distance < half) return offset + distance;
  const double position = std::log(static_cast<double>(distance) / static_cast<double>(half)) /
                          std::log(static_cast<double>(max_distance) / static_cast<double>(half));
  // A hair above, so that a distance exactly on a boundary falls into the upper bucket.
  const auto step = static_cast<std::int64_t>(position * static_cast<double>(half) + 1e-9);
  return offset + std::min(half + step, buckets - 1);
}

}  // namespace

HostTensor reference_embedding(const Tensors& in) {
  const HostTensor &table = in[0], &ids = in[1];
  Shape shape = ids.shape;
  shape.append(table.shape.cols());
  HostTensor out = like(table, shape);
  const std::int64_t d = table.shape.cols();
  for (std::int64_t i = 0; i < ids.shape.numel(); ++i) {
    for (std::int64_t j = 0; j < d; ++j) {
      out.at(i * d + j) = table.at(static_cast<std::int64_t>(ids.at(i)) * d + j);
    }
  }
  return out;
}

HostTensor reference_rms_norm(const Tensors& in, double epsilon) {
  const HostTensor &x = in[0], &weight = in[1];
  HostTensor out = like(x, x.shape);
  const std::int64_t d = x.shape.cols();
  for (std::int64_t r = 0; r < x.shape.rows(); ++r) {
    double square = 0;
    for (std::int64_t i = 0; i < d; ++i) square += x.at(r * d + i) * x.at(r * d + i);
    const double norm = std::sqrt(square / static_cast<double>(d) + epsilon);
    for (std::int64_t i = 0; i < d; ++i) out.at(r * d + i) = weight.at(i) * x.at(r * d + i) / norm;
  }
  return out;
}

HostTensor reference_matmul(const Tensors& in, const MatmulAttrs& attrs) {
  const HostTensor &a = in[0], &b = in[1];
  const std::int64_t m = attrs.transpose_a ? a.shape.cols() : a.shape.rows();
  const std::int64_t k = attrs.transpose_a ? a.shape.rows() : a.shape.cols();
  const std::int64_t n = attrs.transpose_b ? b.shape.rows() : b.shape.cols();
  HostTensor out = like(a, attrs.transpose_a ? Shape{m, n} : a.shape.with_cols(n));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = in.size() > 2 && !in[2].absent ? in[2].at(i * n + j) : 0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += a.at(attrs.transpose_a ? l * m + i : i * k + l) *
               b.at(attrs.transpose_b ? j * k + l : l * n + j);
      }
      out.at(i * n + j) = sum;
    }
  }
  return out;
}

HostTensor reference_activation(const Tensors& in, const ActivationAttrs& attrs) {
  const HostTensor& h = in[0];
  const std::int64_t width = h.shape.cols(), f = attrs.gated ? width / 2 : width;
  HostTensor out = like(h, h.shape.with_cols(f));
  for (std::int64_t r = 0; r < h.shape.rows(); ++r) {
    for (std::int64_t i = 0; i < f; ++i) {
      const double x = h.at(r * width + i);
      double value = std::max(x, 0.0);
      if (attrs.function == Nonlinearity::kGeluTanh) {
        const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
        value = 0.5 * x * (1 + std::tanh(u));
      }
      out.at(r * f + i) = attrs.gated ? value * h.at(r * width + f + i) : value;
    }
  }
  return out;
}

double reference_mask(double rate, std::uint64_t seed, std::uint64_t site, std::int64_t step,
                      std::int64_t index) {
  const std::uint64_t stream = site + static_cast<std::uint64_t>(step) * 0x9E3779B97F4A7C15ull;
  const auto words = philox(seed, stream, static_cast<std::uint64_t>(index) / 4);
  const double uniform = words[static_cast<std::size_t>(index % 4)] * 0x1p-32;
  return uniform < rate ? 0 : 1 / (1 - rate);
}

HostTensor reference_dropout(const Tensors& in, const DropoutAttrs& attrs) {
  const HostTensor& x = in[0];
  HostTensor out = like(x, x.shape);
  const std::int64_t cols = x.shape.cols();
  for (std::int64_t i = 0; i < x.shape.numel(); ++i) {
    const std::int64_t index =
        (attrs.index.row_offset + i / cols) * attrs.index.cols + attrs.index.col_offset + i % cols;
    const double factor = reference_mask(static_cast<double>(attrs.rate), attrs.seed, attrs.site,
                                         static_cast<std::int64_t>(in[1].at(0)), index);
    out.at(i) = x.at(i) * factor + (in.size() > 2 && !in[2].absent ? in[2].at(i) : 0);
  }
  return out;
}

AttentionResult reference_attention(const Tensors& in, const AttentionAttrs& a) {
  const HostTensor& q = in[0];
  const bool cross = !in[1].absent;
  const HostTensor& kv = cross ? in[1] : in[0];
  const std::int64_t batch = q.shape[0], queries = q.shape[1], keys = kv.shape[1];
  const std::int64_t width = std::int64_t{a.heads} * a.head_dim;
  const std::int64_t q_row = q.shape.cols(), kv_row = kv.shape.cols();
  const std::int64_t k_at = cross ? 0 : width, v_at = cross ? width : 2 * width;
  AttentionResult result;
  result.out = like(q, Shape{batch, queries, width});
  result.lse = like(scalar(0), Shape{batch, a.heads, queries});
  std::vector<double> scores(static_cast<std::size_t>(keys));
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t length = in[3].absent ? keys : static_cast<std::int64_t>(in[3].at(b));
    for (std::int64_t h = 0; h < a.heads; ++h) {
      for (std::int64_t i = 0; i < queries; ++i) {
        const std::int64_t seen = a.causal ? std::min(length, i + 1) : length;
        double max = -INFINITY;
        const auto hidden = [&](std::int64_t j) {
          return in.size() > 5 && !in[5].absent &&
                 in[5].at(b * queries + i) != in[6].at(b * keys + j);
        };
        for (std::int64_t j = 0; j < seen; ++j) {
          if (hidden(j)) {
            scores[static_cast<std::size_t>(j)] = -INFINITY;
            continue;
          }
          double score = 0;
          for (std::int64_t e = 0; e < a.head_dim; ++e) {
            score += q.at((b * queries + i) * q_row + h * a.head_dim + e) *
                     kv.at((b * keys + j) * kv_row + k_at + h * a.head_dim + e);
          }
          if (!in[2].absent) {
            score += in[2].at(bucket(j - i, a.causal, a.buckets, a.max_distance) * a.heads + h);
          }
          scores[static_cast<std::size_t>(j)] = score;
          max = std::max(max, score);
        }
        if (max == -INFINITY) continue;  // nothing to see: zeros
        double sum = 0;
        for (std::int64_t j = 0; j < seen; ++j)
          sum += std::exp(scores[static_cast<std::size_t>(j)] - max);
        result.lse.at((b * a.heads + h) * queries + i) = max + std::log(sum);
        for (std::int64_t j = 0; j < seen; ++j) {
          double p = std::exp(scores[static_cast<std::size_t>(j)] - max) / sum;
          if (a.dropout_rate > 0) {
            const std::int64_t row =
                (((a.first_sample + b) * a.global_heads + a.first_head + h) * queries + i) * keys;
            p *= reference_mask(static_cast<double>(a.dropout_rate), a.dropout_seed, a.dropout_site,
                                static_cast<std::int64_t>(in[4].at(0)), row + j);
          }
          for (std::int64_t e = 0; e < a.head_dim; ++e) {
            result.out.at((b * queries + i) * width + h * a.head_dim + e) +=
                p * kv.at((b * keys + j) * kv_row + v_at + h * a.head_dim + e);
          }
        }
      }
    }
  }
  return result;
}

HostTensor reference_loss(const Tensors& in, const LinearCrossEntropyAttrs& attrs) {
  const HostTensor &x = in[0], &weight = in[1], &labels = in[2];
  const std::int64_t d = x.shape.cols(), vocabulary = weight.shape.rows();
  HostTensor loss = like(scalar(0), Shape{2});
  std::vector<double> logits(static_cast<std::size_t>(vocabulary));
  for (std::int64_t i = 0; i < labels.shape.numel(); ++i) {
    if (labels.at(i) < 0) continue;
    double max = -INFINITY;
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      double logit = 0;
      for (std::int64_t e = 0; e < d; ++e) logit += x.at(i * d + e) * weight.at(v * d + e);
      logits[static_cast<std::size_t>(v)] = logit * static_cast<double>(attrs.scale);
      max = std::max(max, logits[static_cast<std::size_t>(v)]);
    }
    double sum = 0, mean = 0;
    for (const double logit : logits) sum += std::exp(logit - max);
    for (const double logit : logits) mean += logit / static_cast<double>(vocabulary);
    const double lse = max + std::log(sum), smoothing = static_cast<double>(attrs.smoothing);
    const double target =
        (1 - smoothing) * logits[static_cast<std::size_t>(labels.at(i))] + smoothing * mean;
    loss.at(0) += (lse - target) / in[3].at(0);
    loss.at(1) += static_cast<double>(attrs.z_loss) * lse * lse / in[3].at(0);
  }
  return loss;
}

}  // namespace quintet::testing
