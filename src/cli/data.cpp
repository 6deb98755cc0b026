#include "cli/commands.h"

namespace quintet {

void add_data(CLI::App& app, Action& action) {
  CLI::App* data = app.add_subcommand("data", "prepare training data: text to token shards");
  data->require_subcommand(1);
  add_data_build(*data, action);
}

}  // namespace quintet
