// `quintet data import` and `quintet data export`: to and from Megatron's indexed datasets.
#include "base/text.h"
#include "cli/commands.h"
#include "cli/data_tables.h"
#include "data/corpus/import.h"
#include "data/corpus/inputs.h"
#include "data/corpus/megatron.h"

namespace quintet {
namespace {

struct ImportCommand {
  ImportOptions options;
  std::vector<std::string> datasets;
};

struct ExportCommand {
  Path corpus, output;
  std::string split = "train";
  std::vector<std::string> languages;
};

// Users name either file, or what the two have in common.
std::string without_extension(const std::string& name) {
  for (const char* extension : {".bin", ".idx"}) {
    if (name.ends_with(extension)) return name.substr(0, name.size() - 4);
  }
  return name;
}

Status run_import(ImportCommand& command) {
  for (const std::string& dataset : command.datasets) {
    const std::size_t equals = dataset.find('=');
    const bool named = equals != std::string::npos && is_language_name(dataset.substr(0, equals));
    command.options.datasets.push_back(
        {named ? dataset.substr(0, equals) : "und",
         without_extension(named ? dataset.substr(equals + 1) : dataset)});
  }
  QT_ASSIGN(const Manifest manifest, import_corpus(command.options, local_files()));
  print_corpus_table(manifest);
  return {};
}

Status run_export(const ExportCommand& command) {
  QT_ASSIGN(const Corpus corpus, Corpus::open(command.corpus));
  const Split split = command.split == name_of(Split::kTrain) ? Split::kTrain : Split::kHeldOut;
  const std::vector<std::string> there = corpus.languages(split);
  if (there.empty()) {
    return bad_input("{}: no tokens in split {}", command.corpus.string(), command.split);
  }
  for (const std::string& language : command.languages) {
    if (std::find(there.begin(), there.end(), language) != there.end()) continue;
    return usage_error("{}: no language \"{}\" in split {}; there are {}", command.corpus.string(),
                       language, command.split, join(there, ", "));
  }
  QT_TRY(make_directories(command.output));
  for (const std::string& language : command.languages.empty() ? there : command.languages) {
    const Path prefix = command.output / (language + "_" + command.split);
    QT_TRY(export_megatron(corpus, split, language, prefix));
    const TokenStream& stream = corpus.stream(split, language);
    fmt::print("{}.bin, .idx: {} documents, {} tokens\n", prefix.string(),
               with_commas(static_cast<std::int64_t>(stream.documents())),
               with_commas(static_cast<std::int64_t>(stream.tokens())));
  }
  return {};
}

}  // namespace

void add_data_import(CLI::App& data, Action& action) {
  CLI::App* command =
      data.add_subcommand("import", "make a corpus of Megatron's datasets (.bin and .idx)");
  auto import = std::make_shared<ImportCommand>();
  command
      ->add_option("datasets", import->datasets,
                   "datasets without .bin and .idx, each as LANGUAGE=PREFIX or as PREFIX alone")
      ->required()
      ->type_name("DATASET...");
  command->add_option("--tokenizer", import->options.tokenizer, "the model whose ids they hold")
      ->required()
      ->type_name("MODEL");
  command->add_option("--out", import->options.output, "folder for the corpus; empty or new")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--sentinels", import->options.sentinels,
                   "sentinel ids above the model's pieces, if it has none of its own")
      ->check(CLI::Range(0, 10000))
      ->capture_default_str();
  command->add_option("--shard-tokens", import->options.shard_tokens, "tokens of a shard, at most")
      ->check(CLI::Range(std::int64_t{1}, static_cast<std::int64_t>(ShardWriter::kMaxTokens)))
      ->capture_default_str();
  command->footer(
      "Ids come over as they are, end-of-document ids included.\n\n"
      "Example: quintet data import --tokenizer mt5.model --out imported de=de_text_document "
      "fr=fr_text_document");
  command->callback([import, &action] { action = [import] { return run_import(*import); }; });
}

void add_data_export(CLI::App& data, Action& action) {
  CLI::App* command =
      data.add_subcommand("export", "write a corpus as Megatron's datasets (.bin and .idx)");
  auto options = std::make_shared<ExportCommand>();
  command->add_option("corpus", options->corpus, "folder of a corpus")
      ->required()
      ->type_name("DIR");
  command->add_option("--out", options->output, "folder; gets LANGUAGE_SPLIT.bin and .idx for each")
      ->required()
      ->type_name("DIR");
  command->add_option("--split", options->split, "which part of it")
      ->check(CLI::IsMember({"train", "held_out"}))
      ->capture_default_str();
  command->add_option("--language", options->languages, "only these (default: all)")
      ->type_name("NAME");
  command->footer("Example: quintet data export corpus --out megatron --language de");
  command->callback([options, &action] { action = [options] { return run_export(*options); }; });
}

}  // namespace quintet
