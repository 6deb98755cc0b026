#include "lab/study_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include <xxhash.h>

#include "base/text.h"
#include "lab/cluster.h"

namespace quintet {
namespace {

const std::vector<std::string> kPlaces = {"nodes", "ranks_per_node", "bandwidth", "machine"};

bool is_place(const std::string& name) {
  return std::find(kPlaces.begin(), kPlaces.end(), name) != kPlaces.end();
}

TomlValue widen(const TomlScalar& scalar) {
  return std::visit([](const auto& v) { return TomlValue(v); }, scalar);
}

std::optional<TomlScalar> scalar_of(const TomlValue& value) {
  if (const auto* v = std::get_if<bool>(&value)) return *v;
  if (const auto* v = std::get_if<std::int64_t>(&value)) return *v;
  if (const auto* v = std::get_if<double>(&value)) return *v;
  if (const auto* v = std::get_if<std::string>(&value)) return *v;
  return std::nullopt;
}

// nodes, ranks_per_node: an integer; bandwidth: text, becomes Gbit/s; machine: a file that exists.
Result<TomlScalar> place_value(const std::string& name, const TomlScalar& given,
                               const std::string& origin) {
  if (name == "nodes" || name == "ranks_per_node") {
    const auto* count = std::get_if<std::int64_t>(&given);
    if (count != nullptr && *count >= 1 && *count <= 1 << 20) return given;
    return usage_error("{}: {} = {}: expected an integer from 1 on", origin, name,
                       to_toml(widen(given)));
  }
  const auto* text = std::get_if<std::string>(&given);
  if (name == "bandwidth") {
    if (text == nullptr) {
      return usage_error("{}: bandwidth = {}: expected a text such as \"1gbit\"", origin,
                         to_toml(widen(given)));
    }
    const auto bits = parse_bandwidth(*text);
    if (!bits.ok()) return usage_error("{}: {}", origin, bits.error().message);
    return TomlScalar(bits.value() / 1e9);
  }
  if (text == nullptr || !std::filesystem::is_regular_file(*text)) {
    return usage_error("{}: machine = {}: expected the name of a machine file that exists", origin,
                       to_toml(widen(given)));
  }
  return given;
}

// A configuration key with a value, tried on a configuration of its own.
Status try_key(const std::string& key, const ConfigValue& value) {
  RunConfig scratch;
  QT_TRY(apply_config({{key, value}}, scratch.fields()));
  if (key == "model.name") {
    if (const auto model = load_model_config(scratch.model.name); !model.ok()) {
      return usage_error("{}: {}", value.origin, model.error().message);
    }
  }
  return {};
}

Status check_key(const std::string& key, const std::string& origin) {
  static const std::set<std::string> kOurs = {"train.steps", "output.folder", "output.checkpoints",
                                              "output.summary_skip", "output.resume"};
  if (kOurs.count(key) != 0) {
    return usage_error("{}: {} is set by the study itself ([measure] says how long)", origin, key);
  }
  if (key == "batch.global") {
    return usage_error(
        "{}: batch.global is set by the study itself, the same for every row: write it as "
        "[study] global_batch = N; another one is another study",
        origin);
  }
  if (key.find('.') != std::string::npos) return {};
  RunConfig scratch;
  const FieldList list = scratch.fields();
  std::vector<std::string> names = kPlaces;
  for (const Field& field : list.fields()) {
    if (field.key.substr(field.key.find('.') + 1) == key) {
      return usage_error("{}: unknown factor {}, did you mean {}?", origin, key, field.key);
    }
    names.push_back(field.key);
  }
  const std::string near = nearest(key, names);
  return usage_error(
      "{}: unknown factor {}{}: it is a configuration key (`quintet config --help-all`) or one of "
      "{}",
      origin, key, near.empty() ? "" : fmt::format(", did you mean {}?", near),
      join(kPlaces, ", "));
}

// A quantity: what is counted or measured. A ZeRO stage or a number of stages is a name.
bool is_quantity(const std::string& name) {
  return name == "nodes" || name == "ranks_per_node" || name == "bandwidth" ||
         name.rfind("batch.", 0) == 0 || name == "optimizer.offload" || name == "train.threads" ||
         name.rfind("schedule.", 0) == 0;
}

Result<DesignFactor> read_factor(const TomlEntry& entry, const std::string& origin) {
  DesignFactor factor;
  factor.name = entry.key;
  if (!is_place(factor.name)) QT_TRY(check_key(factor.name, origin));
  std::vector<TomlScalar> given;
  if (const auto* strings = std::get_if<std::vector<std::string>>(&entry.value)) {
    given.assign(strings->begin(), strings->end());
  } else if (const auto* scalars = std::get_if<std::vector<TomlScalar>>(&entry.value)) {
    given = *scalars;
  } else {
    return usage_error(
        "{}: factor {} wants a list of levels, {} = [...]; what has one value goes "
        "into [fixed]",
        origin, factor.name, factor.name);
  }
  if (given.empty()) return usage_error("{}: factor {} has no level", origin, factor.name);
  for (const TomlScalar& level : given) {
    TomlScalar value = level;
    if (is_place(factor.name)) {
      QT_ASSIGN(value, place_value(factor.name, level, origin));
    } else {
      QT_TRY(try_key(factor.name, {widen(level), origin}));
    }
    if (std::find(factor.levels.begin(), factor.levels.end(), value) != factor.levels.end()) {
      return usage_error("{}: factor {} has the level {} twice", origin, factor.name,
                         to_toml(widen(level)));
    }
    factor.levels.push_back(value);
  }
  factor.numeric = is_quantity(factor.name);
  return factor;
}

Status read_fixed(const TomlEntry& entry, const std::string& origin, StudyFile& study) {
  if (!is_place(entry.key)) {
    QT_TRY(check_key(entry.key, origin));
    const ConfigValue value{entry.value, origin};
    QT_TRY(try_key(entry.key, value));
    study.fixed[entry.key] = value;
    return {};
  }
  const auto scalar = scalar_of(entry.value);
  if (!scalar) return usage_error("{}: {} under [fixed] has one value", origin, entry.key);
  QT_ASSIGN(study.fixed_place[entry.key], place_value(entry.key, *scalar, origin));
  return {};
}

// What must hold between the sections.
Status check_study(StudyFile& study, const std::string& file) {
  const auto has_factor = [&](const std::string& name) {
    return std::any_of(study.factors.begin(), study.factors.end(),
                       [&](const DesignFactor& factor) { return factor.name == name; });
  };
  if (study.factors.empty()) return usage_error("{}: no factor under [factors]", file);
  if (study.study.question.empty()) {
    return usage_error("{}: [study] question = \"...\" is missing: what is to be found out?", file);
  }
  if (study.study.global_batch < 1) {
    return usage_error(
        "{}: [study] global_batch is missing: sequences per step, the same for every row, or "
        "rows cannot be compared",
        file);
  }
  for (const DesignFactor& factor : study.factors) {
    if (study.fixed.count(factor.name) != 0 || study.fixed_place.count(factor.name) != 0) {
      return usage_error("{}: {} is under [factors] and under [fixed]", file, factor.name);
    }
  }
  const auto batch_given = [&](const char* key) {
    return has_factor(key) || study.fixed.count(key) != 0;
  };
  if (batch_given("batch.micro_batch") && batch_given("batch.accumulate")) {
    return usage_error(
        "{}: batch.micro_batch and batch.accumulate are both given; the global batch "
        "of {} decides one of them",
        file, study.study.global_batch);
  }
  for (const std::string& name : study.design.numeric) {
    const auto factor = std::find_if(study.factors.begin(), study.factors.end(),
                                     [&](const DesignFactor& f) { return f.name == name; });
    if (factor == study.factors.end()) {
      return usage_error("{}: [design] numeric: {} is no factor", file, name);
    }
    factor->numeric = true;
  }
  for (DesignFactor& factor : study.factors) {
    const bool numbers =
        std::all_of(factor.levels.begin(), factor.levels.end(), [](const TomlScalar& level) {
          return std::holds_alternative<std::int64_t>(level) ||
                 std::holds_alternative<double>(level);
        });
    if (factor.numeric && !numbers) {
      return usage_error("{}: factor {} is to be numeric, and not all its levels are numbers", file,
                         factor.name);
    }
  }
  if (study.design.kind != "full" && study.design.cells < 1) {
    return usage_error("{}: [design] kind = \"{}\" wants cells = N, how many are chosen", file,
                       study.design.kind);
  }
  if (study.design.blocks == 0) study.design.blocks = study.design.repeats;
  const std::int64_t repeats = study.design.repeats, blocks = study.design.blocks;
  if (repeats % blocks != 0 && blocks % repeats != 0) {
    return usage_error("{}: [design] {} blocks for {} repeats: one must be a multiple of the other",
                       file, blocks, repeats);
  }
  const bool machine = has_factor("machine") || study.fixed_place.count("machine") != 0;
  const std::string& origin = study.study.origin;
  study.simulated = origin == "simulated" || origin == "both" || (origin == "auto" && machine);
  study.measured = !study.simulated || origin == "both";
  if (study.simulated && !machine) {
    return usage_error("{}: simulated rows want machine = FILE under [fixed] or [factors]", file);
  }
  const bool shaped = has_factor("bandwidth") || study.fixed_place.count("bandwidth") != 0;
  if (study.measured && shaped && study.place.kind != "emulated") {
    return usage_error(
        "{}: a bandwidth can only be given to an emulated cluster: [place] kind = \"emulated\"",
        file);
  }
  if (study.place.kind == "emulated" && !shaped) {
    return usage_error("{}: an emulated cluster wants a bandwidth under [fixed] or [factors]",
                       file);
  }
  if (study.place.kind == "hosts" && study.place.hosts.empty()) {
    return usage_error("{}: [place] kind = \"hosts\" wants hosts = [\"node1\", \"node2\"]", file);
  }
  return {};
}

}  // namespace

double number_of(const TomlScalar& scalar) {
  if (const auto* integer = std::get_if<std::int64_t>(&scalar))
    return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&scalar)) return *real;
  return std::nan("");
}

void StudySection::list(FieldList& fields) {
  fields.add("name", name, "what the study is called");
  fields.add("question", question, "what is to be found out, in a sentence");
  fields.add("global_batch", global_batch, "sequences per step, the same for every row",
             between(1, 1 << 24));
  fields.add("origin", origin,
             "what rows are; auto: simulated where a machine file is named, else measured",
             one_of({"auto", "measured", "simulated", "both"}));
}

void DesignSection::list(FieldList& fields) {
  fields.add("kind", kind,
             "all combinations of levels; N with all pairs of levels as evenly as possible; or "
             "N at random",
             one_of({"full", "fraction", "sample"}));
  fields.add("cells", cells, "fraction, sample: how many combinations", between(1, 1000000));
  fields.add("repeats", repeats, "runs of each combination", between(1, 10000));
  fields.add("blocks", blocks,
             "parts of the study in each of which the order is random; 0: one for each repeat",
             between(0, 10000));
  fields.add("seed", seed, "of what is chosen and in which order it runs", at_least(0));
  fields.add("require", require, "conditions that every row meets");
  fields.add("numeric", numeric, "factors whose levels are quantities");
}

void MeasureSection::list(FieldList& fields) {
  fields.add("steps", steps, "steps that are measured", between(1, 100000));
  fields.add("warmup", warmup, "steps before them that are not", between(1, 100000));
  fields.add("timeout", timeout, "seconds after which a run counts as failed", between(1, 86400));
}

void PlaceSection::list(FieldList& fields) {
  fields.add("kind", kind,
             "where measured rows run: all ranks on this machine, on an emulated cluster of it, on "
             "hosts through mpirun, or in a SLURM allocation through srun",
             one_of({"local", "emulated", "hosts", "slurm"}));
  fields.add("hosts", hosts, "hosts: their names, a node each");
}

Result<StudyFile> StudyFile::parse(const std::string& text, const std::string& file) {
  StudyFile study;
  study.text = text;
  study.hash = fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
  QT_ASSIGN(const std::vector<TomlEntry> entries, parse_toml(text, file));
  ConfigValues own;
  for (const TomlEntry& entry : entries) {
    const std::string origin = fmt::format("{}:{}", file, entry.line);
    if (entry.section == "factors") {
      QT_ASSIGN(DesignFactor factor, read_factor(entry, origin));
      study.factors.push_back(std::move(factor));
    } else if (entry.section == "fixed") {
      QT_TRY(read_fixed(entry, origin, study));
    } else if (entry.section.empty()) {
      return usage_error("{}: {} is outside a section; write it under [study]", origin, entry.key);
    } else {
      own[entry.section + "." + entry.key] = {entry.value, origin};
    }
  }
  FieldList fields;
  fields.add_section("study", "What is asked.", study.study);
  fields.add_section("design", "Which rows, in which order.", study.design);
  fields.add_section("measure", "How long.", study.measure);
  fields.add_section("place", "Where.", study.place);
  for (const char* section : {"fixed", "factors"}) fields.know_section(section);
  QT_TRY(apply_config(own, fields, "docs/studies.md"));
  if (study.study.name.empty()) {
    study.study.name = std::filesystem::path(file).stem().string();
  }
  QT_TRY(check_study(study, file));
  const Settings known = study.settings_of(std::vector<std::size_t>(study.factors.size(), 0));
  for (const std::string& condition : study.design.require) {
    QT_ASSIGN(RowCondition read, RowCondition::parse(condition, known, file));
    study.require.push_back(std::move(read));
  }
  return study;
}

Settings StudyFile::settings_of(const std::vector<std::size_t>& levels) const {
  Settings settings = fixed_place;
  for (const auto& [key, value] : fixed) {
    if (const auto scalar = scalar_of(value.value)) settings[key] = *scalar;
  }
  for (std::size_t f = 0; f < factors.size(); ++f) {
    settings[factors[f].name] = factors[f].levels[levels[f]];
  }
  settings.try_emplace("nodes", std::int64_t{1});
  settings.try_emplace("ranks_per_node", std::int64_t{1});
  settings["ranks"] = static_cast<std::int64_t>(number_of(settings["nodes"]) *
                                                number_of(settings["ranks_per_node"]));
  return settings;
}

Status keep_global_batch(RunConfig& config, std::int64_t global_batch, std::int64_t ranks,
                         bool sizes_follow) {
  QT_ASSIGN(const Grid grid, make_grid(ranks, config.parallel));
  std::int64_t& given = sizes_follow ? config.batch.accumulate : config.batch.micro_batch;
  std::int64_t& follows = sizes_follow ? config.batch.micro_batch : config.batch.accumulate;
  const std::int64_t at_once = given * grid.dp;
  if (global_batch % at_once != 0) {
    return usage_error("a global batch of {} is not a multiple of {} data ranks x {} {}",
                       global_batch, grid.dp, given, sizes_follow ? "micro-batches" : "sequences");
  }
  follows = global_batch / at_once;
  return {};
}

Result<CellRun> run_of(const StudyFile& study, const std::vector<std::size_t>& levels) {
  CellRun run;
  const Settings settings = study.settings_of(levels);
  run.nodes = std::get<std::int64_t>(settings.at("nodes"));
  run.ranks_per_node = std::get<std::int64_t>(settings.at("ranks_per_node"));
  if (const auto found = settings.find("bandwidth"); found != settings.end()) {
    run.bandwidth = number_of(found->second) * 1e9;
  }
  if (const auto found = settings.find("machine"); found != settings.end()) {
    run.machine = std::get<std::string>(found->second);
  }
  ConfigValues values = study.fixed;
  for (std::size_t f = 0; f < study.factors.size(); ++f) {
    const DesignFactor& factor = study.factors[f];
    if (!is_place(factor.name))
      values[factor.name] = {widen(factor.levels[levels[f]]), "the study"};
  }
  QT_TRY(apply_config(values, run.config.fields()));
  QT_TRY(keep_global_batch(run.config, study.study.global_batch, run.ranks(),
                           values.count("batch.micro_batch") == 0));
  run.config.train.steps = study.measure.warmup + study.measure.steps;
  run.config.output.checkpoints = false;
  run.config.output.summary_skip = study.measure.warmup;
  run.config.output.log_every = run.config.train.steps;
  QT_TRY(step_options(run.config, run.ranks()));
  return run;
}

}  // namespace quintet
