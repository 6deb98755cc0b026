// Puts examples of different lengths into rows of one length: best fit, longest first, in both
// dimensions (source and target) at once. The number of rows is given; a text is cut only where it
// fits nowhere whole.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/philox.h"
#include "data/loader/objective.h"

namespace quintet {

// Consecutive tokens of a language, to become one example.
struct PackPiece {
  std::uint64_t begin = 0;
  std::uint32_t tokens = 0;
  std::uint32_t draw = 0;     // what its lengths follow from where they are left to chance
  std::uint8_t denoiser = 0;  // index into the objective's
};

struct RowLimits {
  std::int64_t source = 0, target = 0;
};

struct PackedRows {
  std::vector<PackPiece> pieces;    // row by row
  std::vector<std::uint32_t> ends;  // of each row, in `pieces`
  std::int64_t cut = 0;             // texts that were cut, because they fitted nowhere whole
  std::int64_t left = 0;            // tokens that found no place; then the rows are not to be used

  std::span<const PackPiece> row(std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::span(pieces).subspan(begin, ends[i] - begin);
  }
};

// Gives every piece a denoiser: in proportion to their weights, exactly but for rounding, to which
// one by chance. Pieces longer than their denoiser takes are cut.
void assign_denoisers(const Objective& objective, PhiloxSequence& random,
                      std::vector<PackPiece>& pieces);

// Packs whole pieces into as few rows as it can.
std::size_t rows_needed(const Objective& objective, const RowLimits& limits,
                        std::span<const PackPiece> pieces);

// Packs pieces into exactly `rows` rows. Which of several equally good places a piece gets, and the
// order of the rows, is left to chance.
PackedRows pack_rows(const Objective& objective, const RowLimits& limits, std::size_t rows,
                     std::vector<PackPiece> pieces, PhiloxSequence& random);

}  // namespace quintet
