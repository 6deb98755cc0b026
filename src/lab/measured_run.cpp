#include "lab/measured_run.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "lab/cluster.h"
#include "lab/mpirun.h"
#include "lab/tool.h"

namespace quintet {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// What the rank that ended first left there; nothing where none did.
std::optional<Error> outcome_in(const std::string& file) {
  const auto text = read_file(file);
  if (!text.ok()) return std::nullopt;
  const std::size_t line = text.value().find('\n');
  int code = 0;
  const auto [end, error] =
      std::from_chars(text.value().data(), text.value().data() + text.value().size(), code);
  if (line == std::string::npos || error != std::errc() || code < 1 || code > 255)
    return std::nullopt;
  std::string message = text.value().substr(line + 1);
  while (!message.empty() && message.back() == '\n') message.pop_back();
  return Error{static_cast<ErrorCode>(code), message};
}

// What the run said about its end: the first complaint is the cause of the others.
std::string complaint_in(const std::string& log, const std::string& otherwise) {
  const auto said = read_file(log);
  if (!said.ok()) return otherwise;
  std::string last;
  for (const std::string& line : lines_of(said.value())) {
    if (line.rfind("quintet: ", 0) == 0) return line.substr(9);
    last = line;
  }
  return last.empty() ? otherwise : fmt::format("{} (last line: {})", otherwise, last);
}

Result<MeasuredRun> results_in(const std::string& folder) {
  MeasuredRun run;
  const std::string file = folder + "/summary.json", metrics_file = folder + "/metrics.jsonl";
  QT_ASSIGN(const std::string summary, read_file(file));
  QT_ASSIGN(run.summary, RunSummary::from_json(summary, file));
  QT_ASSIGN(const std::string metrics, read_file(metrics_file));
  for (const std::string& text : lines_of(metrics)) {
    QT_ASSIGN(const Json line, parse_json(text, metrics_file));
    if (!line.is_object()) return bad_input("{}: a line that is no object", metrics_file);
    run.losses.push_back(number_in(line, "loss", std::nan("")));
    run.seconds.push_back(number_in(line, "seconds", std::nan("")));
    run.tokens = run.seconds.back() * number_in(line, "tokens_per_second", std::nan(""));
  }
  return run;
}

MpirunOptions mpirun_options(const RunPlace& place, const RunConfig& config) {
  MpirunOptions options;
  options.ranks = static_cast<int>(place.ranks());
  options.ranks_per_node = static_cast<int>(place.ranks_per_node);
  options.threads = static_cast<int>(config.train.threads);
  options.cluster = place.cluster;
  std::vector<std::string> hosts;
  for (std::int64_t i = 0; place.kind == "hosts" && i < place.nodes; ++i) {
    hosts.push_back(
        fmt::format("{}:{}", place.hosts[static_cast<std::size_t>(i)], place.ranks_per_node));
  }
  options.hosts = join(hosts, ",");
  return options;
}

}  // namespace

std::vector<std::string> train_arguments(RunConfig config) {
  RunConfig plain;
  const FieldList fields = config.fields(), defaults = plain.fields();
  std::vector<std::string> arguments = {"train"};
  for (std::size_t i = 0; i < fields.fields().size(); ++i) {
    const auto text = [](const Field& field) {
      return to_toml(std::visit([](const auto* v) { return TomlValue(*v); }, field.target));
    };
    const std::string value = text(fields.fields()[i]);
    if (value == text(defaults.fields()[i])) continue;
    arguments.insert(arguments.end(), {"--set", fields.fields()[i].key + "=" + value});
  }
  return arguments;
}

Result<std::vector<std::string>> command_line(const RunPlace& place, const RunConfig& config) {
  const std::vector<std::string> arguments = train_arguments(config);
  QT_ASSIGN(const std::string self, own_path());
  std::vector<std::string> line;
  if (place.kind == "slurm") {
    line = {"srun", fmt::format("--nodes={}", place.nodes),
            fmt::format("--ntasks-per-node={}", place.ranks_per_node), self};
  } else if (place.kind == "local" && place.ranks() == 1) {
    line = {self};
  } else {
    if (place.kind == "hosts" && place.nodes > static_cast<std::int64_t>(place.hosts.size())) {
      return usage_error("{} nodes, and the study names {} hosts", place.nodes, place.hosts.size());
    }
    return mpirun_line(mpirun_options(place, config), arguments);
  }
  line.insert(line.end(), arguments.begin(), arguments.end());
  return line;
}

std::string command_text(const RunPlace& place, const RunConfig& config, double bandwidth) {
  const std::string train = shell_line(train_arguments(config));
  if (place.kind == "slurm") {
    return fmt::format("srun --nodes={} --ntasks-per-node={} quintet {}", place.nodes,
                       place.ranks_per_node, train);
  }
  if (place.kind == "emulated") {
    return fmt::format(
        "quintet cluster up --nodes {} --ranks-per-node {} --bandwidth {} && quintet launch "
        "--cluster lab -- {}",
        place.nodes, place.ranks_per_node, bandwidth_text(bandwidth), train);
  }
  if (place.ranks() == 1) return "quintet " + train;
  const MpirunOptions options = mpirun_options(place, config);
  return fmt::format("quintet launch -n {}{}{} -- {}", place.ranks(),
                     options.threads > 0 ? fmt::format(" --threads {}", options.threads) : "",
                     options.hosts.empty() ? "" : " --hosts " + options.hosts, train);
}

RunOutcome run_measured(const RunPlace& place, RunConfig config, const std::string& folder,
                        const RunLimits& limits) {
  if (const Status made = make_directories(folder); !made.ok()) return {0, made.error()};
  config.output.folder = folder;
  const std::string log = folder + "/log.txt", outcome = folder + "/outcome";
  if (const Status made = write_file(outcome, ""); !made.ok()) return {0, made.error()};
  const auto line = command_line(place, config);
  if (!line.ok()) return {static_cast<int>(line.error().code), line.error()};
  const auto ended =
      run_supervised(line.value(), {log, limits.timeout, limits.interrupted, limits.mark, outcome});
  if (!ended.ok()) return {static_cast<int>(ended.error().code), ended.error()};
  const int code = ended.value().code;
  if (ended.value().interrupted) return {code, make_error(ErrorCode::kInterrupted, "interrupted")};
  if (ended.value().timed_out) {
    return {code, make_error(ErrorCode::kPeerLost, "not done after {:.0f} s", limits.timeout)};
  }
  if (code != 0) {
    if (const auto said = outcome_in(outcome)) return {static_cast<int>(said->code), *said};
    return {code,
            make_error(code < 128 ? static_cast<ErrorCode>(code) : ErrorCode::kPeerLost, "{}",
                       complaint_in(log, fmt::format("the run ended with exit code {}", code)))};
  }
  return {0, results_in(folder)};
}

}  // namespace quintet
