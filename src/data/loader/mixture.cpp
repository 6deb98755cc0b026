#include "data/loader/mixture.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/check.h"
#include "base/text.h"

namespace quintet {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

template <class T>
bool parse_number(const std::string& text, T& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size();
}

}  // namespace

Result<std::pair<std::string, double>> parse_language_weight(const std::string& text) {
  const std::size_t at = text.find_first_of("=:");
  double weight = 0;
  if (at == std::string::npos || at == 0 || !parse_number(text.substr(at + 1), weight) ||
      !(weight >= 0 && weight <= 1e12)) {
    return usage_error("\"{}\": expected a language and its weight, e.g. de=2", text);
  }
  return std::pair(text.substr(0, at), weight);
}

Result<MixtureEntry> MixtureEntry::parse(const std::string& text) {
  MixtureEntry entry;
  for (const std::string& word : split(text, ' ')) {
    const std::size_t equals = word.find('=');
    if (entry.folder.empty()) {
      entry.folder = word;
      continue;
    }
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    const auto wrong = [&](const char* expected) {
      return usage_error("mixture \"{}\": {} = \"{}\": expected {}", text, key, value, expected);
    };
    const auto number = [&](double& target, double least) {
      return parse_number(value, target) && target >= least && target <= 1e12;
    };
    if (key == "weight") {
      if (!number(entry.weight, 1e-9)) return wrong("a number above 0");
    } else if (key == "epochs") {
      if (!number(entry.epochs, 1e-9)) return wrong("a number above 0");
    } else if (key == "alpha") {
      if (!number(entry.alpha, 0) || entry.alpha > 1) return wrong("a number from 0 to 1");
    } else if (key == "only") {
      entry.only = split(value, ',');
    } else if (key == "exclude") {
      entry.exclude = split(value, ',');
    } else if (key == "weights") {
      for (const std::string& part : split(value, ',')) {
        QT_ASSIGN(auto weight, parse_language_weight(part));
        entry.weights.push_back(std::move(weight));
      }
    } else if (key == "from") {
      if (!parse_number(value, entry.from)) return wrong("a number of samples");
    } else if (key == "until") {
      if (!parse_number(value, entry.until)) return wrong("a number of samples");
    } else {
      return usage_error(
          "mixture \"{}\": no key \"{}\"; there are weight, epochs, alpha, only, exclude, weights, "
          "from, until",
          text, key);
    }
  }
  if (entry.folder.empty()) return usage_error("mixture: an entry without a folder");
  if (entry.from >= entry.until) {
    return usage_error("mixture \"{}\": from {} until {} is nothing", text, entry.from,
                       entry.until);
  }
  return entry;
}

Mixture::Mixture(std::vector<MixturePart> parts, std::size_t streams, std::uint64_t seed)
    : seed_(seed) {
  std::vector<std::uint64_t> used(streams, 0);
  for (std::uint64_t begin = 0; begin < UINT64_MAX;) {
    // 1. Who takes part, until when at most. What an entry's languages leave over, its others get.
    Phase phase;
    phase.begin = begin;
    phase.end = UINT64_MAX;
    phase.before = used;
    std::map<std::size_t, double> whole, alive;  // by entry
    std::map<std::size_t, double> weights;       // by stream
    std::map<std::size_t, std::uint64_t> limits;
    const auto takes_part = [&](const MixturePart& part) {
      return part.from <= begin && begin < part.until && used[part.stream] < part.limit &&
             part.weight > 0;
    };
    for (const MixturePart& part : parts) {
      if (part.from > begin) phase.end = std::min(phase.end, part.from);
      if (part.from <= begin && begin < part.until) {
        phase.end = std::min(phase.end, part.until);
        whole[part.entry] += part.weight;
        if (takes_part(part)) alive[part.entry] += part.weight;
      }
    }
    for (const MixturePart& part : parts) {
      if (!takes_part(part)) continue;
      weights[part.stream] += part.weight * whole[part.entry] / alive[part.entry];
      const auto [limit, added] = limits.emplace(part.stream, part.limit);
      if (!added) limit->second = std::min(limit->second, part.limit);
    }
    if (weights.empty()) {
      end_ = begin;
      break;
    }
    for (const auto& [stream, weight] : weights) {
      phase.streams.push_back(stream);
      phase.weights.push_back(weight);
    }
    // 2. Until somebody has used up what it may.
    phases_.push_back(std::move(phase));
    Phase& now = phases_.back();
    const auto schedule = this->schedule(phases_.size() - 1);
    for (std::size_t i = 0; i < now.streams.size(); ++i) {
      const std::uint64_t limit = limits.at(now.streams[i]);
      if (limit == UINT64_MAX) continue;
      // The first sample that would be too much.
      const std::uint64_t last = schedule->sample_of(i, limit - used[now.streams[i]]);
      if (last < now.end - begin) now.end = begin + last;
    }
    if (now.end == UINT64_MAX) break;
    for (std::size_t i = 0; i < now.streams.size(); ++i) {
      used[now.streams[i]] += schedule->count_before(i, now.end - begin);
    }
    begin = now.end;
  }
}

std::shared_ptr<const LanguageSchedule> Mixture::schedule(std::size_t phase) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, schedule] : kept_) {
    if (number == phase) return schedule;
  }
  constexpr std::size_t kKept = 2;
  if (kept_.size() == kKept) kept_.erase(kept_.begin());
  kept_.emplace_back(phase,
                     std::make_shared<LanguageSchedule>(phases_[phase].weights, seed_, phase));
  return kept_.back().second;
}

Mixture::Place Mixture::at(std::uint64_t sample) const {
  QT_CHECK(sample < end_, "sample {} of a mixture that ends at {}", sample, end_);
  const auto after =
      std::upper_bound(phases_.begin(), phases_.end(), sample,
                       [](std::uint64_t value, const Phase& phase) { return value < phase.begin; });
  const auto phase = static_cast<std::size_t>(after - phases_.begin()) - 1;
  const LanguageSchedule::Place place = schedule(phase)->at(sample - phases_[phase].begin);
  const std::size_t stream = phases_[phase].streams[place.language];
  return {stream, phases_[phase].before[stream] + place.number};
}

}  // namespace quintet
