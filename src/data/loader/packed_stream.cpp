#include "data/loader/packed_stream.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "data/loader/permutation.h"
#include "data/loader/random_streams.h"

namespace quintet {
namespace {

constexpr double kRowCost = 1 << 24;  // costs are whole numbers; a full row has this one
constexpr std::uint64_t kRegionsTried = 12;

constexpr std::uint32_t kMiddle = 1U << 31;  // the draw that makes a length typical
constexpr auto kLeast = static_cast<std::uint32_t>(Denoiser::kLeastTokens);

// What is linear in tokens and documents and comes near to the share of a row that they take.
StreamCost cost_of(const TokenStream& tokens, const Objective& objective, const RowLimits& limits) {
  const double mean = static_cast<double>(tokens.tokens()) /
                      static_cast<double>(std::max<std::uint64_t>(tokens.documents(), 1));
  const auto most = static_cast<double>(objective.tokens());
  const auto share = [&](double count, bool target) {
    return mean_length(objective, count, target) /
           static_cast<double>(target ? limits.target : limits.source);
  };
  const double typical = std::clamp(mean, 2.0, most);
  const bool target = share(typical, true) > share(typical, false);  // which of them is scarce
  const double slope = std::min((share(most, target) - share(2, target)) / std::max(1.0, most - 2),
                                share(typical, target) / typical);
  // Documents of less than an example's tokens are joined.
  const double joined = std::min(1.0, mean / 2);
  const double fixed =
      mean >= most ? 0 : share(typical, target) * joined - slope * std::min(typical, mean);
  StreamCost cost;
  cost.per_token = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(slope * kRowCost));
  cost.per_document = static_cast<std::uint64_t>(std::max(0.0, fixed) * kRowCost);
  return cost;
}

double share_of_rows(const Objective& objective, const RowLimits& limits,
                     const std::vector<PackPiece>& pieces) {
  double source = 0, target = 0;
  for (const PackPiece& piece : pieces) {
    const Denoiser& denoiser = objective.denoisers()[piece.denoiser];
    source += static_cast<double>(denoiser.source_length(piece.tokens, piece.draw));
    target += static_cast<double>(denoiser.target_length(piece.tokens, piece.draw));
  }
  return std::max(source / static_cast<double>(limits.source),
                  target / static_cast<double>(limits.target));
}

}  // namespace

double mean_length(const Objective& objective, double tokens, bool target) {
  double sum = 0, weights = 0;
  for (const Denoiser& denoiser : objective.denoisers()) {
    const double pieces = std::max(1.0, tokens / static_cast<double>(denoiser.tokens));
    const auto each = static_cast<std::int64_t>(
        std::max<double>(std::round(tokens / pieces), Denoiser::kLeastTokens));
    sum += denoiser.weight * pieces *
           static_cast<double>(target ? denoiser.target_length(each, kMiddle)
                                      : denoiser.source_length(each, kMiddle));
    weights += denoiser.weight;
  }
  return sum / weights;
}

PackedStream::PackedStream(std::string name, const TokenStream& tokens, const Objective& objective,
                           const RowLimits& limits, std::uint64_t seed)
    : name_(std::move(name)),
      tokens_(tokens),
      objective_(objective),
      limits_(limits),
      seed_(seed),
      run_(run_together_of(objective, limits)),
      cost_(cost_of(tokens, objective, limits)),
      total_cost_(cost_.at(tokens.tokens(), tokens.documents())) {
  regions_ = std::max<std::uint64_t>(
      1, static_cast<std::uint64_t>(static_cast<double>(total_cost_) /
                                    (kRowCost * static_cast<double>(kRegionRows))));
}

Result<std::unique_ptr<PackedStream>> PackedStream::open(const std::string& name,
                                                         const TokenStream& tokens,
                                                         const Objective& objective,
                                                         const RowLimits& limits,
                                                         std::uint64_t seed) {
  QT_CHECK(tokens.tokens() >= kLeast, "{}: {} tokens", name, tokens.tokens());
  std::unique_ptr<PackedStream> stream(new PackedStream(name, tokens, objective, limits, seed));
  QT_TRY(stream->choose_rows());
  return stream;
}

Status PackedStream::choose_rows() {
  const std::uint64_t tried = std::min(kRegionsTried, std::max<std::uint64_t>(regions_, 4));
  const Permutation order(std::max(regions_, tried), 0, stream_of("regions tried"));
  std::vector<std::size_t> needed;
  std::vector<std::vector<PackPiece>> texts;
  double share = 0;
  for (std::uint64_t i = 0; i < tried; ++i) {
    Region region;
    // Of a few regions, in several epochs: the denoisers are others in each.
    QT_ASSIGN(std::vector<PackPiece> pieces, pieces_of(i / regions_, order(i) % regions_, region));
    needed.push_back(rows_needed(objective_, limits_, pieces));
    share += share_of_rows(objective_, limits_, pieces) / static_cast<double>(tried);
    texts.push_back(std::move(pieces));
  }
  std::sort(needed.begin(), needed.end());
  const double whole = static_cast<double>(needed[needed.size() * 9 / 10]);
  const double least = std::ceil(share * 1.005);
  const double most = std::max(least, std::floor(share / (1 - kWaste)));
  // However its documents are: run together, they fit.
  const double tokens = regions_ == 1
                            ? static_cast<double>(tokens_.tokens())
                            : static_cast<double>(total_cost_) / static_cast<double>(regions_) /
                                      static_cast<double>(cost_.per_token) +
                                  static_cast<double>(objective_.tokens());
  const double together = std::ceil(tokens / static_cast<double>(run_.parts * run_.tokens));
  double rows = std::max({1.0, together, std::min(std::max(whole, least), most)});
  // Where source and target are scarce in turns, cutting is not always enough.
  const auto fits = [&] {
    return std::all_of(texts.begin(), texts.end(), [&](const std::vector<PackPiece>& pieces) {
      PhiloxSequence random(0, 0);
      return pack_rows(objective_, limits_, static_cast<std::size_t>(rows), pieces, random).left ==
             0;
    });
  };
  while (rows < whole && !fits()) rows = std::min(whole, std::max(rows + 1, rows * 1.01));
  rows_per_region_ = static_cast<std::uint64_t>(rows);
  return {};
}

// The last resort puts text of any kind into examples of one length: one fills a row, or two do
// where lengths are left to chance otherwise.
PackedStream::RunTogether PackedStream::run_together_of(const Objective& objective,
                                                        const RowLimits& limits) {
  RunTogether run;
  for (std::size_t k = 0; k < objective.denoisers().size(); ++k) {
    if (objective.denoisers()[k].tokens == objective.tokens()) {
      run.denoiser = static_cast<std::uint8_t>(k);
    }
  }
  run.tokens = objective.tokens();
  const Denoiser& denoiser = objective.denoisers()[run.denoiser];
  if (!denoiser.uniform_split) return run;
  run.draw = static_cast<std::uint32_t>(0x1p32 * static_cast<double>(limits.source) /
                                        static_cast<double>(limits.source + limits.target));
  run.parts = 2;
  while (run.tokens > Denoiser::kLeastTokens &&
         (2 * denoiser.source_length(run.tokens, run.draw) > limits.source ||
          2 * denoiser.target_length(run.tokens, run.draw) > limits.target)) {
    --run.tokens;
  }
  return run;
}

std::uint64_t PackedStream::start_of(std::uint64_t epoch, std::uint64_t region) const {
  const auto words = philox(seed_, random_stream("regions", name_, epoch), 0);
  const std::uint64_t shift = (std::uint64_t{words[0]} << 32 | words[1]) % total_cost_;
  // total * region / regions, without a product that is too large.
  return shift + total_cost_ / regions_ * region + total_cost_ % regions_ * region / regions_;
}

// Adds the pieces that begin at a cost of `from` or more and less than `until`.
Status PackedStream::collect(std::uint64_t epoch, std::uint64_t from, std::uint64_t until,
                             Region& region, std::vector<PackPiece>& pieces) const {
  const auto most = static_cast<std::uint64_t>(objective_.tokens());
  const std::uint64_t total = tokens_.tokens(), cuts = random_stream("cuts", name_, epoch);
  // A document of one token goes together with its neighbour: nothing can be cut out of it.
  const auto add = [&](std::uint64_t begin, std::uint64_t count) {
    if (!pieces.empty() && (count < kLeast || pieces.back().tokens < kLeast) &&
        (pieces.back().begin + pieces.back().tokens) % total == begin) {
      ++region.joined;
      begin = pieces.back().begin;
      count += pieces.back().tokens;
      pieces.pop_back();
      if (count > most) {  // then the neighbour was as long as can be
        pieces.push_back({begin, static_cast<std::uint32_t>(count - kLeast), 0, 0});
        begin = (begin + count - kLeast) % total;
        count = kLeast;
      }
    }
    pieces.push_back({begin, static_cast<std::uint32_t>(count), 0, 0});
  };
  return tokens_.for_each_document(cost_, from, [&](const TokenStream::DocumentSpan& document) {
    if (cost_.at(document.begin, document.number) >= until) return false;
    const std::uint64_t length = document.end - document.begin;
    const bool too_long = length > most;
    for (std::uint64_t at = 0; at < length;) {
      std::uint64_t count = std::min(most, length - at);
      if (too_long && at == 0) {  // it is cut elsewhere in every epoch
        count = kLeast + philox(seed_, cuts, document.number)[0] % (most - kLeast + 1);
      }
      if (length - at == count + 1) --count;  // no piece of a single token is left
      count = std::max<std::uint64_t>(count, 1);
      const std::uint64_t cost = cost_.at(document.begin + at, document.number);
      if (cost >= from && cost < until) {
        if (at == 0) ++region.documents;
        if (too_long) ++region.too_long;
        add(document.begin + at, count);
      }
      at += count;
    }
    return true;
  });
}

Result<std::vector<PackPiece>> PackedStream::pieces_of(std::uint64_t epoch, std::uint64_t number,
                                                       Region& region) const {
  std::vector<PackPiece> pieces;
  const std::uint64_t from = start_of(epoch, number), until = start_of(epoch, number + 1);
  // In a circle: after the last document comes the first.
  if (from < total_cost_)
    QT_TRY(collect(epoch, from, std::min(until, total_cost_), region, pieces));
  if (until > total_cost_) {
    QT_TRY(collect(epoch, std::max(from, total_cost_) - total_cost_, until - total_cost_, region,
                   pieces));
  }
  if (pieces.size() == 1 && pieces.front().tokens < kLeast) {
    pieces.front().tokens = kLeast;  // a region of a single token: with its neighbour's first
  }
  PhiloxSequence random(seed_, random_stream("denoisers", name_, epoch * regions_ + number));
  assign_denoisers(objective_, random, pieces);
  return pieces;
}

// The last resort: all of the region's text in one, cut into equal parts.
void PackedStream::run_together(Region& region, std::vector<PackPiece> pieces,
                                PhiloxSequence& random) const {
  std::sort(pieces.begin(), pieces.end(),
            [&](const PackPiece& a, const PackPiece& b) { return a.begin < b.begin; });
  std::vector<PackPiece> runs;
  for (const PackPiece& piece : pieces) {
    if (!runs.empty() && runs.back().begin + runs.back().tokens == piece.begin) {
      runs.back().tokens += piece.tokens;
    } else {
      runs.push_back({piece.begin, piece.tokens, run_.draw, run_.denoiser});
    }
  }
  // Runs are few: one, or two where the circle closes.
  const auto most = static_cast<std::uint32_t>(run_.tokens);
  std::vector<PackPiece> parts;
  for (PackPiece run : runs) {
    while (run.tokens > 0) {
      PackPiece part = run;
      part.tokens = std::min(run.tokens, most);
      if (run.tokens == most + 1) --part.tokens;
      parts.push_back(part);
      run.begin += part.tokens;
      run.tokens -= part.tokens;
    }
  }
  region.packed = pack_rows(objective_, limits_, rows_per_region_, std::move(parts), random);
  region.run_together = true;
}

Result<PackedStream::Region> PackedStream::region(std::uint64_t epoch, std::uint64_t number) const {
  Region region;
  QT_ASSIGN(std::vector<PackPiece> pieces, pieces_of(epoch, number, region));
  PhiloxSequence random(seed_, random_stream("rows", name_, epoch * regions_ + number));
  region.packed = pack_rows(objective_, limits_, rows_per_region_, pieces, random);
  if (region.packed.left > 0) run_together(region, std::move(pieces), random);
  if (region.packed.left > 0) {
    return bad_input(
        "language {}: {} tokens of {} rows find no place in them; set pack = false, or a longer "
        "target",
        name_, region.packed.left, rows_per_region_);
  }
  for (const PackPiece& piece : region.packed.pieces) {
    const Denoiser& denoiser = objective_.denoisers()[piece.denoiser];
    region.source += denoiser.source_length(piece.tokens, piece.draw);
    region.target += denoiser.target_length(piece.tokens, piece.draw);
  }
  return region;
}

Result<std::shared_ptr<const PackedStream::Region>> PackedStream::kept_region(
    const Key& key) const {
  std::shared_ptr<Kept> kept;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Kept>& place = kept_[key];
    if (place == nullptr) place = std::make_shared<Kept>();
    place->used = ++clock_;
    kept = place;
    if (kept_.size() > kKept) {
      kept_.erase(std::min_element(kept_.begin(), kept_.end(), [](const auto& a, const auto& b) {
        return a.second->used < b.second->used;
      }));
    }
  }
  // Made by whoever comes first; others that want it wait.
  const std::lock_guard lock(kept->mutex);
  if (kept->region == nullptr) {
    QT_ASSIGN(Region made, region(key.first, key.second));
    kept->region = std::make_shared<const Region>(std::move(made));
  }
  return kept->region;
}

Result<PackedStream::Row> PackedStream::row(std::uint64_t number) const {
  const std::uint64_t epoch = number / rows(), place = number % rows();
  const std::uint64_t window = place / (kRegionsAtWork * rows_per_region_);
  const std::uint64_t first = window * kRegionsAtWork;
  const std::uint64_t slots = std::min(kRegionsAtWork, regions_ - first) * rows_per_region_;
  const Permutation order(slots, seed_, random_stream("slots", name_, epoch) + window);
  const std::uint64_t slot = order(place - first * rows_per_region_);
  const Permutation regions(regions_, seed_, random_stream("regions", name_, epoch));
  Row row;
  row.epoch = epoch;
  row.index = slot % rows_per_region_;
  std::uint64_t region = regions(first + slot / rows_per_region_);
  QT_ASSIGN(row.region, kept_region({epoch, region}));
  // Rows are empty only where a region is next to nothing but empty documents: then another comes
  // again. There is one, because the stream has text.
  for (std::uint64_t tries = 0; row.pieces().empty() && tries < rows(); ++tries) {
    if (++row.index < rows_per_region_) continue;
    row.index = 0;
    region = (region + 1) % regions_;
    QT_ASSIGN(row.region, kept_region({epoch, region}));
  }
  return row;
}

}  // namespace quintet
