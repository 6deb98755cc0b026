#include "data/loader/row_packing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/index.h"
#include "data/loader/apportion.h"

namespace quintet {
namespace {

constexpr std::size_t kDeck = 56;  // texts among which every kind of denoising has its part

template <class T>
void shuffle(std::span<T> items, PhiloxSequence& random) {
  for (auto i = static_cast<std::uint32_t>(items.size()); i > 1; --i) {
    std::swap(items[i - 1], items[random.below(i)]);
  }
}

// The room that is left in every row, and what is in it.
class Rows {
 public:
  Rows(const Objective& objective, const RowLimits& limits)
      : objective_(objective), limits_(limits) {}

  void open_row() {
    sources_.push_back(static_cast<std::int32_t>(limits_.source));
    targets_.push_back(static_cast<std::int32_t>(limits_.target));
  }
  std::size_t size() const { return sources_.size(); }
  static constexpr std::size_t kNone = SIZE_MAX;

  // The row that a piece of these lengths leaves least room in.
  std::size_t best(std::int64_t source, std::int64_t target) const {
    // Room in the two dimensions is compared by what share of a row it is.
    const auto per_source = static_cast<float>(1.0 / static_cast<double>(limits_.source));
    const auto per_target = static_cast<float>(1.0 / static_cast<double>(limits_.target));
    std::size_t found = kNone;
    float least = 3;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      const std::int64_t s = sources_[i] - source, t = targets_[i] - target;
      if (s < 0 || t < 0) continue;
      const float a = static_cast<float>(s) * per_source, b = static_cast<float>(t) * per_target;
      // Unequal rests are of little use: what fills one dimension has no room in the other.
      const float rest = a + b + 0.5F * std::abs(a - b);
      if (rest >= least) continue;
      least = rest;
      found = i;
    }
    return found;
  }
  // The row with room for the most tokens of a piece, and how many these are.
  std::pair<std::size_t, std::uint32_t> roomiest(const PackPiece& piece) const {
    const Denoiser& denoiser = objective_.denoisers()[piece.denoiser];
    std::pair<std::size_t, std::uint32_t> found(kNone, 0);
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      const auto fits = [&](std::int64_t count) {
        return denoiser.source_length(count, piece.draw) <= sources_[i] &&
               denoiser.target_length(count, piece.draw) <= targets_[i];
      };
      if (!fits(std::max<std::int64_t>(found.second + 1, Denoiser::kLeastTokens))) continue;
      std::int64_t low = Denoiser::kLeastTokens,
                   high = piece.tokens;  // lengths grow with the count
      while (low < high) {
        const std::int64_t middle = (low + high + 1) / 2;
        if (fits(middle)) {
          low = middle;
        } else {
          high = middle - 1;
        }
      }
      found = {i, static_cast<std::uint32_t>(low)};
    }
    return found;
  }
  void take(std::size_t row, const PackPiece& piece) {
    const Denoiser& denoiser = objective_.denoisers()[piece.denoiser];
    sources_[row] -= static_cast<std::int32_t>(denoiser.source_length(piece.tokens, piece.draw));
    targets_[row] -= static_cast<std::int32_t>(denoiser.target_length(piece.tokens, piece.draw));
  }

 private:
  const Objective& objective_;
  RowLimits limits_;
  std::vector<std::int32_t> sources_, targets_;
};

struct Sized {
  PackPiece piece;
  std::int64_t source = 0, target = 0;
  double size = 0;  // of a row
};

Sized sized(const Objective& objective, const RowLimits& limits, const PackPiece& piece) {
  const Denoiser& denoiser = objective.denoisers()[piece.denoiser];
  Sized item{piece, denoiser.source_length(piece.tokens, piece.draw),
             denoiser.target_length(piece.tokens, piece.draw), 0};
  item.size = std::max(static_cast<double>(item.source) / static_cast<double>(limits.source),
                       static_cast<double>(item.target) / static_cast<double>(limits.target));
  return item;
}

std::vector<Sized> longest_first(const Objective& objective, const RowLimits& limits,
                                 std::span<const PackPiece> pieces) {
  std::vector<Sized> items;
  items.reserve(pieces.size());
  for (const PackPiece& piece : pieces) items.push_back(sized(objective, limits, piece));
  std::stable_sort(items.begin(), items.end(),
                   [](const Sized& a, const Sized& b) { return a.size > b.size; });
  return items;
}

using Placed = std::vector<std::pair<std::uint32_t, PackPiece>>;  // with their rows

// A row without text teaches nothing. It gets half of the row with the most pieces, or half of the
// longest piece; only where there is next to no text does it stay empty.
void fill_empty_rows(std::size_t count, Placed& placed) {
  std::vector<std::uint32_t> pieces(count, 0);
  for (const auto& [row, piece] : placed) ++pieces[row];
  for (std::uint32_t empty = 0; empty < count; ++empty) {
    if (pieces[empty] > 0 || placed.empty()) continue;
    const auto most = std::max_element(pieces.begin(), pieces.end());
    if (*most > 1) {
      const auto from = static_cast<std::uint32_t>(most - pieces.begin());
      std::uint32_t moved = *most / 2;
      pieces[empty] = moved;
      *most -= moved;
      for (auto it = placed.begin(); moved > 0; ++it) {
        if (it->first != from) continue;
        it->first = empty;
        --moved;
      }
      continue;
    }
    const auto longest = std::max_element(
        placed.begin(), placed.end(),
        [](const auto& a, const auto& b) { return a.second.tokens < b.second.tokens; });
    if (longest->second.tokens < 2 * Denoiser::kLeastTokens) return;
    PackPiece half = longest->second;
    longest->second.tokens /= 2;
    half.begin += longest->second.tokens;
    half.tokens -= longest->second.tokens;
    pieces[empty] = 1;
    placed.emplace_back(empty, half);
  }
}

}  // namespace

void assign_denoisers(const Objective& objective, PhiloxSequence& random,
                      std::vector<PackPiece>& pieces) {
  const auto denoisers = objective.denoisers();
  if (denoisers.size() > 1) {
    // Among texts of about equal length every kind gets its part, so that the kinds' tokens are in
    // proportion, too: otherwise some regions would need far more room than others.
    std::vector<double> weights;
    for (const Denoiser& denoiser : denoisers) weights.push_back(denoiser.weight);
    std::vector<std::uint8_t> deck;
    const std::vector<std::uint64_t> counts = apportion(kDeck, weights);
    for (std::size_t k = 0; k < counts.size(); ++k) {
      deck.insert(deck.end(), counts[k], static_cast<std::uint8_t>(k));
    }
    std::vector<std::uint32_t> order(pieces.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return pieces[a].tokens > pieces[b].tokens;
    });
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i % kDeck == 0) shuffle(std::span(deck), random);
      pieces[order[i]].denoiser = deck[i % kDeck];
    }
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (denoisers[pieces[i].denoiser].uniform_split) pieces[i].draw = random.next();
    const auto most = static_cast<std::uint32_t>(denoisers[pieces[i].denoiser].tokens);
    if (pieces[i].tokens <= most) continue;
    // The rest is a piece of its own, and has at least what an example takes.
    const std::uint32_t rest = std::max<std::uint32_t>(
        pieces[i].tokens - most, static_cast<std::uint32_t>(Denoiser::kLeastTokens));
    PackPiece next = pieces[i];
    pieces[i].tokens -= rest;
    next.begin += pieces[i].tokens;
    next.tokens = rest;
    pieces.push_back(next);
  }
}

std::size_t rows_needed(const Objective& objective, const RowLimits& limits,
                        std::span<const PackPiece> pieces) {
  Rows rows(objective, limits);
  for (const Sized& item : longest_first(objective, limits, pieces)) {
    std::size_t row = rows.best(item.source, item.target);
    if (row == Rows::kNone) {
      rows.open_row();
      row = rows.size() - 1;
    }
    rows.take(row, item.piece);
  }
  return rows.size();
}

PackedRows pack_rows(const Objective& objective, const RowLimits& limits, std::size_t count,
                     std::vector<PackPiece> pieces, PhiloxSequence& random) {
  PackedRows packed;
  Rows rows(objective, limits);
  for (std::size_t i = 0; i < count; ++i) rows.open_row();
  shuffle(std::span(pieces), random);  // among equals, chance decides
  Placed placed;
  placed.reserve(pieces.size());
  for (Sized& item : longest_first(objective, limits, pieces)) {
    PackPiece piece = item.piece;
    bool whole = true;
    while (piece.tokens > 0) {
      const Sized now = whole ? item : sized(objective, limits, piece);
      if (const std::size_t row = rows.best(now.source, now.target); row != Rows::kNone) {
        rows.take(row, piece);
        placed.emplace_back(static_cast<std::uint32_t>(row), piece);
        break;
      }
      auto [row, most] = rows.roomiest(piece);
      // What is left must still be an example.
      if (most + Denoiser::kLeastTokens > piece.tokens) {
        most = piece.tokens - static_cast<std::uint32_t>(Denoiser::kLeastTokens);
      }
      if (row == Rows::kNone || most < Denoiser::kLeastTokens || most > piece.tokens) {
        packed.left += piece.tokens;
        break;
      }
      PackPiece part = piece;
      part.tokens = most;
      rows.take(row, part);
      placed.emplace_back(static_cast<std::uint32_t>(row), part);
      piece.begin += most;
      piece.tokens -= most;
      if (whole) ++packed.cut;
      whole = false;
    }
  }
  fill_empty_rows(count, placed);
  // Rows in random order, and in each its pieces.
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  shuffle(std::span(order), random);
  shuffle(std::span(placed), random);
  std::vector<std::uint32_t> next(count, 0);
  packed.ends.assign(count, 0);
  for (const auto& [row, piece] : placed) ++packed.ends[order[row]];
  for (std::size_t i = 1; i < count; ++i) {
    next[i] = packed.ends[i - 1];
    packed.ends[i] += packed.ends[i - 1];
  }
  packed.pieces.resize(placed.size());
  for (const auto& [row, piece] : placed) packed.pieces[next[order[row]]++] = piece;
  return packed;
}

}  // namespace quintet
