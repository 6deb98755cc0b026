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
  auto rank = std::make_shared<std::int32_t>(0);
  options->add_ranks(*command);
  command->add_option("--rank", *rank, "whose program")->check(CLI::Range(0, 1 << 20));
  command->footer("Example: quintet inspect program --model tiny --recompute full > program.txt");
  command->callback([options, rank, &action] {
    action = [options, rank]() -> Status {
      QT_ASSIGN(const RunConfig config, options->load());
      QT_ASSIGN(const StepOptions step, step_options(config, options->ranks()));
      if (*rank >= step.grid.size())
        return usage_error("--rank {} of {} ranks", *rank, step.grid.size());
      fmt::print("{}", to_string(compile_step(step, *rank)));
      return {};
    };
  });
}

}  // namespace quintet
