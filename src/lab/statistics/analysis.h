// Everything the statistics have to say about one table, and how it is told: as text, as JSON, and
// as an answer in five sentences.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "lab/statistics/crossover.h"
#include "lab/statistics/effects.h"
#include "lab/statistics/prediction.h"
#include "lab/statistics/scaling.h"
#include "lab/statistics/table.h"
#include "lab/statistics/tradeoff.h"

namespace quintet {

struct Analysis {
  Table table;
  bool simulated = false;                     // the table's rows are predictions
  std::vector<std::string> constant_factors;  // that had one level only, and are not in the table
  Effects effects;
  std::vector<Crossover> crossovers;
  std::vector<Cell> cells;
  std::vector<Estimate> cell_means;  // of the response, with intervals; as many as cells
  std::vector<Tradeoff> tradeoffs;
  std::vector<DominatedLayout> dominated;
  std::vector<Scaling> scalings;
  Table compared;  // what `prediction` speaks of
  Prediction prediction;
  std::vector<std::string> notes;  // what a comparison had to leave out, and why
};

// Of what was measured; of what was simulated where nothing was. Both have the same factors.
// `origin` is named by errors.
Result<Analysis> analyse(Table measured, Table simulated, const std::string& origin);

// For people.
std::string describe(const Analysis& analysis);
// For programs.
Json to_json(const Analysis& analysis);
// What the question's answer is, with figures and intervals: up to five sentences.
std::vector<std::string> answer_of(const Analysis& analysis);

// A response for people: "1.24 s", "338 ms", "2.35 GiB", by the name of what it is.
std::string format_response(const std::string& response, double value);
// "x 1.50 (1.42 to 1.58)".
std::string format_estimate(const Estimate& estimate);
// A value of a numeric factor between levels, written the way the levels are.
std::string format_between(const Factor& factor, double value);
// What intervals rest on where it is not the repetitions: a sentence, or nothing.
std::string intervals_text(const NoiseFloor& floor);
// "zero 2 and zero 3 along bandwidth: ...".
std::string describe(const Table& table, const Crossover& crossover);

}  // namespace quintet
