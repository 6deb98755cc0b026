#include "lab/search/search_file.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include <xxhash.h>

#include "base/philox.h"
#include "base/text.h"

namespace quintet {
namespace {

TomlValue value_of_scalar(const TomlScalar& scalar) {
  return std::visit([](const auto& v) { return TomlValue(v); }, scalar);
}

std::vector<TomlScalar> scalars_of(const TomlValue& value) {
  if (const auto* strings = std::get_if<std::vector<std::string>>(&value))
    return {strings->begin(), strings->end()};
  if (const auto* scalars = std::get_if<std::vector<TomlScalar>>(&value)) return *scalars;
  return {};
}

bool is_list(const TomlValue& value) {
  return std::holds_alternative<std::vector<std::string>>(value) ||
         std::holds_alternative<std::vector<TomlScalar>>(value);
}

// A key with a value, tried on a configuration of its own.
Status try_setting(const std::string& key, const ConfigValue& value) {
  RunConfig scratch;
  QT_TRY(apply_config({{key, value}}, scratch.fields()));
  if (key != "model.name") return {};
  if (const auto model = load_model_config(scratch.model.name); !model.ok())
    return usage_error("{}: {}", value.origin, model.error().message);
  return {};
}

// Keys that the search sets itself, or that would make losses of trials incomparable.
Status check_searched_key(const std::string& key, const std::string& origin, bool searched,
                          const SearchFile& file) {
  static const std::map<std::string, std::string> kOurs = {
      {"train.steps", "[budget] says how long"},
      {"train.stop_after", "[budget] says how long"},
      {"train.max_hours", "[budget] says how long"},
      {"output.folder", "each trial has a folder of its own"},
      {"output.checkpoints", "trials are continued from their checkpoints"},
      {"output.resume", "trials are continued from their checkpoints"},
      {"output.resume_changed", "trials are continued from their checkpoints"},
      {"output.trace", "each trial has a folder of its own"},
      {"validate.sequences", "[search] validation_sequences says how many"},
      {"validate.batches", "[search] validation_sequences says how many"},
      {"validate.patience", "trials are compared after equal budgets"}};
  if (const auto ours = kOurs.find(key); ours != kOurs.end()) {
    return usage_error("{}: {} is set by the search itself: {}", origin, key, ours->second);
  }
  if (key == "model.name" && !file.ladder.models.empty()) {
    return usage_error("{}: model.name is given by [ladder] models", origin);
  }
  if (!searched || file.simulated()) return {};
  const std::string section = key.substr(0, key.find('.'));
  static const std::set<std::string> kOtherTask = {"batch.source", "batch.target",
                                                   "model.vocabulary"};
  if (section == "data" || section == "validate" || section == "output" ||
      kOtherTask.count(key) != 0) {
    return usage_error(
        "{}: {} cannot be searched: it changes what the loss is measured on, and trials could not "
        "be compared; put it under [fixed]",
        origin, key);
  }
  if (section == "batch" && file.budget.tokens == 0) {
    return usage_error(
        "{}: {} is searched with a budget in steps: trials would train on unequal amounts of text; "
        "give [budget] tokens = N instead of steps",
        origin, key);
  }
  return {};
}

// A known key; the name may be right and the section missing.
Status check_known_key(const std::string& key, const std::string& origin) {
  RunConfig scratch;
  const FieldList list = scratch.fields();
  std::vector<std::string> names;
  for (const Field& field : list.fields()) {
    if (field.key == key) return {};
    if (field.key.substr(field.key.find('.') + 1) == key)
      return usage_error("{}: unknown key {}, did you mean {}?", origin, key, field.key);
    names.push_back(field.key);
  }
  const std::string near = nearest(key, names);
  return usage_error("{}: unknown key {}{}; `quintet config --help-all` lists them all", origin,
                     key, near.empty() ? "" : fmt::format(", did you mean {}?", near));
}

bool takes_integers(const std::string& key) {
  RunConfig scratch;
  const FieldList list = scratch.fields();
  return std::any_of(list.fields().begin(), list.fields().end(), [&](const Field& field) {
    return field.key == key && std::holds_alternative<std::int64_t*>(field.target);
  });
}

// What was written about one parameter, attribute by attribute.
struct WrittenParameter {
  std::string key, origin;
  std::map<std::string, const TomlEntry*> attributes;
};

constexpr const char* kHowToWrite =
    "write KEY = {log = [low, high]}, {linear = [low, high]}, {integer = [low, high]} or {choice = "
    "[...]}, with when = \"...\" if it does not always count";

Result<std::vector<WrittenParameter>> written_parameters(const std::vector<TomlEntry>& entries,
                                                         const std::string& file) {
  std::vector<WrittenParameter> all;
  for (const TomlEntry& entry : entries) {
    if (entry.section != "space") continue;
    const std::string origin = fmt::format("{}:{}", file, entry.line);
    const std::size_t dot = entry.key.rfind('.');
    const std::string key = entry.key.substr(0, dot);
    static const std::vector<std::string> kAttributes = {"log", "linear", "integer", "choice",
                                                         "when"};
    const std::string attribute = dot == std::string::npos ? "" : entry.key.substr(dot + 1);
    if (std::find(kAttributes.begin(), kAttributes.end(), attribute) == kAttributes.end()) {
      const bool whole_key = std::count(entry.key.begin(), entry.key.end(), '.') == 1;
      if (whole_key)
        return usage_error("{}: {} has no range: {}; what has one value goes into [fixed]", origin,
                           entry.key, kHowToWrite);
      const std::string near = nearest(attribute, kAttributes);
      return usage_error("{}: {} of {} is unknown{}: {}", origin, attribute, key,
                         near.empty() ? "" : fmt::format(", did you mean {}?", near), kHowToWrite);
    }
    const auto known = std::find_if(all.begin(), all.end(),
                                    [&](const WrittenParameter& one) { return one.key == key; });
    WrittenParameter& one =
        known != all.end() ? *known : all.emplace_back(WrittenParameter{key, origin, {}});
    one.attributes[attribute] = &entry;
  }
  return all;
}

Result<std::pair<double, double>> bounds_in(const WrittenParameter& written,
                                            const std::string& attribute) {
  const std::vector<TomlScalar> ends = scalars_of(written.attributes.at(attribute)->value);
  const auto fail = [&](const std::string& why) {
    return usage_error("{}: {} = {{{} = {}}}: {}", written.origin, written.key, attribute,
                       to_toml(written.attributes.at(attribute)->value), why);
  };
  if (ends.size() != 2 || std::isnan(search_number(ends[0])) || std::isnan(search_number(ends[1])))
    return fail("expected two numbers, [low, high]");
  const double low = search_number(ends[0]), high = search_number(ends[1]);
  if (!std::isfinite(low) || !std::isfinite(high)) return fail("bounds must be finite");
  if (low > high) return fail("the bounds are inverted");
  if (low == high) return fail("the bounds are equal; what has one value goes into [fixed]");
  if (attribute != "integer") return std::pair(low, high);
  for (const TomlScalar& end : ends) {
    if (!std::holds_alternative<std::int64_t>(end)) return fail("expected two integers");
  }
  if (std::max(std::abs(low), std::abs(high)) > 0x1p52) return fail("too large");
  return std::pair(low, high);
}

Result<SearchParameter> read_parameter(const WrittenParameter& written) {
  SearchParameter parameter;
  parameter.key = written.key;
  parameter.origin = written.origin;
  const auto has = [&](const char* attribute) { return written.attributes.count(attribute) != 0; };
  const bool log_flag = has("log") && !is_list(written.attributes.at("log")->value);
  const int kinds = (has("log") && !log_flag) + has("linear") + has("integer") + has("choice");
  if (kinds != 1) {
    return usage_error("{}: {} has {}: {}", written.origin, written.key,
                       kinds == 0 ? "no range" : "more than one range", kHowToWrite);
  }
  if (log_flag) {
    const auto* flag = std::get_if<bool>(&written.attributes.at("log")->value);
    if (flag == nullptr || !has("integer"))
      return usage_error("{}: {}: log is a range, or log = true beside integer", written.origin,
                         written.key);
    parameter.logarithmic = *flag;
  }
  if (has("choice")) {
    parameter.kind = SearchParameter::Kind::kChoice;
    const TomlValue& given = written.attributes.at("choice")->value;
    parameter.choices = scalars_of(given);
    if (!is_list(given) || parameter.choices.size() < 2) {
      return usage_error("{}: {} = {{choice = {}}}: expected a list of at least two values",
                         written.origin, written.key, to_toml(given));
    }
    for (auto at = parameter.choices.begin(); at != parameter.choices.end(); ++at) {
      if (std::find(parameter.choices.begin(), at, *at) != at)
        return usage_error("{}: {} has the choice {} twice", written.origin, written.key,
                           to_toml(value_of_scalar(*at)));
    }
    return parameter;
  }
  const std::string kind = has("integer") ? "integer" : has("linear") ? "linear" : "log";
  QT_ASSIGN(const auto bounds, bounds_in(written, kind));
  parameter.low = bounds.first;
  parameter.high = bounds.second;
  if (kind == "integer") parameter.kind = SearchParameter::Kind::kInteger;
  if (kind == "log") parameter.logarithmic = true;
  if (parameter.logarithmic && parameter.low <= 0) {
    return usage_error(
        "{}: {} from {} on is logarithmic: there is no logarithm of {}; both bounds "
        "must be above 0",
        written.origin, written.key, parameter.low,
        parameter.low == 0 ? "zero" : "a negative number");
  }
  if (kind != "integer" && takes_integers(written.key)) {
    return usage_error("{}: {} takes integers: write {{integer = [low, high]{}}}", written.origin,
                       written.key, kind == "log" ? ", log = true" : "");
  }
  return parameter;
}

// Every value that can be named beforehand must be one that the key takes.
Status check_values(const SearchParameter& parameter) {
  std::vector<TomlScalar> values = parameter.choices;
  if (parameter.kind == SearchParameter::Kind::kReal) values = {parameter.low, parameter.high};
  if (parameter.kind == SearchParameter::Kind::kInteger) {
    values = {static_cast<std::int64_t>(parameter.low), static_cast<std::int64_t>(parameter.high)};
  }
  for (const TomlScalar& value : values)
    QT_TRY(try_setting(parameter.key, {value_of_scalar(value), parameter.origin}));
  return {};
}

Result<SearchSpace> read_space(const std::vector<TomlEntry>& entries, const std::string& file,
                               const SearchFile& search) {
  QT_ASSIGN(const auto written, written_parameters(entries, file));
  if (written.empty()) return usage_error("{}: nothing is searched: [space] is empty", file);
  Settings fixed;
  for (const auto& [key, value] : search.fixed) {
    if (const auto* list = std::get_if<std::vector<std::string>>(&value.value); list != nullptr)
      continue;
    std::visit(
        [&, &name = key](const auto& v) {
          if constexpr (std::is_constructible_v<TomlScalar, decltype(v)>) fixed[name] = v;
        },
        value.value);
  }
  Settings known = fixed;
  std::vector<SearchParameter> parameters;
  for (const WrittenParameter& one : written) {
    QT_TRY(check_known_key(one.key, one.origin));
    QT_TRY(check_searched_key(one.key, one.origin, true, search));
    if (search.fixed.count(one.key) != 0)
      return usage_error("{}: {} is under [space] and under [fixed]", one.origin, one.key);
    QT_ASSIGN(SearchParameter parameter, read_parameter(one));
    QT_TRY(check_values(parameter));
    if (const auto when = one.attributes.find("when"); when != one.attributes.end()) {
      const auto* condition = std::get_if<std::string>(&when->second->value);
      if (condition == nullptr)
        return usage_error("{}: when of {} is a condition in quotes", one.origin, one.key);
      QT_ASSIGN(RowCondition read, RowCondition::parse(*condition, known, one.origin));
      parameter.when = std::move(read);
    }
    known[one.key] = parameter.value_at(0);
    parameters.push_back(std::move(parameter));
  }
  return SearchSpace(std::move(parameters), std::move(fixed));
}

// What must hold between the sections.
Status check_sections(const SearchFile& search, const std::string& file) {
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  };
  const std::string& name = search.search.name;
  if (!std::all_of(name.begin(), name.end(), is_plain)) {
    return usage_error("{}: [search] name = {}: folders are named after it: letters, digits, - _ .",
                       file, to_toml(TomlValue(name)));
  }
  if (search.search.question.empty()) {
    return usage_error("{}: [search] question = \"...\" is missing: what is to be found out?",
                       file);
  }
  const BudgetSection& budget = search.budget;
  if (search.simulated()) {
    if (search.place.machine.empty())
      return usage_error(
          "{}: objective = \"step_seconds\" is planned for a machine: [place] machine "
          "= FILE is missing",
          file);
    if (!std::filesystem::is_regular_file(search.place.machine))
      return usage_error(
          "{}: [place] machine = {}: expected the name of a machine file that exists", file,
          to_toml(TomlValue(search.place.machine)));
    if (budget.rungs > 1 || budget.steps + budget.tokens + budget.total_steps > 0)
      return usage_error(
          "{}: objective = \"step_seconds\" plans a step and trains none: leave out "
          "[budget]",
          file);
    return {};
  }
  if (!search.place.machine.empty())
    return usage_error("{}: [place] machine is for objective = \"step_seconds\"", file);
  if ((budget.steps > 0) == (budget.tokens > 0))
    return usage_error(
        "{}: [budget] wants steps = N or tokens = N, one of them: how long a trial "
        "trains at most",
        file);
  if (search.ladder.growth != 1 && search.ladder.models.size() < 2)
    return usage_error("{}: [ladder] growth has no effect on fewer than two models", file);
  return {};
}

// A global batch that is the same for all, where only time counts.
Status check_simulated_batch(const SearchFile& search) {
  if (!search.simulated() || search.fixed.count("batch.global") != 0) return {};
  for (const SearchParameter& parameter : search.space.parameters()) {
    const std::string section = parameter.key.substr(0, parameter.key.find('.'));
    if (section == "batch" || parameter.key == "parallel.tp" || parameter.key == "parallel.pp")
      return usage_error(
          "{}: {} is searched for step time, and changes how many sequences a step has: fix "
          "batch.global, or steps cannot be compared",
          parameter.origin, parameter.key);
  }
  return {};
}

// With values of the parameter at hand held fast, the reason why nothing around it can run; empty
// where something can.
std::string why_impossible(const SearchFile& search, std::size_t held, double unit,
                           std::int64_t level) {
  constexpr std::int64_t kTries = 64;
  PhiloxSequence random(1, stream_of("search.check"));
  std::string reason;
  for (std::int64_t i = 0; i < kTries; ++i) {
    std::vector<double> units(search.space.size());
    for (double& one : units) one = random.uniform();
    if (held < units.size()) units[held] = unit;
    const auto plan = search.plan_of(search.space.settings_at(units), level, 1);
    if (plan.ok()) return "";
    if (reason.empty()) reason = plan.error().message;
  }
  return reason;
}

// Every choice must be one that some run can have.
Status check_runs(const SearchFile& search, const std::string& file) {
  const auto no_parameter = search.space.size();
  for (std::int64_t level = 0; level < search.levels(); ++level) {
    const std::string why = why_impossible(search, no_parameter, 0, level);
    if (!why.empty()) return usage_error("{}: none of 64 trials could run: {}", file, why);
  }
  for (std::size_t p = 0; p < search.space.size(); ++p) {
    const SearchParameter& parameter = search.space.parameters()[p];
    for (const TomlScalar& choice : parameter.choices) {
      const std::string why = why_impossible(search, p, parameter.cell_of(choice).middle(), 0);
      if (!why.empty())
        return usage_error("{}: no run can have {} = {}: {}", parameter.origin, parameter.key,
                           to_toml(value_of_scalar(choice)), why);
    }
  }
  return {};
}

// Trials that are stopped at rungs are compared there. That means something where the rate at a
// rung is what a run of that length would have had before its cool-down.
Status check_schedule(const LearningRateConfig& schedule,
                      const std::vector<std::int64_t>& rung_steps) {
  if (rung_steps.size() < 2) return {};
  if (schedule.kind == "linear" || schedule.kind == "cosine") {
    return usage_error(
        "schedule.kind = \"{}\" with {} rungs: a trial that is stopped half-way down is compared "
        "at a rate that no run of that length has; take \"constant\", \"inverse_sqrt\" or \"wsd\" "
        "(which cools down after the last rung but one), or rungs = 1",
        schedule.kind, rung_steps.size());
  }
  const std::int64_t steps = rung_steps.back(), before = rung_steps[rung_steps.size() - 2];
  const std::int64_t decay =
      schedule.decay_steps > 0 ? schedule.decay_steps : std::max<std::int64_t>(steps / 10, 1);
  if (schedule.kind == "wsd" && decay > steps - before) {
    return usage_error(
        "schedule.kind = \"wsd\": the decay of {} steps begins before the last rung but one ends, "
        "at step {} of {}; lower schedule.decay_steps",
        decay, before, steps);
  }
  return {};
}

}  // namespace

void SearchSection::list(FieldList& fields) {
  fields.add("name", name, "what the search is called");
  fields.add("question", question, "what is to be found out, in a sentence");
  fields.add("objective", objective,
             "what is to be small: the loss on other text, the training loss over the last tenth "
             "of a budget, or the time of a step, simulated for [place] machine",
             one_of({"validation_loss", "loss", "step_seconds"}));
  fields.add(
      "sampler", sampler,
      "how settings are chosen: by a Gaussian process, by Parzen estimators, evenly, or at random",
      one_of({"gp", "tpe", "sobol", "random"}));
  fields.add("trials", trials, "settings that are tried (on the ladder's first model)",
             between(1, 1000000));
  fields.add("seed", seed, "of the sampler", at_least(0));
  fields.add("startup", startup, "gp, tpe: trials of Sobol's before the first that is modelled",
             between(2, 1000000));
  fields.add("parallel", parallel,
             "trials at a time, where memory allows; 0: as many as there are cores for them",
             between(0, 4096));
  fields.add("validation_sequences", validation_sequences,
             "validation_loss: sequences it is measured on, the same for every trial",
             between(1, std::int64_t{1} << 32));
}

void BudgetSection::list(FieldList& fields) {
  fields.add("steps", steps, "steps of a trial that is not stopped", at_least(1));
  fields.add("tokens", tokens, "the same in tokens of source and target, whatever the batch",
             at_least(1));
  fields.add("rungs", rungs,
             "places where trials are compared and most are stopped, the end included",
             between(1, 20));
  fields.add("reduction", reduction,
             "one in so many goes on after a rung, for so many times as long", between(2, 100));
  fields.add("spared", spared,
             "trials that must have got to the end before any is stopped at a rung", at_least(0));
  fields.add("total_steps", total_steps,
             "steps of all trials on the first model together; 0: as many as it takes",
             at_least(0));
}

void LadderSection::list(FieldList& fields) {
  fields.add("models", models, "models from small to large; the best on one are tried on the next");
  fields.add("promote", promote, "how many go up", between(2, 1000000));
  fields.add("growth", growth, "the budget on a model over that on the one before",
             between(0.01, 1000));
}

void SearchPlaceSection::list(FieldList& fields) {
  fields.add("nodes", nodes, "nodes of a trial (of this machine, or planned)", between(1, 1 << 20));
  fields.add("ranks_per_node", ranks_per_node, "ranks on each", between(1, 1 << 10));
  fields.add("machine", machine, "step_seconds: the machine file");
  fields.add("memory_gib", memory_gib,
             "memory for all trials at a time; 0: what is free on this machine, and on a GPU one "
             "trial at a time",
             between(0, 1 << 20));
  fields.add("timeout", timeout, "seconds after which a part of a trial counts as failed",
             between(1, 1e7));
}

Result<SearchFile> SearchFile::parse(const std::string& text, const std::string& file) {
  SearchFile search;
  search.text = text;
  search.hash = fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
  QT_ASSIGN(const std::vector<TomlEntry> entries, parse_toml(text, file));
  ConfigValues own;
  for (const TomlEntry& entry : entries) {
    const std::string origin = fmt::format("{}:{}", file, entry.line);
    if (entry.section == "space" || entry.section == "fixed") continue;
    if (entry.section.empty())
      return usage_error("{}: {} is outside a section; write it under [search]", origin, entry.key);
    own[entry.section + "." + entry.key] = {entry.value, origin};
  }
  FieldList fields;
  fields.add_section("search", "What is asked.", search.search);
  fields.add_section("budget", "How long.", search.budget);
  fields.add_section("ladder", "On which models.", search.ladder);
  fields.add_section("place", "Where.", search.place);
  for (const char* section : {"fixed", "space"}) fields.know_section(section);
  QT_TRY(apply_config(own, fields, "docs/search.md"));
  if (search.search.name.empty()) search.search.name = std::filesystem::path(file).stem().string();
  QT_TRY(check_sections(search, file));
  for (const TomlEntry& entry : entries) {
    if (entry.section != "fixed") continue;
    const std::string origin = fmt::format("{}:{}", file, entry.line);
    QT_TRY(check_known_key(entry.key, origin));
    QT_TRY(check_searched_key(entry.key, origin, false, search));
    QT_TRY(try_setting(entry.key, {entry.value, origin}));
    search.fixed[entry.key] = {entry.value, origin};
  }
  for (const std::string& model : search.ladder.models) {
    const auto given = own.find("ladder.models");
    QT_TRY(try_setting("model.name", {TomlValue(model), given->second.origin}));
  }
  QT_ASSIGN(search.space, read_space(entries, file, search));
  QT_TRY(check_simulated_batch(search));
  if (const auto kind = search.fixed.find("schedule.kind");
      kind != search.fixed.end() && search.budget.rungs > 1) {
    LearningRateConfig schedule;
    schedule.kind = std::get<std::string>(kind->second.value);
    if (schedule.kind != "wsd") {
      if (const Status suits = check_schedule(schedule, {1, 2}); !suits.ok())
        return usage_error("{}: {}", kind->second.origin, suits.error().message);
    }
  }
  QT_TRY(check_runs(search, file));
  return search;
}

SamplerOptions SearchFile::sampler() const {
  return {search.sampler, static_cast<std::uint64_t>(search.seed), search.startup};
}

Result<TrialPlan> SearchFile::plan_of(const Settings& settings, std::int64_t level,
                                      std::int64_t threads) const {
  TrialPlan plan;
  ConfigValues values = fixed;
  for (const auto& [key, value] : settings) values[key] = {value_of_scalar(value), "the search"};
  if (!ladder.models.empty()) {
    values["model.name"] = {TomlValue(ladder.models[static_cast<std::size_t>(level)]), "[ladder]"};
  }
  RunConfig& config = plan.config;
  QT_TRY(apply_config(values, config.fields()));
  if (config.train.threads == 0) config.train.threads = threads;
  if (simulated()) {
    plan.rung_steps = {1};
    QT_ASSIGN(const StepOptions options, step_options(config, ranks()));
    plan.global_batch = options.global_batch();
    return plan;
  }
  // The schedule is checked against the steps, which the batch decides where tokens are given.
  RunConfig sized = config;
  sized.train.steps = std::int64_t{1} << 40;
  QT_ASSIGN(const StepOptions options, step_options(sized, ranks()));
  const double grown = std::pow(ladder.growth, static_cast<double>(level));
  plan.global_batch = options.global_batch();
  const std::int64_t tokens = plan.global_batch * (options.batch.source + options.batch.target);
  const double steps = budget.steps > 0
                           ? static_cast<double>(budget.steps)
                           : static_cast<double>(budget.tokens) / static_cast<double>(tokens);
  config.train.steps = static_cast<std::int64_t>(std::ceil(steps * grown - 1e-9));
  // On larger models nothing is stopped: what came so far is compared at full length.
  const std::int64_t rungs = level == 0 ? budget.rungs : 1;
  for (std::int64_t rung = 0; rung < rungs; ++rung) {
    const double share =
        std::pow(static_cast<double>(budget.reduction), static_cast<double>(rung - rungs + 1));
    plan.rung_steps.push_back(static_cast<std::int64_t>(
        std::ceil(static_cast<double>(config.train.steps) * share - 1e-9)));
    if (rung > 0 && plan.rung_steps[static_cast<std::size_t>(rung)] <=
                        plan.rung_steps[static_cast<std::size_t>(rung) - 1]) {
      return usage_error("a budget of {} steps is too short for {} rungs of {} times each other",
                         config.train.steps, rungs, budget.reduction);
    }
  }
  QT_TRY(check_schedule(config.schedule, plan.rung_steps));
  if (search.objective == "validation_loss") {
    config.validate.sequences = search.validation_sequences;
    if (config.validate.every == 0) config.validate.every = config.train.steps;
  }
  config.output.summary_skip = 0;
  config.output.log_every = config.train.steps;
  config.output.keep = 1;
  QT_TRY(step_options(config, ranks()));
  return plan;
}

}  // namespace quintet
