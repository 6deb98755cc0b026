#include "data/batch.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace quintet {

void BatchFill::add(const Batch& batch) {
  source_places += static_cast<std::int64_t>(batch.source.size());
  target_places += static_cast<std::int64_t>(batch.labels.size());
  if (batch.lengths.empty()) {
    source += static_cast<std::int64_t>(batch.source.size());
  } else {
    source += std::accumulate(batch.lengths.begin(), batch.lengths.end(), std::int64_t{0});
  }
  target += std::count_if(batch.labels.begin(), batch.labels.end(),
                          [](std::int32_t label) { return label >= 0; });
}

Status check_ids(const Batch& batch, std::int64_t vocab_size) {
  const auto check = [&](const char* what, const std::vector<std::int32_t>& ids,
                         std::int64_t length, std::int32_t lowest) -> Status {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < lowest || ids[i] >= vocab_size) {
        return bad_input(
            "{} id {} (sequence {}, position {}) is outside the model's vocabulary of {}", what,
            ids[i], static_cast<std::int64_t>(i) / length, static_cast<std::int64_t>(i) % length,
            vocab_size);
      }
    }
    return {};
  };
  QT_TRY(check("source", batch.source, batch.source_length, 0));
  QT_TRY(check("target", batch.target, batch.target_length, 0));
  // Any negative label means "does not count"; the reference writes -100.
  QT_TRY(check("label", batch.labels, batch.target_length, INT32_MIN));
  for (const std::int32_t length : batch.lengths) {
    if (length < 1 || length > batch.source_length) {
      return bad_input("a sequence length of {}: expected 1 to {}", length, batch.source_length);
    }
  }
  return {};
}

void shift_right(std::span<const std::int32_t> labels, std::int64_t target_length,
                 std::int32_t start, std::int32_t pad, std::span<std::int32_t> target) {
  QT_CHECK(labels.size() == target.size(), "{} labels, {} targets", labels.size(), target.size());
  const auto length = static_cast<std::size_t>(target_length);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (i % length == 0) {
      target[i] = start;
    } else {
      target[i] = labels[i - 1] < 0 ? pad : labels[i - 1];
    }
  }
}

void shift_right_in_segments(std::span<const std::int32_t> labels,
                             std::span<const std::int32_t> segments, std::int64_t target_length,
                             std::int32_t start, std::int32_t pad, std::span<std::int32_t> target) {
  QT_CHECK(segments.size() == labels.size(), "{} labels, {} segments", labels.size(),
           segments.size());
  shift_right(labels, target_length, start, pad, target);
  const auto length = static_cast<std::size_t>(target_length);
  for (std::size_t i = 1; i < segments.size(); ++i) {
    if (i % length != 0 && segments[i] != segments[i - 1]) {
      target[i] = segments[i] == 0 ? pad : start;
    }
  }
}

}  // namespace quintet
