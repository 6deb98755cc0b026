#include "cli/commands.h"
#include "cli/run_options.h"
#include "program/printer.h"

namespace quintet {

void add_inspect(CLI::App& app, Action& action) {
  CLI::App* inspect = app.add_subcommand("inspect", "look inside");
  inspect->require_subcommand(1);
  CLI::App* command = inspect->add_subcommand(
      "program", "print the program of a step: every op with its tensors, addresses and tags");
  auto options = std::make_shared<RunOptions>(*command);
  command->footer("Example: quintet inspect program --model tiny --recompute full | less");
  command->callback([options, &action] {
    action = [options]() -> Status {
      QT_ASSIGN(const RunConfig config, options->load());
      QT_ASSIGN(const StepOptions step, step_options(config));
      fmt::print("{}", to_string(compile_step(step)));
      return {};
    };
  });
}

}  // namespace quintet
