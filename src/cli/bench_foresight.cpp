#include <algorithm>
#include <fstream>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/run_options.h"
#include "lab/statistics/csv.h"
#include "lab/step_bench.h"

namespace quintet {
namespace {

struct ForesightOptions {
  std::string cases, out;
  int repetitions = 6;
  double seconds = 3, limit = 0;
};

struct ForesightCases {
  std::string keys;  // of the configuration, as a line of CSV
  struct Case {
    std::string values;  // for these keys
    StepOptions step;
  };
  std::vector<Case> cases;
};

std::string csv_line(const std::vector<std::string>& fields) {
  std::vector<std::string> written;
  for (const std::string& field : fields) written.push_back(csv_field(field));
  return join(written, ",");
}

// Each value by itself: what is wrong with one is told with its line and key.
Status try_values(const CsvTable& csv, const std::string& file) {
  RunConfig scratch;
  const FieldList list = scratch.fields();
  const auto fields = list.fields();
  for (const CsvTable::Row& row : csv.rows) {
    for (std::size_t k = 0; k < csv.names.size(); ++k) {
      const std::string &key = csv.names[k], &text = row.fields[k];
      const bool known = std::any_of(fields.begin(), fields.end(),
                                     [&](const Field& field) { return field.key == key; });
      auto value = parse_toml_value(text);
      QT_TRY(apply_config({{key,
                            {value.ok() ? std::move(value).value() : TomlValue(text),
                             fmt::format("{}:{}", file, known ? row.line : csv.line)}}},
                          list));
    }
  }
  return {};
}

// Everything is checked before the first case runs: a slip in the last would cost hours of a
// device.
Result<ForesightCases> read_cases(const RunOptions& run, const std::string& file) {
  QT_TRY(run.load());  // what is wrong without any case
  QT_ASSIGN(const std::string text, read_file(file));
  const auto csv = parse_csv(text, file);
  if (!csv.ok()) return usage_error("{}", csv.error().message);  // it is a configuration
  QT_TRY(try_values(csv.value(), file));
  ForesightCases cases{csv_line(csv.value().names), {}};
  for (const CsvTable::Row& row : csv.value().rows) {
    std::vector<std::string> assignments;
    for (std::size_t k = 0; k < row.fields.size(); ++k)
      assignments.push_back(csv.value().names[k] + "=" + row.fields[k]);
    QT_ASSIGN(const RunConfig config, run.load(assignments));
    auto step = step_options(config, 1);
    if (!step.ok())
      return make_error(step.error().code, "{}:{}: {}", file, row.line, step.error().message);
    cases.cases.push_back({csv_line(row.fields), std::move(step).value()});
  }
  return cases;
}

// A line of results: seconds where the step ran; why not where it did not.
std::string measured_line(const ForesightCases::Case& one, const ForesightOptions& options,
                          Status& failed) {
  const auto times = time_steps(one.step, options.repetitions, options.seconds);
  if (times.ok()) {
    const StepTimes& t = times.value();
    return fmt::format("{},yes,{:.6f},{:.6f},{:.6f},{}\n", one.values, t.median, t.fastest,
                       t.slowest, t.device_bytes);
  }
  failed = times.error();
  if (times.error().code == ErrorCode::kOutOfMemory) return one.values + ",no,,,,\n";
  return one.values + ",failed,,,,\n";
}

Status run_foresight(const RunOptions& run, const ForesightOptions& options) {
  QT_ASSIGN(const ForesightCases all, read_cases(run, options.cases));
  const auto& cases = all.cases;
  std::ofstream out(options.out);
  if (!out) return io_error("{}: cannot be written", options.out);
  out << all.keys << ",fits,seconds,fastest,slowest,device_bytes\n" << std::flush;
  const double began = now();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (options.limit > 0 && now() - began > options.limit) {
      log_warning("{} of {} cases left out: {} are over", cases.size() - i, cases.size(),
                  human_duration(options.limit));
      break;
    }
    Status failed;
    const double start = now();
    const std::string line = measured_line(cases[i], options, failed);
    out << line << std::flush;
    fmt::print("{}/{} {:.1f} s: {}", i + 1, cases.size(), now() - start, line);
    if (!failed.ok() && failed.error().code != ErrorCode::kOutOfMemory)
      log_warning("{}", failed.error().message);
    std::fflush(stdout);
  }
  return out ? Status() : io_error("{}: cannot be written", options.out);
}

}  // namespace

void add_bench_foresight(CLI::App& bench, Action& action) {
  CLI::App* command = bench.add_subcommand(
      "foresight", "the step times of many cases, to hold predictions against");
  auto run = std::make_shared<RunOptions>(*command);
  auto options = std::make_shared<ForesightOptions>();
  command
      ->add_option("--cases", options->cases,
                   "CSV: a line of configuration keys, then a line of values for each case")
      ->type_name("FILE")
      ->required();
  command->add_option("--out", options->out, "CSV of results, written case by case")
      ->type_name("FILE")
      ->required();
  command->add_option("--repeat", options->repetitions, "steps to time, at most")
      ->check(CLI::Range(1, 100000));
  command->add_option("--seconds", options->seconds, "for the steps of one case, about")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--limit", options->limit, "no new case after this many seconds; 0: all of them")
      ->check(CLI::NonNegativeNumber);
  command->footer(
      "Example: quintet bench foresight --cases bench/foresight/h200_cases.csv --out measured.csv "
      "--device cuda --precision bf16 --source 1024 --target 256\n"
      "then bench/foresight/compare.py measured.csv machines/h200.toml");
  command->callback([run, options, &action] {
    action = [run, options] { return run_foresight(*run, *options); };
  });
}

}  // namespace quintet
