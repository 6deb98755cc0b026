// Where one level of a factor overtakes another along a numeric factor: the point at which their
// difference (of logarithms) changes sign, with a 95 % interval. That there is none in the range
// is an answer, too.
#pragma once

#include <vector>

#include "lab/statistics/effects.h"
#include "lab/statistics/linear_model.h"
#include "lab/statistics/table.h"

namespace quintet {

struct Crossing {
  double at = 0;             // in units of the numeric factor
  double low = 0, high = 0;  // the interval, at most the range that was run
  // The interval reaches the end of the range: the crossing may lie beyond.
  bool open_low = false, open_high = false;
  bool first_wins_below = false;  // which of the two has the smaller response below it

  // The difference is beyond noise on both sides.
  bool certain() const { return !open_low && !open_high; }
};

// The ratio between the levels that ran, for drawing.
struct CurvePoint {
  double x = 0, ratio = 1, low = 1, high = 1;
};

struct Crossover {
  std::size_t along = 0;                  // the numeric factor
  std::size_t factor = 0;                 // whose levels are compared
  std::size_t first = 0, second = 0;      // the two levels
  std::vector<std::size_t> along_levels;  // of the numeric factor: where both are known
  std::vector<Estimate> ratios;           // response of second over first, at these levels
  std::vector<Crossing> crossings;        // ascending; empty: none in the range
  std::vector<CurvePoint> curve;

  // Without a crossing: whether there is any difference, which of the two is smaller throughout,
  // and whether beyond noise everywhere.
  bool the_same() const;
  bool first_wins() const;
  bool clear_throughout() const;
};

// For every numeric factor all pairs of levels of every other factor. Between levels the difference
// is taken to be a line and, where there are three or more, a curve through its neighbours; the
// interval holds the crossings of both.
std::vector<Crossover> crossovers_of(const Table& table, const LinearModel& model);

}  // namespace quintet
