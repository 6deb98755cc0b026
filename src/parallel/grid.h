// The ranks of a run as a grid: data x tensor x pipeline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/result.h"
#include "program/program.h"

namespace quintet {

// How a run is spread over its ranks. The data-parallel size follows from the number of ranks.
struct LayoutConfig {
  std::int64_t tp = 1, pp = 1;
  std::string order = "tp-dp-pp";
  std::int64_t zero = 0;
  std::int64_t shard_group = 0;
  bool gather_fp8 = false;
  std::int64_t prefetch = 1;
  std::int64_t bucket = 0;
  std::int64_t whole_below = 20000;
  std::string schedule = "1f1b";
  std::int64_t interleave = 1;
  double timeout = 60;

  void list(FieldList& fields);
};

class Grid {
 public:
  Grid() = default;
  Grid(std::int32_t dp, std::int32_t tp, std::int32_t pp, std::string order = "tp-dp-pp");

  std::int32_t size() const { return dp * tp * pp; }
  Place place_of(std::int32_t rank) const;
  std::int32_t rank_of(std::int32_t dp_index, std::int32_t tp_index, std::int32_t pp_index) const;

  // Ranks that differ from `place` along the named axes only, ordered by pipeline, data, tensor
  // index.
  std::vector<std::int32_t> ranks_along(const Place& place, bool along_dp, bool along_tp,
                                        bool along_pp) const;

  std::int32_t dp = 1, tp = 1, pp = 1;

 private:
  std::string order_ = "tp-dp-pp";
};

// The grid of a layout on so many ranks; refused, with the layouts that would work, when they do
// not divide.
Result<Grid> make_grid(std::int64_t world, const LayoutConfig& layout);

}  // namespace quintet
