#include "base/text.h"
#include "cli/commands.h"
#include "lab/report/study_data.h"
#include "lab/statistics/analysis.h"
#include "lab/statistics/csv_table.h"

namespace quintet {
namespace {

struct AnalyseOptions {
  std::string input;
  ColumnChoice columns;
  std::vector<std::string> where;
  bool json = false;
};

// What is analysed, and what had to be left out of it.
struct AnalyseInput {
  Table measured, simulated;
  std::vector<std::string> notes;
};

Result<AnalyseInput> load_study(const AnalyseOptions& options,
                                const std::vector<Condition>& conditions) {
  for (const auto& [flag, value] :
       {std::pair{"--block", options.columns.block}, std::pair{"--memory", options.columns.memory},
        std::pair{"--predicted", options.columns.predicted}}) {
    if (!value.empty()) return usage_error("{} is for CSV files; a study knows its own", flag);
  }
  if (options.columns.more_is_better)
    return usage_error("--more-is-better is for CSV files; a study knows of its responses");
  QT_ASSIGN(const StudyData study, read_study(options.input));
  const StudyChoice choice{options.columns.response, options.columns.factors,
                           options.columns.numeric, conditions};
  QT_ASSIGN(StudyTables tables, tables_from_study(study, choice, options.input));
  return AnalyseInput{std::move(tables.measured), std::move(tables.simulated),
                      std::move(tables.notes)};
}

Result<AnalyseInput> load_csv(const AnalyseOptions& options,
                              const std::vector<Condition>& conditions) {
  if (options.columns.response.empty() || options.columns.factors.empty()) {
    return usage_error("a CSV file needs --response COLUMN and --factors COLUMN,COLUMN,...");
  }
  QT_ASSIGN(const std::string text, read_file(options.input));
  QT_ASSIGN(const CsvTable csv, parse_csv(text, options.input));
  QT_ASSIGN(CsvObservations found, table_from_csv(csv, options.columns, conditions, options.input));
  AnalyseInput input{std::move(found.table), std::move(found.predicted), {}};
  if (!found.without_response.empty()) {
    std::vector<std::string> lines;
    for (const std::size_t line : found.without_response) lines.push_back(std::to_string(line));
    const std::size_t count = lines.size();
    if (count > 10) lines.resize(10);
    input.notes.push_back(fmt::format("{} rows without {} left out (line {}{})", count,
                                      options.columns.response, join(lines, ", "),
                                      count > 10 ? ", ..." : ""));
  }
  if (found.filtered > 0) {
    input.notes.push_back(fmt::format("{} rows left out by --where", found.filtered));
  }
  return input;
}

Status run_analyse(const AnalyseOptions& options) {
  std::vector<Condition> conditions;
  for (const std::string& text : options.where) {
    QT_ASSIGN(Condition condition, parse_condition(text));
    conditions.push_back(std::move(condition));
  }
  std::error_code failure;
  const auto found = std::filesystem::status(options.input, failure);
  if (!std::filesystem::exists(found)) {
    return bad_input("{}: no such file or folder", options.input);
  }
  const bool folder = std::filesystem::is_directory(found);
  QT_ASSIGN(AnalyseInput input,
            folder ? load_study(options, conditions) : load_csv(options, conditions));
  QT_ASSIGN(const Analysis analysis,
            analyse(std::move(input.measured), std::move(input.simulated), options.input));
  input.notes.insert(input.notes.end(), analysis.notes.begin(), analysis.notes.end());
  if (options.json) {
    Json json = to_json(analysis);
    json["notes"] = input.notes;
    fmt::print("{}\n", to_text(json, 1));
    return {};
  }
  for (const std::string& note : input.notes) fmt::print("note: {}\n", note);
  fmt::print("{}", describe(analysis));
  return {};
}

}  // namespace

void add_study_analyse(CLI::App& study, Action& action) {
  CLI::App* command = study.add_subcommand(
      "analyse", "effects, interactions, crossovers, trade-offs of a study or of any CSV table");
  auto options = std::make_shared<AnalyseOptions>();
  ColumnChoice& columns = options->columns;
  command->add_option("input", options->input, "a study's folder, or a CSV file")
      ->required()
      ->type_name("FILE.csv|DIR");
  command->add_option("--response", columns.response, "what is explained; of a study: step_seconds")
      ->type_name("NAME");
  command->add_option("--factors", columns.factors, "what may explain it; of a study: all of its")
      ->delimiter(',')
      ->type_name("NAME,...");
  command->add_option("--numeric", columns.numeric, "factors along which crossovers are sought")
      ->delimiter(',')
      ->type_name("NAME,...");
  command->add_option("--block", columns.block, "CSV column of the blocks")->type_name("NAME");
  command->add_option("--memory", columns.memory, "CSV column of the memory in bytes")
      ->type_name("NAME");
  command->add_option("--predicted", columns.predicted, "CSV column of predicted responses")
      ->type_name("NAME");
  command->add_flag("--more-is-better", columns.more_is_better,
                    "of a CSV file's response; rates (per_second, /s, throughput) are known");
  command->add_option("--where", options->where, "rows with this level only; may be repeated")
      ->type_name("NAME=LEVEL");
  command->add_flag("--json", options->json, "print JSON");
  command->footer(
      "Effects are factors on the response, with 95 % intervals (docs/statistics.md).\n"
      "Examples:\n"
      "  quintet study analyse studies/zero2-zero3\n"
      "  quintet study analyse runs.csv --response seconds --factors zero,bandwidth \\\n"
      "      --numeric bandwidth --block day --where nodes=4");
  command->callback([options, &action] { action = [options] { return run_analyse(*options); }; });
}

}  // namespace quintet
