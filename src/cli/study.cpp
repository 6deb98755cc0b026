#include "cli/commands.h"

namespace quintet {

void add_study(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "study", "measure what factors do to each other, and say how sure that is");
  command->require_subcommand(1);
  add_study_run(*command, action);
  add_study_resume(*command, action);
  add_study_status(*command, action);
  command->footer("Example: quintet study run studies/demo.toml --out runs/demo");
}

}  // namespace quintet
