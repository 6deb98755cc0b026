#include "model/stages.h"

#include <algorithm>
#include <limits>

namespace quintet {
namespace {

// Forward operations of each part, in the order of the pipeline: encoder layers, decoder layers,
// head. The backward costs twice as much for all of them.
std::vector<double> part_costs(const T5Config& c, std::int64_t source, std::int64_t target) {
  const ForwardFlops forward = forward_flops(c, source, target);
  std::vector<double> costs(static_cast<std::size_t>(c.encoder_layers), forward.encoder_layer);
  costs.insert(costs.end(), static_cast<std::size_t>(c.decoder_layers), forward.decoder_layer);
  costs.push_back(forward.head);
  return costs;
}

}  // namespace

Result<StageCut> cut_into_stages(const T5Config& config, std::int64_t source, std::int64_t target,
                                 std::int32_t chunks) {
  const std::vector<double> costs = part_costs(config, source, target);
  const auto parts = static_cast<std::int32_t>(costs.size());
  if (chunks > parts) {
    return usage_error(
        "{} pipeline pieces (stages x interleave) for {} encoder layers, {} decoder layers and the "
        "head: "
        "at most {} are possible",
        chunks, config.encoder_layers, config.decoder_layers, parts);
  }
  // best[k][i]: the least possible cost of the costliest piece when the first i parts are cut into
  // k.
  const auto at = [](std::int32_t i) { return static_cast<std::size_t>(i); };
  const double infinite = std::numeric_limits<double>::max();
  std::vector<std::vector<double>> best(at(chunks + 1),
                                        std::vector<double>(at(parts + 1), infinite));
  std::vector<std::vector<std::int32_t>> from(at(chunks + 1),
                                              std::vector<std::int32_t>(at(parts + 1), 0));
  std::vector<double> sum(at(parts + 1), 0);
  for (std::int32_t i = 0; i < parts; ++i) sum[at(i + 1)] = sum[at(i)] + costs[at(i)];
  best[0][0] = 0;
  for (std::int32_t k = 1; k <= chunks; ++k) {
    for (std::int32_t i = k; i <= parts; ++i) {
      for (std::int32_t j = k - 1; j < i; ++j) {
        const double worst = std::max(best[at(k - 1)][at(j)], sum[at(i)] - sum[at(j)]);
        if (worst < best[at(k)][at(i)]) {
          best[at(k)][at(i)] = worst;
          from[at(k)][at(i)] = j;
        }
      }
    }
  }
  std::vector<std::int32_t> chunk_of(at(parts), 0);
  for (std::int32_t k = chunks, end = parts; k > 0; --k) {
    const std::int32_t begin = from[at(k)][at(end)];
    std::fill(chunk_of.begin() + begin, chunk_of.begin() + end, k - 1);
    end = begin;
  }
  StageCut cut;
  cut.chunks = chunks;
  cut.encoder.assign(chunk_of.begin(), chunk_of.begin() + config.encoder_layers);
  cut.decoder.assign(chunk_of.begin() + config.encoder_layers, chunk_of.end() - 1);
  cut.head = chunk_of.back();
  return cut;
}

}  // namespace quintet
