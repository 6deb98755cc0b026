#include "cli/commands.h"

namespace quintet {

void add_study(CLI::App& app, Action& action) {
  CLI::App* study = app.add_subcommand(
      "study", "measure what methods of parallelism do to each other, with intervals");
  study->require_subcommand(1);
  add_study_run(*study, action);
  add_study_resume(*study, action);
  add_study_status(*study, action);
  add_study_analyse(*study, action);
  add_study_report(*study, action);
  study->footer("Example: quintet study run studies/demo-local.toml --out runs/demo");
}

}  // namespace quintet
