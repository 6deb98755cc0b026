#include "lab/simulated_run.h"

#include "base/json.h"
#include "base/text.h"
#include "lab/machine.h"
#include "lab/measured_run.h"
#include "lab/mpirun.h"
#include "lab/tool.h"

namespace quintet {
namespace {

std::vector<std::string> plan_arguments(const CellRun& run, const std::string& machine) {
  std::vector<std::string> arguments = train_arguments(run.config);
  arguments[0] = "plan";
  arguments.insert(arguments.begin() + 1,
                   {"--json", "--machine", machine, "--ranks", std::to_string(run.ranks()),
                    "--nodes", std::to_string(run.nodes)});
  return arguments;
}

}  // namespace

Result<SimulationCommand> simulation_command(const CellRun& run, const Path& folder) {
  QT_ASSIGN(const std::string self, own_path());
  QT_ASSIGN(Machine machine, Machine::load(run.machine));
  std::string file = run.machine;
  const double gb_per_s = run.bandwidth / 8e9;
  const bool other_links =
      run.bandwidth > 0 && (machine.between.gb_per_s != gb_per_s || machine.between.links != 1);
  if (other_links || machine.node.devices != run.ranks_per_node) {
    machine.node.devices = run.ranks_per_node;
    if (other_links) {
      machine.between.gb_per_s = gb_per_s;
      machine.between.links = 1;
      // What was measured was measured on the machine's own links.
      std::erase_if(machine.collectives, [](const auto& entry) { return entry.first.between; });
    }
    QT_TRY(make_directories(folder));
    file = (folder / "machine.toml").string();
    QT_TRY(write_file(file, machine.to_toml()));
  }
  std::vector<std::string> line = plan_arguments(run, file);
  line.insert(line.begin(), self);
  return SimulationCommand{line, machine.memory_bytes(),
                           machine.host_memory_bytes() / static_cast<double>(run.ranks_per_node)};
}

std::string simulation_text(const CellRun& run) {
  // Links and devices other than the machine's own are changes to its file.
  return fmt::format("quintet {}  # [node] devices = {}{}",
                     shell_line(plan_arguments(run, run.machine)), run.ranks_per_node,
                     run.bandwidth > 0
                         ? fmt::format("; [between] gb_per_s = {}, links = 1", run.bandwidth / 8e9)
                         : "");
}

Result<RowResult> run_simulation(const SimulationCommand& command, double timeout,
                                 const std::atomic<bool>* interrupted) {
  QT_ASSIGN(const std::string text, output_of(command.line, timeout, interrupted));
  QT_ASSIGN(const Json plan, parse_json(text, "quintet plan --json"));
  RowResult result;
  result.status = "done";
  result.exit = 0;
  result.median_seconds = number_in(plan, "step_seconds", 0);
  if (!(result.median_seconds > 0)) {
    return bad_input("`quintet plan --json` has no step_seconds");
  }
  result.step_seconds = {result.median_seconds};
  result.tokens_per_second = number_in(plan, "tokens_per_second", 0);
  result.memory_bytes = integer_in(plan, "device_bytes", integer_in(plan, "total_bytes", 0));
  result.host_bytes = integer_in(plan, "host_bytes", 0);
  const auto check = [](std::int64_t needed, double there, const char* what) -> Status {
    if (there <= 0 || static_cast<double>(needed) <= there) return {};
    return make_error(ErrorCode::kOutOfMemory, "does not fit: a rank needs {} of {}, and has {}",
                      human_bytes(static_cast<double>(needed)), what, human_bytes(there));
  };
  QT_TRY(check(result.memory_bytes, command.memory_bytes, "device memory"));
  QT_TRY(check(result.host_bytes, command.host_bytes, "host memory"));
  for (const Json& sent : plan.value("sends", Json::array())) {
    result.bytes_sent += integer_in(sent, "bytes", 0);
  }
  result.books = plan.value("books", Json::object());
  result.fingerprint = plan.value("fingerprint", "");
  return result;
}

}  // namespace quintet
