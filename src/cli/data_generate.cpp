#include "base/files.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/number_checks.h"
#include "data/sample_text.h"

namespace quintet {
namespace {

struct GenerateOptions {
  std::string folder;
  std::vector<std::string> languages = {"en", "de", "ru", "zh"};
  std::int64_t kilobytes = 1000;
  std::uint64_t seed = 1;
  bool overwrite = false;
};

Status run(const GenerateOptions& options) {
  const auto known = SampleText::languages();
  const std::vector<std::string> names(known.begin(), known.end());
  for (const std::string& language : options.languages) {
    if (std::find(names.begin(), names.end(), language) == names.end()) {
      return usage_error("no language {}; there are {}", language, join(names, ", "));
    }
  }
  const auto file_of = [&](const std::string& language) {
    return Path(options.folder) / language / "text.txt";
  };
  for (const std::string& language : options.languages) {
    if (!options.overwrite && std::filesystem::exists(file_of(language))) {
      return usage_error("{}: exists; choose another folder, or --overwrite",
                         file_of(language).string());
    }
  }
  for (const std::string& language : options.languages) {
    const SampleText text(language);
    const Path file = file_of(language);
    QT_TRY(make_directories(file.parent_path()));
    std::string documents;
    const auto wanted = static_cast<std::size_t>(options.kilobytes) * 1000;
    for (std::uint64_t number = 0; documents.size() < wanted; ++number) {
      text.append_document(options.seed, number, 2000, documents);
      documents += '\n';
    }
    QT_TRY(write_file(file, documents));
    fmt::print("{}: {}\n", file.string(), human_bytes(static_cast<double>(documents.size())));
  }
  return {};
}

}  // namespace

void add_data_generate(CLI::App& data, Action& action) {
  CLI::App* command = data.add_subcommand(
      "generate", "write text in made-up languages, a folder each, to try things out with");
  auto options = std::make_shared<GenerateOptions>();
  command->add_option("folder", options->folder, "where to")->required()->type_name("DIR");
  command->add_option("--languages", options->languages, "which (en, de, ru, ar, hi, th, zh, ...)")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--kilobytes", options->kilobytes, "of each language")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "another seed, other text")
      ->check(whole_number<std::uint64_t>(0))
      ->capture_default_str();
  command->add_flag("--overwrite", options->overwrite, "replace text that is there");
  command->footer("Example: quintet data generate made-up --languages en,de --kilobytes 300");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace quintet
