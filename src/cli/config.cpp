#include "cli/commands.h"
#include "cli/run_options.h"

namespace quintet {

void add_config(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "config", "print the configuration that results from a file and options, as TOML");
  auto options = std::make_shared<RunOptions>(*command);
  auto help_all = std::make_shared<bool>(false);
  command->add_flag("--help-all", *help_all, "with the documentation and limits of every key");
  command->footer("Example: quintet config --help-all > run.toml");
  command->callback([options, help_all, &action] {
    action = [options, help_all]() -> Status {
      QT_ASSIGN(RunConfig config, options->load());
      fmt::print("{}", config_to_toml(config.fields(), *help_all));
      return {};
    };
  });
}

}  // namespace quintet
