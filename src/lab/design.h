// From a study to its rows: which combinations of levels, how often, in which order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/study_file.h"

namespace quintet {

struct PlannedRow {
  std::int64_t cell = 0, repeat = 0, block = 0, position = 0;
  bool simulated = false;
  std::vector<std::size_t> levels;  // by factor
};

// The combinations of levels that the design takes, after its conditions; an error where none is
// left or there are too many to look at.
Result<std::vector<std::vector<std::size_t>>> cells_of(const StudyFile& study);

// All rows in the order in which they run: measured ones in random order within their blocks, then
// simulated ones, once each. A function of the study file alone.
Result<std::vector<PlannedRow>> rows_of(const StudyFile& study);

}  // namespace quintet
