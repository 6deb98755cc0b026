#include "cli/commands.h"

namespace quintet {

void add_data(CLI::App& app, Action& action) {
  CLI::App* data = app.add_subcommand("data", "prepare training data, and look at it");
  data->require_subcommand(1);
  add_data_build(*data, action);
  add_data_inspect(*data, action);
  add_data_verify(*data, action);
  add_data_import(*data, action);
  add_data_export(*data, action);
  add_data_generate(*data, action);
  add_data_bench(*data, action);
}

}  // namespace quintet
