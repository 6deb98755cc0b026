#include "lab/statistics/effects.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/text.h"
#include "lab/statistics/distributions.h"

namespace quintet {
namespace {

constexpr std::uint64_t kEffectSeed = 20240601;

// Which pairs of levels of two factors were observed.
std::set<std::pair<std::size_t, std::size_t>> pairs_seen(const Table& table, std::size_t a,
                                                         std::size_t b) {
  std::set<std::pair<std::size_t, std::size_t>> seen;
  for (const Observation& row : table.rows) seen.emplace(row.level[a], row.level[b]);
  return seen;
}

Eigen::VectorXd single(const Factor& factor, std::size_t level) {
  return Eigen::VectorXd::Unit(static_cast<Eigen::Index>(factor.levels.size()),
                               static_cast<Eigen::Index>(level));
}

Eigen::VectorXd interaction_contrast(const Table& table, const LinearModel& model,
                                     const Interaction& pair) {
  Profile profile;
  for (const Factor& factor : table.factors) {
    profile.push_back(Eigen::VectorXd::Constant(static_cast<Eigen::Index>(factor.levels.size()),
                                                1.0 / static_cast<double>(factor.levels.size())));
  }
  const auto at = [&](std::size_t level, std::size_t other_level) {
    profile[pair.factor] = single(table.factors[pair.factor], level);
    profile[pair.other] = single(table.factors[pair.other], other_level);
    return model.row(profile);
  };
  return at(pair.level, pair.other_level) - at(0, pair.other_level) - at(pair.level, 0) + at(0, 0);
}

std::string level_name(const Table& table, std::size_t factor, std::size_t level) {
  return table.factors[factor].name + " " + table.factors[factor].levels[level];
}

NoiseFloor noise_of(const Table& table, const LinearModel& model) {
  NoiseFloor floor;
  floor.noise = model.noise();
  floor.repeats = model.repeats();
  floor.missed = model.missed();
  const Noise& noise = floor.repeats.freedom > 0 ? floor.repeats : floor.noise;
  if (noise.freedom > 0) {
    const double deviation = std::sqrt(noise.variance);
    floor.spread = std::exp(deviation);
    floor.resolution = std::exp(student_limit(0.95, noise.freedom) * std::sqrt(2.0) * deviation);
  }
  if (table.blocks > 1 && !model.terms().empty() && model.terms()[0].factors.empty()) {
    const Term& blocks = model.terms()[0];
    double low = 0, high = 0;
    for (Eigen::Index b = 0; b < blocks.count; ++b) {
      Eigen::VectorXd contrast = Eigen::VectorXd::Zero(model.width());
      contrast(blocks.first + b) += 1;
      contrast(blocks.first) -= 1;
      if (!model.estimable(contrast)) return floor;
      low = std::min(low, model.estimate(contrast));
      high = std::max(high, model.estimate(contrast));
    }
    floor.block_spread = std::exp(high - low);
  }
  return floor;
}

// What the model has no term for.
std::string missed_by_pairs(const Table& table) {
  std::map<std::vector<std::size_t>, std::size_t> settings;
  for (const Observation& row : table.rows) {
    if (settings.try_emplace(row.level, row.setting).first->second != row.setting)
      return "other factors, three or more together";
  }
  return "three or more together";
}

std::vector<Share> shares_of(const Table& table, const LinearModel& model) {
  std::vector<Share> shares, rest;
  const double total = model.total_squares();
  if (!(total > 0)) return shares;
  // Terms have to stand out from what gets into them, too.
  Noise noise = model.noise();
  if (const Noise& missed = model.missed(); missed.freedom > 0)
    noise = {missed.from, noise.variance + missed.variance * model.repetitions(), missed.freedom};
  for (const Term& term : model.terms()) {
    const auto [squares, freedom] = model.explained(term);
    Share share{term.factors, "blocks", squares / total, freedom};
    if (!term.factors.empty()) {
      std::vector<std::string> names;
      for (const std::size_t f : term.factors) names.push_back(table.factors[f].name);
      share.name = join(names, " x ");
      if (freedom > 0 && noise.freedom > 0) {
        // Without any noise everything that is there is beyond doubt, up to rounding.
        share.p = noise.variance > 0
                      ? fisher_tail(squares / freedom / noise.variance, freedom, noise.freedom)
                      : (share.share > 1e-12 ? 0.0 : 1.0);
      }
    }
    (term.factors.empty() ? rest : shares).push_back(std::move(share));
  }
  std::vector<double> p;
  for (const Share& share : shares) p.push_back(share.p);
  const auto corrected = holm(p);
  for (std::size_t i = 0; i < shares.size(); ++i) shares[i].p_holm = corrected[i];
  std::stable_sort(shares.begin(), shares.end(),
                   [](const Share& a, const Share& b) { return a.share > b.share; });
  shares.insert(shares.end(), rest.begin(), rest.end());
  const Noise& repeats = model.repeats();
  const double left = model.residual_squares();
  Share shared{{}, kShared, 1 - left / total, static_cast<double>(model.rank() - 1)};
  for (const Share& share : shares) {
    shared.share -= share.share;
    shared.freedom -= share.freedom;
  }
  if (shared.share > 0.01) shares.push_back(shared);
  if (repeats.freedom > 0) {
    const double pure = repeats.variance * repeats.freedom;
    const double freedom = model.residual_freedom() - repeats.freedom;
    if (freedom > 0) {
      Share share{{}, missed_by_pairs(table), std::max(left - pure, 0.0) / total, freedom};
      if (repeats.variance > 0) {
        share.p = fisher_tail((left - pure) / freedom / repeats.variance, freedom, repeats.freedom);
      }
      shares.push_back(share);
    }
    shares.push_back({{}, "noise (same run repeated)", pure / total, repeats.freedom});
  } else {
    shares.push_back({{}, "left over", left / total, model.residual_freedom()});
  }
  return shares;
}

}  // namespace

std::vector<double> holm(std::span<const double> p) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (!std::isnan(p[i])) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return p[a] < p[b]; });
  std::vector<double> corrected(p.size(), kUnknown);
  double before = 0;
  for (std::size_t k = 0; k < order.size(); ++k) {
    before = std::max(before, std::min(1.0, static_cast<double>(order.size() - k) * p[order[k]]));
    corrected[order[k]] = before;
  }
  return corrected;
}

LinearModel fit_model(const Table& table) {
  const bool several = table.factors.size() > 1;
  LinearModel model(table, several);
  // Without repetitions and with as many effects as observations nothing would be left to judge by.
  if (several && model.noise().freedom <= 0) return LinearModel(table, false);
  return model;
}

Estimate estimate_of(const LinearModel& model, const Eigen::VectorXd& contrast,
                     double bootstrap_limit) {
  Estimate result;
  const double value = model.estimate(contrast);
  result.factor = std::exp(value);
  const Noise& noise = model.noise();
  if (noise.freedom <= 0) return result;
  const auto [variance, freedom] = model.uncertainty(contrast);
  const double error = std::sqrt(variance);
  const double limit = std::max(student_limit(0.95, freedom), bootstrap_limit);
  result.low = std::exp(value - limit * error);
  result.high = std::exp(value + limit * error);
  result.p =
      error > 0 ? student_two_sided(value / error, freedom) : (std::abs(value) > kSame ? 0.0 : 1.0);
  return result;
}

Eigen::VectorXd compare_levels(const Table& table, const LinearModel& model, std::size_t factor,
                               std::size_t level, std::size_t reference, std::optional<At> at) {
  Profile profile;
  for (std::size_t f = 0; f < table.factors.size(); ++f) {
    const auto count = static_cast<Eigen::Index>(table.factors[f].levels.size());
    Eigen::VectorXd weights = Eigen::VectorXd::Zero(count);
    if (at && at->factor == f) {
      weights(static_cast<Eigen::Index>(at->level)) = 1;
    } else if (f != factor) {
      const auto seen = pairs_seen(table, factor, f);
      for (Eigen::Index i = 0; i < count; ++i) {
        const auto other = static_cast<std::size_t>(i);
        if (seen.contains({level, other}) && seen.contains({reference, other})) weights(i) = 1;
      }
      if (weights.sum() == 0) return {};
      weights /= weights.sum();
    }
    profile.push_back(std::move(weights));
  }
  profile[factor] = single(table.factors[factor], level);
  const Eigen::VectorXd with = model.row(profile);
  profile[factor] = single(table.factors[factor], reference);
  return with - model.row(profile);
}

Effects effects_of(const Table& table, const LinearModel& model) {
  Effects effects;
  effects.pairs = std::any_of(model.terms().begin(), model.terms().end(),
                              [](const Term& term) { return term.factors.size() == 2; });
  std::vector<Eigen::VectorXd> contrasts;
  for (std::size_t f = 0; f < table.factors.size(); ++f) {
    for (std::size_t level = 1; level < table.factors[f].levels.size(); ++level) {
      Eigen::VectorXd contrast = compare_levels(table, model, f, level, 0);
      if (contrast.size() == 0 || !model.estimable(contrast)) {
        effects.not_estimated.push_back(
            fmt::format("{} against {}: the runs there are do not determine it",
                        level_name(table, f, level), table.factors[f].levels[0]));
        continue;
      }
      effects.main.push_back({f, level, {}});
      contrasts.push_back(std::move(contrast));
    }
  }
  for (std::size_t f = 0; effects.pairs && f < table.factors.size(); ++f) {
    for (std::size_t g = f + 1; g < table.factors.size(); ++g) {
      for (std::size_t i = 1; i < table.factors[f].levels.size(); ++i) {
        for (std::size_t j = 1; j < table.factors[g].levels.size(); ++j) {
          const Interaction pair{f, i, g, j, {}};
          Eigen::VectorXd contrast = interaction_contrast(table, model, pair);
          if (!model.estimable(contrast)) {
            effects.not_estimated.push_back(
                fmt::format("{} together with {}: not all four combinations ran",
                            level_name(table, f, i), level_name(table, g, j)));
            continue;
          }
          effects.interactions.push_back(pair);
          contrasts.push_back(std::move(contrast));
        }
      }
    }
  }
  if (!effects.pairs && table.factors.size() > 1) {
    effects.not_estimated.push_back(
        "interactions: there are no more runs than effects; repeat runs or take fewer factors");
  }
  const auto limits = model.bootstrap_limits(contrasts, kEffectSeed);
  std::vector<Estimate*> estimates;
  for (MainEffect& effect : effects.main) estimates.push_back(&effect.estimate);
  for (Interaction& effect : effects.interactions) estimates.push_back(&effect.estimate);
  std::vector<double> p;
  for (std::size_t c = 0; c < contrasts.size(); ++c) {
    *estimates[c] = estimate_of(model, contrasts[c], limits[c]);
    p.push_back(estimates[c]->p);
  }
  const auto corrected = holm(p);
  for (std::size_t c = 0; c < contrasts.size(); ++c) estimates[c]->p_holm = corrected[c];
  effects.shares = shares_of(table, model);
  effects.noise = noise_of(table, model);
  return effects;
}

}  // namespace quintet
