#include "base/text.h"
#include "cli/commands.h"
#include "cli/data_tables.h"
#include "data/loader/corpus_source.h"
#include "data/loader/example_text.h"
#include "data/tokenizer/tokenizer.h"

namespace quintet {
namespace {

struct InspectOptions {
  std::string folder;
  std::vector<std::int64_t> samples;
  std::int64_t source = 512, target = 0, seed = 1;
  std::vector<std::string> assignments;
  bool ids = false;
};

void print_manifest(const std::string& folder, const Manifest& manifest) {
  const auto bytes = static_cast<double>(manifest.total(Split::kTrain).tokens +
                                         manifest.total(Split::kHeldOut).tokens) *
                     manifest.layout.token_bytes;
  fmt::print("{}: {} shards, {} of tokens, {} bytes each\n", folder, manifest.shards.size(),
             human_bytes(bytes), manifest.layout.token_bytes);
  const SpecialTokens& special = manifest.special;
  fmt::print("tokenizer {}: {} ids, {} of them sentinels ({} down to {}); padding {}, end {}\n",
             manifest.layout.tokenizer_digest, with_commas(manifest.layout.vocabulary),
             special.sentinels, special.first_sentinel,
             special.first_sentinel - special.sentinels + 1, special.pad, special.eos);
  for (const auto& [name, value] : manifest.options) {
    std::string line = value;
    std::replace(line.begin(), line.end(), '\n', ' ');
    fmt::print("  {} = {}\n", name, line);
  }
  fmt::print("\n");
  print_corpus_table(manifest);
}

Result<CorpusConfig> corpus_config(const InspectOptions& options) {
  CorpusConfig config;
  FieldList fields;
  fields.add_section("data", "", config);
  ConfigValues values;
  for (const std::string& assignment : options.assignments) {
    QT_TRY(parse_assignment(assignment.starts_with("data.") ? assignment : "data." + assignment,
                            values));
  }
  QT_TRY(apply_config(values, fields));
  config.folder = options.folder;
  return config;
}

void print_shares(const CorpusSource& source, const CorpusConfig& config) {
  fmt::print("\nsampled with alpha = {}, {} raw tokens an example ({} source, {} target):\n",
             config.alpha, source.objective().tokens(), source.objective().source_length(),
             source.objective().target_length());
  for (const Denoiser& denoiser : source.objective().denoisers()) {
    fmt::print("  {}: {} raw tokens, {} source, {} target, {} spans\n", denoiser.name,
               denoiser.tokens, denoiser.source_length(denoiser.tokens),
               denoiser.target_length(denoiser.tokens), denoiser.spans_of(denoiser.tokens));
  }
  fmt::print("\n{:<12} {:>16} {:>10}\n", "language", "examples/epoch", "share");
  for (const CorpusSource::Language& language : source.languages()) {
    fmt::print("{:<12} {:>16} {:>8.3f} %\n", language.name,
               with_commas(static_cast<std::int64_t>(language.stretches)), 100 * language.share);
  }
}

// The examples of a row: all of it, or its segments one by one.
struct Example {
  std::vector<std::int32_t> source, labels;
};
std::vector<Example> examples_of(const Batch& batch) {
  std::vector<Example> examples;
  const auto put = [&](bool source, std::int32_t segment, std::int32_t id) {
    if (segment == 0) return;
    examples.resize(std::max(examples.size(), static_cast<std::size_t>(segment)));
    Example& example = examples[static_cast<std::size_t>(segment) - 1];
    (source ? example.source : example.labels).push_back(id);
  };
  for (std::size_t i = 0; i < batch.source.size(); ++i) {
    const bool used = batch.lengths.empty() || i < static_cast<std::size_t>(batch.lengths.front());
    put(true, batch.packed() ? batch.source_segments[i] : used ? 1 : 0, batch.source[i]);
  }
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    const bool used = batch.labels[i] >= 0;
    put(false, batch.packed() ? batch.target_segments[i] : used ? 1 : 0, batch.labels[i]);
  }
  return examples;
}

Status print_samples(const InspectOptions& options, CorpusSource& source) {
  const Manifest& manifest = source.corpus().manifest();
  QT_ASSIGN(const Tokenizer tokenizer, Tokenizer::open(Path(options.folder) / kTokenizerFile));
  if (tokenizer.digest() != manifest.layout.tokenizer_digest) {
    return bad_input("{}: is not the tokenizer that made the corpus",
                     (Path(options.folder) / kTokenizerFile).string());
  }
  const ExampleText text(tokenizer.vocabulary(), manifest.special);
  Batch batch;
  batch.resize(1, options.source, std::max(options.target, source.objective().target_length()));
  for (const std::int64_t sample : options.samples) {
    QT_TRY(source.fill(sample, batch));
    const CorpusSource::Stretch stretch = source.stretch_of(sample);
    fmt::print("\nsample {}: {}, epoch {}, from token {} on\n", sample, stretch.language,
               stretch.epoch, with_commas(static_cast<std::int64_t>(stretch.begin)));
    for (const Example& example : examples_of(batch)) {
      fmt::print("  {} source, {} target: {}\n", example.source.size(), example.labels.size(),
                 text.with_spans(example.source, example.labels));
      if (!options.ids) continue;
      fmt::print("  source: {}\n  labels: {}\n", fmt::join(example.source, " "),
                 fmt::join(example.labels, " "));
    }
  }
  return {};
}

Status run(const InspectOptions& options) {
  QT_ASSIGN(const Manifest manifest, load_manifest(options.folder));
  print_manifest(options.folder, manifest);
  if (options.samples.empty()) return {};
  QT_ASSIGN(const CorpusConfig config, corpus_config(options));
  QT_ASSIGN(CorpusSource source,
            CorpusSource::open(config, options.source, options.target, manifest.layout.vocabulary,
                               static_cast<std::uint64_t>(options.seed)));
  print_shares(source, config);
  return print_samples(options, source);
}

}  // namespace

void add_data_inspect(CLI::App& data, Action& action) {
  CLI::App* command = data.add_subcommand(
      "inspect", "show a corpus: what it is made of, its statistics, samples as text");
  auto options = std::make_shared<InspectOptions>();
  command->add_option("corpus", options->folder, "folder of a corpus")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--sample", options->samples,
                   "show these samples of a run; what the decoder has to find is in [brackets]")
      ->check(CLI::NonNegativeNumber)
      ->type_name("NUMBER...");
  command->add_option("--source", options->source, "of the samples: tokens of the encoder's input")
      ->check(CLI::Range(3, 1 << 20))
      ->capture_default_str();
  command->add_option("--target", options->target, "tokens of the decoder's; 0: as many as follow")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of the run")->capture_default_str();
  command->add_option("--set", options->assignments, "keys of [data], e.g. objective=ul2")
      ->type_name("KEY=VALUE");
  command->add_flag("--ids", options->ids, "show the samples' ids, too");
  command->footer(
      "Examples:\n"
      "  quintet data inspect corpus\n"
      "  quintet data inspect corpus --sample 0 1 2 --source 64\n"
      "  quintet data inspect corpus --sample 0 --set objective=ul2 --set only='[\"de\"]'");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace quintet
