#include "lab/search/sampler.h"

#include <algorithm>

#include "base/philox.h"
#include "lab/search/gp.h"
#include "lab/search/sobol.h"
#include "lab/search/tpe.h"

namespace quintet {
namespace {

constexpr std::int64_t kAttempts = 4096;  // to find settings that were not tried before

std::vector<double> random_point(PhiloxSequence& random, std::size_t dimensions) {
  std::vector<double> point(dimensions);
  for (double& unit : point) unit = random.uniform();
  return point;
}

bool was_tried(const Settings& settings, std::span<const TriedSettings> past) {
  return std::any_of(past.begin(), past.end(),
                     [&](const TriedSettings& one) { return one.settings == settings; });
}

}  // namespace

std::optional<Settings> propose(const SearchSpace& space, const SamplerOptions& options,
                                std::int64_t trial, std::span<const TriedSettings> past) {
  PhiloxSequence random(options.seed,
                        stream_of("search.trial") + static_cast<std::uint64_t>(trial));
  std::vector<Settings> candidates;
  if (trial >= options.startup) {
    if (options.kind == "tpe") candidates = tpe_candidates(space, past, random);
    if (options.kind == "gp") candidates = gp_candidates(space, past, random);
  }
  for (const Settings& settings : candidates) {
    if (!was_tried(settings, past)) return settings;
  }
  const bool even =
      options.kind != "random" && candidates.empty() && space.size() <= kSobolDimensions;
  for (std::int64_t attempt = 0; attempt < kAttempts; ++attempt) {
    // Later attempts are so far along the sequence that no trial's first one is there.
    const auto index = static_cast<std::uint32_t>(trial + (attempt << 20));
    const Settings settings =
        space.settings_at(even ? shifted_sobol(options.seed, index, space.size())
                               : random_point(random, space.size()));
    if (!was_tried(settings, past)) return settings;
  }
  return std::nullopt;
}

TrialBeliefs believe(const SearchSpace& space, const SamplerOptions& options,
                     std::span<const TriedSettings> past) {
  if (options.kind != "gp" || std::ssize(past) < options.startup) return {};
  std::uint64_t results = 0;  // another stream for whatever is known
  for (const TriedSettings& one : past) results += static_cast<std::uint64_t>(one.rung + 1);
  PhiloxSequence random(options.seed, stream_of("search.belief") + results);
  return gp_beliefs(space, past, random);
}

}  // namespace quintet
