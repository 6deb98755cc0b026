#include "lab/search/search_report.h"

#include "base/files.h"
#include "cli/commands.h"

namespace quintet {

void add_search_report(CLI::App& search, Action& action) {
  CLI::App* command = search.add_subcommand(
      "report", "one HTML page: the recommended configuration, what matters, curves, costs");
  struct Options {
    std::string folder, out;
  };
  auto options = std::make_shared<Options>();
  command->add_option("folder", options->folder, "the search's folder")
      ->required()
      ->type_name("DIR");
  command->add_option("--out", options->out, "where to; otherwise report.html in that folder")
      ->type_name("FILE.html");
  command->footer(
      "Prints the page's name. The search may still be running.\n"
      "Example: quintet search report runs/search");
  command->callback([options, &action] {
    action = [options]() -> Status {
      QT_ASSIGN(const std::string page, search_report(options->folder));
      const Path file =
          options->out.empty() ? Path(options->folder) / "report.html" : Path(options->out);
      QT_TRY(write_file(file, page));
      fmt::print("{}\n", file.string());
      return {};
    };
  });
}

}  // namespace quintet
