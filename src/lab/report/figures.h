// The pictures of a study's report. Each adds what the analysis has to show, or nothing.
#pragma once

#include "lab/report/page.h"
#include "lab/statistics/analysis.h"

namespace quintet {

// Time by layout along the numeric factor; bars where there is none.
void add_response_figures(const Analysis& analysis, Page& page);
// What a step's time is spent on, layout by layout.
void add_breakdown_figures(const Analysis& analysis, Page& page);
// The strongest interactions: lines that are not parallel.
void add_interaction_figures(const Analysis& analysis, Page& page);
// Where one level overtakes another.
void add_crossover_figures(const Analysis& analysis, Page& page);
void add_scaling_figure(const Analysis& analysis, Page& page);
// Time against memory, with the front.
void add_tradeoff_figures(const Analysis& analysis, Page& page);
// Measured against predicted.
void add_prediction_figure(const Analysis& analysis, Page& page);

// Seconds by what they were spent on, made fit for stacked bars: lines too small to be seen
// anywhere are joined, there are no more than there are colours, and all rows have the same lines.
struct StackedParts {
  std::vector<std::string> names;
  std::vector<std::vector<double>> rows;
};
using Breakdown = std::vector<std::pair<std::string, double>>;
StackedParts stacked_parts(const std::vector<Breakdown>& rows);

// How a response is written along an axis, and what the axis is called.
ValueFormat axis_format(const std::string& response);
std::string axis_label(const std::string& response);

}  // namespace quintet
