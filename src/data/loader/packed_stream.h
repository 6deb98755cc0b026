// A language's text as packed rows: every document in every epoch, whole wherever that leaves rows
// well filled, arranged anew in each. Row i of an epoch is a function of (corpus, seed, epoch, i),
// computed without an index of the corpus:
//
// 1. The text is divided into regions of equal cost. What tokens and documents before a place cost
//    is linear in their numbers, so a region is found by binary search in the tables of documents
//    that shards have anyway. Where regions begin is drawn for every epoch.
// 2. Every region is packed into the same number of rows (row_packing.h), which was found by
//    packing a few. Documents are cut where keeping them whole would leave more than kWaste of the
//    rows empty; those longer than a row are cut in any case.
// 3. Rows come in the order of a computed permutation, among a few regions at a time: so the
//    regions at work are few, and are kept.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/corpus/corpus.h"
#include "data/loader/objective.h"
#include "data/loader/row_packing.h"

namespace quintet {

// What texts of `tokens` tokens become on average over the denoisers; longer ones than a row are
// cut.
double mean_length(const Objective& objective, double tokens, bool target);

// Safe to use from many threads.
class PackedStream {
 public:
  static constexpr double kWaste = 0.05;
  static constexpr std::uint64_t kRegionRows = 128;  // about
  static constexpr std::uint64_t kRegionsAtWork = 16;

  // `tokens` and `objective` must outlive it. Reads tables of documents in a few places.
  static Result<std::unique_ptr<PackedStream>> open(const std::string& name,
                                                    const TokenStream& tokens,
                                                    const Objective& objective,
                                                    const RowLimits& limits, std::uint64_t seed);

  std::uint64_t rows() const { return regions_ * rows_per_region_; }  // of an epoch

  // A region's rows, and how they came about.
  struct Region {
    PackedRows packed;
    std::int64_t documents = 0;  // that begin in it, but for empty ones
    std::int64_t too_long = 0;   // documents and parts of such that are longer than a row
    std::int64_t joined = 0;     // documents put together with the next: too short for an example
    bool run_together = false;   // documents were joined and cut, because nothing else fitted
    std::int64_t source = 0, target = 0;  // places used
    std::size_t bytes() const { return packed.pieces.size() * sizeof(PackPiece) + 1024; }
  };
  struct Row {
    std::shared_ptr<const Region> region;
    std::uint64_t epoch = 0;
    std::size_t index = 0;
    std::span<const PackPiece> pieces() const { return region->packed.row(index); }
  };
  // Row `number` of all epochs, one after the other.
  Result<Row> row(std::uint64_t number) const;

  // For those who want to know how well rows are filled.
  std::uint64_t regions() const { return regions_; }
  std::uint64_t rows_per_region() const { return rows_per_region_; }
  Result<Region> region(std::uint64_t epoch, std::uint64_t number) const;

 private:
  PackedStream(std::string name, const TokenStream& tokens, const Objective& objective,
               const RowLimits& limits, std::uint64_t seed);
  // How text is run together.
  struct RunTogether {
    std::int64_t tokens = 0, parts = 1;  // of an example, and examples of a row
    std::uint32_t draw = 0;
    std::uint8_t denoiser = 0;
  };
  static RunTogether run_together_of(const Objective& objective, const RowLimits& limits);
  Status choose_rows();
  std::uint64_t start_of(std::uint64_t epoch, std::uint64_t region) const;
  Status collect(std::uint64_t epoch, std::uint64_t from, std::uint64_t until, Region& region,
                 std::vector<PackPiece>& pieces) const;
  Result<std::vector<PackPiece>> pieces_of(std::uint64_t epoch, std::uint64_t number,
                                           Region& region) const;
  void run_together(Region& region, std::vector<PackPiece> pieces, PhiloxSequence& random) const;

  std::string name_;
  const TokenStream& tokens_;
  const Objective& objective_;
  RowLimits limits_;
  std::uint64_t seed_;
  RunTogether run_;
  StreamCost cost_;  // of tokens and documents
  std::uint64_t total_cost_ = 0, regions_ = 1, rows_per_region_ = 1;

  // The regions at work.
  static constexpr std::size_t kKept = 2 * kRegionsAtWork;
  using Key = std::pair<std::uint64_t, std::uint64_t>;  // epoch, region
  struct Kept {
    std::mutex mutex;
    std::shared_ptr<const Region> region;
    std::uint64_t used = 0;
  };
  Result<std::shared_ptr<const Region>> kept_region(const Key& key) const;
  mutable std::mutex mutex_;
  mutable std::map<Key, std::shared_ptr<Kept>> kept_;
  mutable std::uint64_t clock_ = 0;
};

}  // namespace quintet
