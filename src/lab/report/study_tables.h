// The tables of a study's report.
#pragma once

#include <optional>

#include "lab/report/page.h"
#include "lab/report/study_data.h"
#include "lab/statistics/analysis.h"

namespace quintet {

PageTable share_table(const Analysis& analysis);
PageTable main_effect_table(const Analysis& analysis);
PageTable interaction_table(const Analysis& analysis);
PageTable crossover_table(const Analysis& analysis);
PageTable scaling_table(const Analysis& analysis);
PageTable dominated_table(const Analysis& analysis);
PageTable regret_table(const Analysis& analysis);
PageTable prediction_table(const Analysis& analysis);
PageTable mean_table(const Analysis& analysis);
// Runs that are impossible or failed, those with the same reason and settings once.
PageTable missing_table(const StudyData& study);
PageTable run_table(const StudyData& study);
// What the store says about emulated links; none where there were none.
std::optional<PageTable> link_table(const StudyData& study);

}  // namespace quintet
