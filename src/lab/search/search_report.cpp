#include "lab/search/search_report.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/text.h"
#include "lab/factor_name.h"
#include "lab/report/page.h"
#include "lab/search/importance.h"
#include "lab/search/journal.h"
#include "lab/search/ladder.h"
#include "lab/search/search_runner.h"

namespace quintet {
namespace {

constexpr std::size_t kMostCurvePoints = 60;

struct SearchData {
  SearchFile search;
  std::vector<Trial> trials;
  std::map<std::string, std::string> facts;
  std::map<std::int64_t, std::vector<CurveStep>> curves;  // by trial
  Path folder;

  std::string model_of(std::int64_t level) const {
    if (!search.ladder.models.empty()) return search.ladder.models[static_cast<std::size_t>(level)];
    const auto fixed = search.fixed.find("model.name");
    if (fixed == search.fixed.end()) return RunConfig().model.name;
    return std::get<std::string>(fixed->second.value);
  }
  std::string objective() const {
    std::string words = search.search.objective;
    std::replace(words.begin(), words.end(), '_', ' ');
    return words;
  }
};

std::string number_text(double value) {
  return fmt::format("{:.5g}", value);
}

Result<SearchData> read_search(const Path& folder) {
  SearchData data;
  data.folder = folder;
  QT_ASSIGN(const SearchJournal journal, SearchJournal::view(folder));
  for (const char* key : {"version", "host", "file"}) {
    QT_ASSIGN(data.facts[key], journal.get(key));
  }
  QT_ASSIGN(data.search, journal.search());
  QT_ASSIGN(data.trials, journal.trials());
  for (const Trial& trial : data.trials)
    data.curves[trial.id] = learning_curve(trial_folder(folder, trial.id));
  return data;
}

// Trials of the first model at its first rung: all of them, after equal budgets.
std::vector<TriedSettings> first_rung(const SearchData& data) {
  std::vector<TriedSettings> all;
  for (const Trial& trial : data.trials) {
    if (trial.level != 0 || trial.rungs[0].running()) continue;
    all.push_back({trial.settings, 0, trial.rungs[0].value});
  }
  return all;
}

std::string percent(double share) {
  return fmt::format("{:.0f} %", 100 * share);
}

std::vector<std::string> answer_of_search(const SearchData& data,
                                          const std::vector<Importance>& important,
                                          const std::vector<LadderStep>& ladder) {
  std::vector<std::string> sentences;
  const Trial* best = best_trial(data.trials);
  if (best == nullptr) return {"No trial has finished anything yet."};
  const RungResult& at = best->rungs[static_cast<std::size_t>(best->reached())];
  std::vector<std::string> parts;
  for (const auto& [key, value] : best->settings)
    parts.push_back(fmt::format("{} = {}", key, setting_text(value)));
  sentences.push_back(fmt::format(
      "The best on {} is trial {}, with {}: {} {}{}.", data.model_of(best->level), best->id,
      join(parts, ", "), data.objective(), number_text(at.value),
      data.search.simulated() ? " s, simulated" : fmt::format(" after {} steps", at.steps)));
  if (!important.empty()) {
    parts.clear();
    for (const Importance& one : important) {
      if (one.share >= 0.02 && one.chance < 0.05)
        parts.push_back(fmt::format("{} ({})", one.key, percent(one.share)));
    }
    sentences.push_back(
        parts.empty()
            ? "No parameter by itself explains the ranks of the trials better than chance."
            : "What explains the ranks of the trials: " + join(parts, ", ") + ".");
  }
  for (const LadderStep& step : ladder) {
    sentences.push_back(fmt::format(
        "From {} to {}, the ranks of {} trials correlate by {:.2f} (95 % interval {:.2f} to "
        "{:.2f}); the best on the larger was number {} on the smaller, and taking the smaller's "
        "best would have cost {:.1f} %.",
        data.model_of(step.from), data.model_of(step.from + 1), step.trials, step.spearman,
        step.low, step.high, step.best_was, 100 * step.lost));
  }
  std::int64_t steps = 0, whole = 0;
  double seconds = 0;
  std::map<std::string, std::int64_t> failed;
  for (const Trial& trial : data.trials) {
    const auto plan = data.search.plan_of(trial.settings, trial.level, 1);
    steps += trial.rungs.back().steps;
    whole += plan.ok() ? plan.value().rung_steps.back() : 0;
    for (const RungResult& result : trial.rungs) seconds += result.seconds;
    if (trial.failed()) ++failed[trial.rungs.back().status];
  }
  if (!data.search.simulated() && whole > 0) {
    sentences.push_back(fmt::format(
        "It took {} steps and {:.0f} device-seconds, {} of the steps that {} whole trials take.",
        with_commas(steps), seconds,
        percent(static_cast<double>(steps) / static_cast<double>(whole)), data.trials.size()));
  }
  parts.clear();
  for (const auto& [status, count] : failed) {
    std::string words = status;
    std::replace(words.begin(), words.end(), '_', ' ');
    parts.push_back(fmt::format("{} {}", count, words));
  }
  if (!parts.empty())
    sentences.push_back("Trials without a value, ranked last: " + join(parts, ", ") + ".");
  return sentences;
}

void add_importance(const std::vector<Importance>& important, Page& page) {
  if (important.empty()) {
    page.paragraph("Fewer than six trials: too few to say what matters.");
    return;
  }
  BarChart chart;
  chart.title = "Share of the variance of ranks that each parameter explains";
  chart.x = {.label = "share of the variance of ranks", .format = percent};
  chart.parts = {""};
  for (const Importance& one : important) {
    chart.bars.push_back(
        {.label = one.key,
         .parts = {one.share},
         .tip = fmt::format("{}: {}, by chance {:.2g}", one.key, percent(one.share), one.chance),
         .value = fmt::format("{}{}", percent(one.share), one.chance < 0.05 ? "" : " (chance)")});
  }
  page.figure("What matters",
              "One-way analysis of variance over the trials' ranks at the first rung, each "
              "parameter by itself, corrected for chance (epsilon squared). Trials without a value "
              "share the last rank. \"chance\": F's tail is above 5 %. What two parameters do only "
              "together is in neither.",
              chart);
}

// A slice for each parameter: its values against the objective, rung by rung.
void add_slices(const SearchData& data, Page& page) {
  for (const SearchParameter& parameter : data.search.space.parameters()) {
    XyChart chart;
    chart.title = parameter.key + " against " + data.objective();
    chart.x.label = parameter.key;
    chart.y.label = data.objective();
    const bool named = parameter.kind == SearchParameter::Kind::kChoice;
    chart.x.logarithmic = parameter.logarithmic && !named;
    for (std::size_t c = 0; named && c < parameter.choices.size(); ++c)
      chart.x.ticks.push_back({static_cast<double>(c), setting_text(parameter.choices[c])});
    const std::int64_t rungs = data.search.simulated() ? 1 : data.search.budget.rungs;
    for (std::int64_t rung = 0; rung < rungs; ++rung) {
      Series series;
      series.colour = static_cast<std::size_t>(rung);
      series.line = false;
      series.hollow = rung + 1 < rungs;
      if (rungs > 1) series.name = rung + 1 < rungs ? fmt::format("rung {}", rung + 1) : "the end";
      for (const Trial& trial : data.trials) {
        const auto value = trial.settings.find(parameter.key);
        if (trial.level != 0 || value == trial.settings.end() ||
            !std::isfinite(trial.value_at(rung)))
          continue;
        const double x =
            named ? static_cast<double>(std::find(parameter.choices.begin(),
                                                  parameter.choices.end(), value->second) -
                                        parameter.choices.begin())
                  : search_number(value->second);
        series.points.push_back(
            {x, trial.value_at(rung), std::nan(""), std::nan(""),
             fmt::format("trial {}: {}, {} {}", trial.id, settings_text(trial.settings),
                         data.objective(), number_text(trial.value_at(rung)))});
      }
      if (!series.points.empty()) chart.series.push_back(std::move(series));
    }
    if (!chart.series.empty())
      page.figure(parameter.key,
                  parameter.when ? "Counts where " + parameter.when->text() + "." : "", chart);
  }
}

// Means of neighbours, so that a curve has no more points than can be seen.
std::vector<ChartPoint> curve_points(const std::vector<CurveStep>& curve, const std::string& tip) {
  std::vector<ChartPoint> points;
  const std::size_t together = (curve.size() + kMostCurvePoints - 1) / kMostCurvePoints;
  for (std::size_t i = 0; i < curve.size(); i += together) {
    double sum = 0, count = 0;
    for (std::size_t j = i; j < std::min(i + together, curve.size()); ++j) {
      if (std::isfinite(curve[j].loss)) sum += curve[j].loss, ++count;
    }
    const std::size_t last = std::min(i + together, curve.size()) - 1;
    if (count > 0)
      points.push_back(
          {static_cast<double>(curve[last].step), sum / count, std::nan(""), std::nan(""), tip});
  }
  return points;
}

void add_curves(const SearchData& data, Page& page) {
  for (std::int64_t level = 0; level < data.search.levels(); ++level) {
    XyChart chart;
    chart.title = "Training loss over steps of all trials on " + data.model_of(level);
    chart.x.label = "step";
    chart.y.label = "training loss";
    const auto ranked = ranking(data.trials, level);
    const std::int64_t last = level == 0 ? data.search.budget.rungs - 1 : 0;
    std::size_t shown = 0;
    for (const Trial& trial : data.trials) {
      if (trial.level != level) continue;
      const std::string tip = fmt::format("trial {}: {}{}", trial.id, settings_text(trial.settings),
                                          trial.failed() ? ", " + trial.rungs.back().status
                                          : trial.reached() < last ? ", stopped"
                                                                   : "");
      Series series;
      series.points = curve_points(data.curves.at(trial.id), tip);
      series.markers = false;
      series.faint = trial.failed() || trial.reached() < last;
      series.colour = shown;
      if (!ranked.empty() && &trial == ranked[0])
        series.name = fmt::format("trial {}, the best", trial.id);
      if (series.points.empty()) continue;
      shown += series.faint ? 0 : 1;
      chart.series.push_back(std::move(series));
    }
    if (chart.series.empty()) continue;
    page.figure(fmt::format("Learning curves on {}", data.model_of(level)),
                "Grey and thin: stopped at a rung, or without a value.", chart);
  }
}

// What a learning curve says beside its losses.
struct CurveMeasures {
  double smoothed = std::nan(""), noise_scale = std::nan("");  // the last there are
  std::int64_t spikes = 0, first_spike = 0;
};

CurveMeasures measures_of(const std::vector<CurveStep>& curve) {
  CurveMeasures measures;
  for (const CurveStep& step : curve) {
    if (!std::isnan(step.smoothed)) measures.smoothed = step.smoothed;
    if (!std::isnan(step.noise_scale)) measures.noise_scale = step.noise_scale;
    if (step.spike && measures.spikes++ == 0) measures.first_spike = step.step;
  }
  return measures;
}

void add_measures(const SearchData& data, Page& page) {
  PageTable table{{{"trial", true},
                   {"model"},
                   {"smoothed validation loss", true},
                   {"spikes", true},
                   {"sequences in a step", true},
                   {"gradient noise scale, sequences", true}},
                  {}};
  bool scales = false;
  std::int64_t spiked = 0;
  for (const Trial& trial : data.trials) {
    const CurveMeasures measures = measures_of(data.curves.at(trial.id));
    scales = scales || !std::isnan(measures.noise_scale);
    spiked += measures.spikes > 0 ? 1 : 0;
    const auto cell = [](double value) {
      return std::isnan(value) ? PageCell{"none"} : PageCell{number_text(value), value};
    };
    const auto plan = data.search.plan_of(trial.settings, trial.level, 1);
    const double batch = plan.ok() ? static_cast<double>(plan.value().global_batch) : std::nan("");
    const auto spikes = static_cast<double>(measures.spikes);
    table.rows.push_back(
        {{std::to_string(trial.id), static_cast<double>(trial.id)},
         {data.model_of(trial.level)},
         cell(measures.smoothed),
         {measures.spikes == 0
              ? "0"
              : fmt::format("{}, the first at step {}", measures.spikes, measures.first_spike),
          spikes},
         cell(batch),
         cell(measures.noise_scale)});
  }
  page.paragraph(
      "The smoothed validation loss is a running mean in which the newest weighs 0.3. A spike is a "
      "loss above twice, or a gradient norm above ten times, the median of the 50 steps before. "
      "With as many sequences in a step as the noise scale says, its gradient is half noise: far "
      "fewer waste steps, far more waste sequences.");
  page.paragraph(fmt::format(
      "{} of {} trials had spikes. {}", spiked, data.trials.size(),
      scales
          ? "The noise scales are those at the end of each trial."
          : "The noise scale was not measured: train.noise_scale = true under [fixed] does, with "
            "two micro-batches in a step or more."));
  page.table(table, "Measures of all trials");
}

void add_rungs(const SearchData& data, Page& page) {
  PageTable table{{{"model"},
                   {"steps", true},
                   {"trials", true},
                   {"without a value", true},
                   {"best", true},
                   {"median", true},
                   {"went on", true}},
                  {}};
  for (std::int64_t level = 0; level < data.search.levels(); ++level) {
    const std::int64_t rungs =
        level == 0 && !data.search.simulated() ? data.search.budget.rungs : 1;
    for (std::int64_t rung = 0; rung < rungs; ++rung) {
      std::vector<double> values;
      std::int64_t without = 0, went_on = 0, steps = 0;
      for (const Trial& trial : data.trials) {
        if (trial.level != level || std::ssize(trial.rungs) <= rung) continue;
        const RungResult& result = trial.rungs[static_cast<std::size_t>(rung)];
        if (result.running()) continue;
        steps = std::max(steps, result.steps);
        std::isfinite(result.value) ? values.push_back(result.value) : static_cast<void>(++without);
        went_on += std::ssize(trial.rungs) > rung + 1 ? 1 : 0;
      }
      if (values.empty() && without == 0) continue;
      std::sort(values.begin(), values.end());
      const auto cell = [](double value) { return PageCell{number_text(value), value}; };
      const auto count = [](std::int64_t n) {
        return PageCell{std::to_string(n), static_cast<double>(n)};
      };
      table.rows.push_back({{data.model_of(level)},
                            count(steps),
                            count(std::ssize(values) + without),
                            count(without),
                            values.empty() ? PageCell{"none"} : cell(values.front()),
                            values.empty() ? PageCell{"none"} : cell(values[values.size() / 2]),
                            count(went_on)});
    }
  }
  page.table(table);
}

// Best so far at each rung, over what was spent until then.
void add_cost(const SearchData& data, Page& page) {
  std::vector<std::pair<const RungResult*, const Trial*>> results;
  for (const Trial& trial : data.trials) {
    for (const RungResult& result : trial.rungs) {
      if (!result.running()) results.emplace_back(&result, &trial);
    }
  }
  std::sort(results.begin(), results.end(),
            [](const auto& a, const auto& b) { return a.first->finished < b.first->finished; });
  XyChart chart;
  chart.title = "Best " + data.objective() + " so far over device-seconds";
  chart.x = {.label = "device-seconds", .from_zero = true};
  chart.y.label = "best " + data.objective() + " so far";
  std::map<std::pair<std::int64_t, std::int64_t>, Series> series;  // by level, rung
  double spent = 0;
  for (const auto& [result, trial] : results) {
    spent += result->seconds;
    Series& line = series[{trial->level, result->rung}];
    if (!std::isfinite(result->value)) continue;
    double best = result->value;
    if (!line.points.empty()) {
      best = std::min(best, line.points.back().y);
      if (best < line.points.back().y)  // a step, not a slope
        line.points.push_back({spent, line.points.back().y, std::nan(""), std::nan(""), ""});
    }
    line.points.push_back({spent, best, std::nan(""), std::nan(""),
                           fmt::format("{:.1f} device-seconds: {}", spent, number_text(best))});
  }
  for (auto& [place, line] : series) {
    if (line.points.empty()) continue;
    const bool last = place.first > 0 || place.second + 1 == data.search.budget.rungs;
    line.name = fmt::format("{}, {}", data.model_of(place.first),
                            last ? "the end" : fmt::format("rung {}", place.second + 1));
    line.colour = chart.series.size();
    line.markers = false;
    chart.series.push_back(std::move(line));
  }
  if (!chart.series.empty())
    page.figure("Cost", "Each line at its own budget: values of different rungs are not compared.",
                chart);
}

void add_ladder(const SearchData& data, const std::vector<LadderStep>& ladder, Page& page) {
  for (const LadderStep& step : ladder) {
    const std::string below = data.model_of(step.from), above = data.model_of(step.from + 1);
    page.subsection(fmt::format("From {} to {}", below, above));
    const bool some_only = step.trials < ranking(data.trials, step.from).size();
    page.list(
        {fmt::format("Rank correlation over {} trials: Spearman {:.2f} (95 % interval {:.2f} to "
                     "{:.2f}, bootstrap), Kendall {:.2f}.{}",
                     step.trials, step.spearman, step.low, step.high, step.kendall,
                     some_only ? " These are the best on " + below +
                                     ": over all trials there it would be higher."
                               : ""),
         fmt::format("The best on {} was number {} on {}: {} the top quarter. The best on {} is "
                     "{:.2f} % worse on {} than the best there.",
                     above, step.best_was, below, step.in_top_quarter() ? "in" : "not in", below,
                     100 * step.lost, above),
         fmt::format("For a larger model: {} trials would have had the best among them 95 times in "
                     "100, and their order was settled after {} of the steps.",
                     step.next_trials, percent(step.next_share))});
    PageTable moved{{{"parameter"},
                     {"best on " + below},
                     {"best on " + above},
                     {"moved along its range", true},
                     {"best quarter moved", true}},
                    {}};
    const auto share = [](double value) {
      return std::isnan(value) ? PageCell{"no order"}
                               : PageCell{fmt::format("{:+.0f} %", 100 * value), value};
    };
    for (const MovedParameter& one : step.moved)
      moved.rows.push_back(
          {{one.key}, {one.below}, {one.above}, share(one.best), share(one.quarter)});
    page.table(moved);
    XyChart chart;
    chart.title = fmt::format("Place on {} against {} on {}", below, data.objective(), above);
    chart.x = {.label = "place on " + below};
    chart.y = {.label = fmt::format("{} on {}", data.objective(), above)};
    Series series;
    series.line = false;
    const auto ranked = ranking(data.trials, step.from);
    for (std::size_t place = 0; place < ranked.size(); ++place) {
      for (const Trial& trial : data.trials) {
        if (trial.level != step.from + 1 || trial.parent != ranked[place]->id ||
            !std::isfinite(trial.value_at(0)))
          continue;
        series.points.push_back(
            {static_cast<double>(place + 1), trial.value_at(0), std::nan(""), std::nan(""),
             fmt::format("{}: {}", settings_text(trial.settings), number_text(trial.value_at(0)))});
      }
    }
    chart.series.push_back(std::move(series));
    page.figure("What the small model tells about the large one",
                "Rising from left to right: much.", chart);
  }
}

void add_trials(const SearchData& data, Page& page) {
  PageTable table{{{"trial", true},
                   {"model"},
                   {"settings"},
                   {"steps", true},
                   {data.objective(), true},
                   {"how it ended"},
                   {"device-seconds", true},
                   {"command"}},
                  {}};
  for (const Trial& trial : data.trials) {
    const RungResult& last = trial.rungs.back();
    double seconds = 0;
    for (const RungResult& result : trial.rungs) seconds += result.seconds;
    const auto steps = static_cast<double>(last.steps);
    table.rows.push_back({{std::to_string(trial.id), static_cast<double>(trial.id)},
                          {data.model_of(trial.level)},
                          {settings_text(trial.settings)},
                          {fmt::format("{:.0f}", steps), steps},
                          std::isfinite(last.value) ? PageCell{number_text(last.value), last.value}
                                                    : PageCell{"none"},
                          {last.status + (last.reason.empty() ? "" : ": " + last.reason)},
                          {fmt::format("{:.1f}", seconds), seconds},
                          {last.command, std::nan(""), true}});
  }
  page.table(table, fmt::format("All {} trials", data.trials.size()));
}

void add_how(const SearchData& data, Page& page) {
  const SearchFile& search = data.search;
  std::vector<std::string> items;
  items.push_back(
      search.search.sampler == "tpe"
          ? fmt::format(
                "Settings: the first {} trials are a Sobol sequence, then a tree-structured "
                "Parzen estimator over whole settings; running trials count as bad ones.",
                search.search.startup)
      : search.search.sampler == "gp"
          ? fmt::format(
                "Settings: the first {} trials are a Sobol sequence, then what a Gaussian process "
                "expects to improve the most; values of earlier rungs count as far as they tell "
                "about the end, and what is believed to end well goes on.",
                search.search.startup)
          : fmt::format("Settings: {}.", search.search.sampler));
  if (search.simulated()) {
    items.push_back(fmt::format("Step times are simulated for {} on {} ranks; nothing ran.",
                                search.place.machine, search.ranks()));
  } else {
    items.push_back(
        "Trials are compared after equal budgets only. Every trial has the schedule of its whole "
        "budget; rungs stop it on the way, where the rate does not yet depend on the end, and a "
        "trial that goes on continues from its checkpoint.");
    if (search.search.objective == "validation_loss")
      items.push_back(
          fmt::format("The validation loss is measured on the same {} sequences for "
                      "every trial.",
                      search.search.validation_sequences));
  }
  items.push_back("Trials that diverge, do not fit or cannot run are results, and the worst.");
  page.list(items);
  page.subsection("The search file");
  page.code(data.facts.at("file"));
}

}  // namespace

Result<std::string> search_report(const Path& folder) {
  QT_ASSIGN(const SearchData data, read_search(folder));
  const std::vector<Importance> important = importances(data.search.space, first_rung(data));
  const std::vector<LadderStep> ladder = ladder_steps(
      data.search, data.trials, [&](std::int64_t trial) { return data.curves.at(trial); });
  Page page(data.search.search.name, data.search.search.question);
  page.section("The answer");
  page.answer(answer_of_search(data, important, ladder));
  const bool running = std::any_of(data.trials.begin(), data.trials.end(),
                                   [](const Trial& trial) { return trial.pending(); });
  page.facts({{"trials", std::to_string(data.trials.size())},
              {"objective", data.objective()},
              {"sampler", data.search.search.sampler},
              {"seed", std::to_string(data.search.search.seed)},
              {"version", data.facts.at("version")},
              {"host", data.facts.at("host")}});
  if (running) page.paragraph("This search is not finished. What follows rests on what there is.");
  QT_ASSIGN(const std::string best, write_best(data.search, data.trials, folder));
  if (!best.empty()) {
    page.section("Recommended configuration");
    page.paragraph("Also in best.toml beside the journal.");
    page.code(best);
  }
  page.section("What matters");
  add_importance(important, page);
  add_slices(data, page);
  if (!ladder.empty()) {
    page.section("The ladder");
    add_ladder(data, ladder, page);
  }
  page.section("Rungs and cost");
  add_rungs(data, page);
  if (!data.search.simulated()) {
    add_cost(data, page);
    page.section("Learning");
    add_curves(data, page);
    add_measures(data, page);
  }
  page.section("All trials");
  add_trials(data, page);
  page.section("How it was done");
  add_how(data, page);
  return page.finish();
}

}  // namespace quintet
