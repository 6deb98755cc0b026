#include "lab/statistics/analysis.h"

namespace quintet {
namespace {

// JSON has no NaN.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json to_json(const Estimate& estimate) {
  Json json = {{"factor", number(estimate.factor)},
               {"low", number(estimate.low)},
               {"high", number(estimate.high)}};
  if (!std::isnan(estimate.p)) json["p"] = number(estimate.p);
  if (!std::isnan(estimate.p_holm)) json["p_holm"] = number(estimate.p_holm);
  return json;
}

Json settings_of(const Table& table, const std::vector<std::size_t>& level) {
  Json json = Json::object();
  for (std::size_t f = 0; f < table.factors.size(); ++f) {
    json[table.factors[f].name] = table.factors[f].levels[level[f]];
  }
  return json;
}

Json to_json(const Table& table, const Crossover& crossover) {
  const Factor& factor = table.factors[crossover.factor];
  const Factor& along = table.factors[crossover.along];
  Json json = {{"factor", factor.name},
               {"first", factor.levels[crossover.first]},
               {"second", factor.levels[crossover.second]},
               {"along", along.name}};
  json["ratios"] = Json::array();
  for (std::size_t i = 0; i < crossover.ratios.size(); ++i) {
    Json ratio = {{"at", along.levels[crossover.along_levels[i]]}};
    ratio.update(to_json(crossover.ratios[i]));
    json["ratios"].push_back(std::move(ratio));
  }
  json["crossings"] = Json::array();
  for (const Crossing& crossing : crossover.crossings) {
    json["crossings"].push_back(
        {{"at", number(crossing.at)},
         {"low", number(crossing.low)},
         {"high", number(crossing.high)},
         {"open_low", crossing.open_low},
         {"open_high", crossing.open_high},
         {"smaller_below", crossing.first_wins_below ? factor.levels[crossover.first]
                                                     : factor.levels[crossover.second]}});
  }
  return json;
}

const char* name_of(Noise::From from) {
  switch (from) {
    case Noise::From::kRepeats:
      return "repeats";
    case Noise::From::kResiduals:
      return "residuals";
    case Noise::From::kNothing:
      break;
  }
  return "nothing";
}

Json to_json(const Effects& effects, const Table& table) {
  Json json;
  json["noise"] = {{"from", name_of(effects.noise.noise.from)},
                   {"variance", number(effects.noise.noise.variance)},
                   {"freedom", number(effects.noise.noise.freedom)},
                   {"missed_variance", number(effects.noise.missed.variance)},
                   {"missed_freedom", number(effects.noise.missed.freedom)},
                   {"spread", number(effects.noise.spread)},
                   {"resolution", number(effects.noise.resolution)},
                   {"block_spread", number(effects.noise.block_spread)}};
  json["shares"] = Json::array();
  for (const Share& share : effects.shares) {
    json["shares"].push_back({{"term", share.name},
                              {"share", number(share.share)},
                              {"freedom", number(share.freedom)},
                              {"p", number(share.p)},
                              {"p_holm", number(share.p_holm)}});
  }
  json["main_effects"] = Json::array();
  for (const MainEffect& effect : effects.main) {
    const Factor& factor = table.factors[effect.factor];
    Json one = {{"factor_name", factor.name},
                {"level", factor.levels[effect.level]},
                {"against", factor.levels[0]}};
    one.update(to_json(effect.estimate));
    json["main_effects"].push_back(std::move(one));
  }
  json["interactions"] = Json::array();
  for (const Interaction& effect : effects.interactions) {
    const Factor &factor = table.factors[effect.factor], &other = table.factors[effect.other];
    Json one = {{"factor_name", factor.name},
                {"level", factor.levels[effect.level]},
                {"against", factor.levels[0]},
                {"at_factor", other.name},
                {"at", other.levels[effect.other_level]},
                {"instead_of", other.levels[0]}};
    one.update(to_json(effect.estimate));
    json["interactions"].push_back(std::move(one));
  }
  json["not_estimated"] = effects.not_estimated;
  return json;
}

Json to_json(const Prediction& prediction, const Table& table) {
  Json json = {{"cells", Json::array()},
               {"mean_error", number(prediction.mean_error)},
               {"mean_absolute_error", number(prediction.mean_absolute_error)},
               {"worst_error", number(prediction.cells[prediction.worst].error())},
               {"predicted_too_much", prediction.too_much},
               {"spearman", number(prediction.spearman)},
               {"kendall", number(prediction.kendall)},
               {"mean_regret", number(prediction.mean_regret)},
               {"worst_regret", number(prediction.worst_regret)},
               {"regrets", Json::array()}};
  for (const PredictedCell& cell : prediction.cells) {
    json["cells"].push_back({{"settings", settings_of(table, cell.level)},
                             {"measured", number(cell.measured)},
                             {"predicted", number(cell.predicted)},
                             {"error", number(cell.error())}});
  }
  for (const Regret& regret : prediction.regrets) {
    json["regrets"].push_back({{"environment", regret.environment},
                               {"chosen", regret.chosen},
                               {"best", regret.best},
                               {"regret", number(regret.regret)},
                               {"layouts", regret.layouts}});
  }
  return json;
}

Json to_json(const std::vector<Scaling>& scalings) {
  Json json = Json::array();
  for (const Scaling& scaling : scalings) {
    Json points = Json::array();
    for (const ScalingPoint& point : scaling.points) {
      Json lost = Json::object();
      for (const auto& [name, share] : point.lost_to) lost[name] = number(share);
      points.push_back({{"nodes", number(point.nodes)},
                        {"speed_up", number(point.speed_up)},
                        {"efficiency", number(point.efficiency)},
                        {"lost_to", std::move(lost)}});
    }
    json.push_back({{"setting", scaling.setting}, {"points", std::move(points)}});
  }
  return json;
}

}  // namespace

Json to_json(const Analysis& analysis) {
  const Table& table = analysis.table;
  Json json = {
      {"response", table.response}, {"origin", analysis.simulated ? "simulated" : "measured"},
      {"rows", table.rows.size()},  {"cells", analysis.cells.size()},
      {"blocks", table.blocks},     {"answer", answer_of(analysis)}};
  json["factors"] = Json::array();
  for (const Factor& factor : table.factors) {
    json["factors"].push_back(
        {{"name", factor.name}, {"numeric", factor.numeric}, {"levels", factor.levels}});
  }
  json["constant_factors"] = analysis.constant_factors;
  json.update(to_json(analysis.effects, table));
  json["crossovers"] = Json::array();
  for (const Crossover& crossover : analysis.crossovers) {
    json["crossovers"].push_back(to_json(table, crossover));
  }
  json["means"] = Json::array();
  for (std::size_t c = 0; c < analysis.cells.size(); ++c) {
    json["means"].push_back({{"settings", settings_of(table, analysis.cells[c].level)},
                             {"count", analysis.cells[c].count},
                             {"mean", number(analysis.cell_means[c].factor)},
                             {"low", number(analysis.cell_means[c].low)},
                             {"high", number(analysis.cell_means[c].high)},
                             {"memory_bytes", number(analysis.cells[c].memory_bytes)}});
  }
  if (!analysis.tradeoffs.empty()) {
    json["tradeoffs"] = Json::array();
    for (const Tradeoff& one : analysis.tradeoffs) {
      Json front = Json::array();
      for (const TradeoffPoint& point : one.points) {
        if (!point.beaten_by) front.push_back(settings_of(table, analysis.cells[point.cell].level));
      }
      json["tradeoffs"].push_back({{"environment", one.environment}, {"front", std::move(front)}});
    }
    json["dominated"] = Json::array();
    for (const DominatedLayout& one : analysis.dominated) {
      json["dominated"].push_back(
          {{"layout", one.layout}, {"by", one.by}, {"environments", one.environments}});
    }
  }
  if (!analysis.scalings.empty()) json["scaling"] = to_json(analysis.scalings);
  if (!analysis.prediction.cells.empty()) {
    json["prediction"] = to_json(analysis.prediction, analysis.compared);
  }
  return json;
}

}  // namespace quintet
