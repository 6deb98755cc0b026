#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/run_options.h"
#include "lab/step_bench.h"

namespace quintet {
namespace {

struct ForesightCases {
  std::vector<std::string> keys;               // of the configuration
  std::vector<std::vector<std::string>> rows;  // a value for each key
};

std::vector<std::string> comma_parts(const std::string& line) {
  std::vector<std::string> parts;
  std::istringstream stream(line);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

Result<ForesightCases> read_cases(const std::string& file) {
  std::ifstream in(file);
  if (!in) return make_error(ErrorCode::kBadInput, "{}: cannot be read", file);
  ForesightCases cases;
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> parts = comma_parts(line);
    if (cases.keys.empty()) {
      cases.keys = std::move(parts);
    } else if (parts.size() != cases.keys.size()) {
      return make_error(ErrorCode::kBadInput, "{}:{}: {} values for {} keys", file, number,
                        parts.size(), cases.keys.size());
    } else {
      cases.rows.push_back(std::move(parts));
    }
  }
  if (cases.rows.empty())
    return make_error(ErrorCode::kBadInput,
                      "{}: expected a line of configuration keys, then a line for each case", file);
  return cases;
}

struct ForesightOptions {
  std::string cases, out;
  int repetitions = 6;
  double seconds = 3, limit = 0;
};

// A line of results: seconds where the step ran; why not where it did not.
std::string measured_line(const RunOptions& run, const ForesightCases& cases,
                          const std::vector<std::string>& row, const ForesightOptions& options,
                          Status& failed) {
  std::vector<std::string> assignments;
  for (std::size_t k = 0; k < cases.keys.size(); ++k)
    assignments.push_back(cases.keys[k] + "=" + row[k]);
  const auto measure = [&]() -> Result<StepTimes> {
    QT_ASSIGN(const RunConfig config, run.load(assignments));
    QT_ASSIGN(const StepOptions step, step_options(config, 1));
    return time_steps(step, options.repetitions, options.seconds);
  };
  const auto times = measure();
  const std::string settings = join(row, ",");
  if (times.ok()) {
    const StepTimes& t = times.value();
    return fmt::format("{},yes,{:.6f},{:.6f},{:.6f},{}\n", settings, t.median, t.fastest, t.slowest,
                       t.device_bytes);
  }
  failed = times.error();
  if (times.error().code == ErrorCode::kOutOfMemory) return settings + ",no,,,,\n";
  return settings + ",failed,,,,\n";
}

Status run_foresight(const RunOptions& run, const ForesightOptions& options) {
  QT_ASSIGN(const ForesightCases cases, read_cases(options.cases));
  std::ofstream out(options.out);
  if (!out) return io_error("{}: cannot be written", options.out);
  out << join(cases.keys, ",") << ",fits,seconds,fastest,slowest,device_bytes\n" << std::flush;
  const double began = now();
  for (std::size_t i = 0; i < cases.rows.size(); ++i) {
    if (options.limit > 0 && now() - began > options.limit) {
      log_warning("{} of {} cases left out: {} are over", cases.rows.size() - i, cases.rows.size(),
                  human_duration(options.limit));
      break;
    }
    Status failed;
    const double start = now();
    const std::string line = measured_line(run, cases, cases.rows[i], options, failed);
    out << line << std::flush;
    fmt::print("{}/{} {:.1f} s: {}", i + 1, cases.rows.size(), now() - start, line);
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
