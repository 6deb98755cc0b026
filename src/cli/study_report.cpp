#include "lab/report/study_report.h"

#include "base/files.h"
#include "cli/commands.h"
#include "lab/report/run_report.h"

namespace quintet {
namespace {

Status write_page(const Path& file, const std::string& page) {
  QT_TRY(write_file(file, page));
  fmt::print("{}\n", file.string());
  return {};
}

}  // namespace

void add_study_report(CLI::App& study, Action& action) {
  CLI::App* command = study.add_subcommand(
      "report", "one HTML page: the answer, pictures, tables, and the command behind each figure");
  struct Options {
    std::string folder, out;
  };
  auto options = std::make_shared<Options>();
  command->add_option("study", options->folder, "the study's folder")->required()->type_name("DIR");
  command->add_option("--out", options->out, "where to; otherwise report.html in that folder")
      ->type_name("FILE.html");
  command->footer(
      "Prints the page's name. The page needs nothing but itself: no network, no other file.\n"
      "Example:\n"
      "  quintet study report studies/zero2-zero3 --out zero.html");
  command->callback([options, &action] {
    action = [options]() -> Status {
      QT_ASSIGN(const std::string page, study_report(options->folder));
      return write_page(
          options->out.empty() ? Path(options->folder) / "report.html" : Path(options->out), page);
    };
  });
}

void add_report(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "report", "one HTML page about training runs: curves, speed, time breakdown, memory");
  struct Options {
    std::vector<std::string> folders;
    std::string out;
  };
  auto options = std::make_shared<Options>();
  command
      ->add_option("runs", options->folders,
                   "folders of runs (output.folder); several: side by side")
      ->required()
      ->type_name("DIR...");
  command->add_option("--out", options->out, "where to; otherwise report.html in the first folder")
      ->type_name("FILE.html");
  command->footer(
      "Prints the page's name. A run may still be running.\n"
      "Examples:\n"
      "  quintet report runs/first\n"
      "  quintet report runs/zero0 runs/zero3 --out compare.html");
  command->callback([options, &action] {
    action = [options]() -> Status {
      const std::vector<Path> folders(options->folders.begin(), options->folders.end());
      QT_ASSIGN(const std::string page, run_report(folders));
      return write_page(options->out.empty() ? folders[0] / "report.html" : Path(options->out),
                        page);
    };
  });
}

}  // namespace quintet
