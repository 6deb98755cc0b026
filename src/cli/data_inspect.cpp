#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/data_tables.h"
#include "cli/number_checks.h"
#include "data/loader/corpus_source.h"
#include "data/loader/example_text.h"
#include "data/tokenizer/tokenizer.h"

namespace quintet {
namespace {

struct InspectOptions {
  std::string folder;
  std::vector<std::int64_t> samples;
  std::int64_t source = 512, target = 0, seed = 1;
  double run_tokens = 0;
  std::vector<std::string> assignments;
  bool ids = false, json = false;
};

void print_manifest(const std::string& folder, const Manifest& manifest) {
  const auto bytes = static_cast<double>(manifest.total(Split::kTrain).tokens +
                                         manifest.total(Split::kHeldOut).tokens) *
                     manifest.layout.token_bytes;
  fmt::print("{}: {} shards, {} of tokens, {} bytes each\n", folder, manifest.shards.size(),
             human_bytes(bytes), manifest.layout.token_bytes);
  const SpecialTokens& special = manifest.special;
  fmt::print("tokenizer {}: {} ids, {}; padding {}, end {}\n", manifest.layout.tokenizer_digest,
             with_commas(manifest.layout.vocabulary),
             describe_sentinels(special.sentinels, special.first_sentinel), special.pad,
             special.eos);
  for (const auto& [name, value] : manifest.options) {
    std::string line = value;
    std::replace(line.begin(), line.end(), '\n', ' ');
    fmt::print("  {} = {}\n", name, line);
  }
  fmt::print("\n");
  print_corpus_table(manifest);
}

// How long documents are, counted exactly up to a length that few have.
class DocumentLengths {
 public:
  void add(std::uint64_t tokens) {
    ++counts_[std::min<std::uint64_t>(tokens, kMost)];
    ++documents_;
    tokens_ += tokens;
    longest_ = std::max(longest_, tokens);
    if (tokens < static_cast<std::uint64_t>(Denoiser::kLeastTokens)) ++short_;
  }
  std::uint64_t quantile(double share) const {
    auto rank = static_cast<std::uint64_t>(share * static_cast<double>(documents_));
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      if (rank < counts_[i]) return i == kMost ? longest_ : i;
      rank -= counts_[i];
    }
    return longest_;
  }
  std::uint64_t longer_than(std::uint64_t tokens) const {
    std::uint64_t sum = 0;
    for (std::size_t i = tokens + 1; i < counts_.size(); ++i) sum += counts_[i];
    return sum;
  }
  std::uint64_t documents() const { return documents_; }
  std::uint64_t longest() const { return longest_; }
  double mean() const {
    return documents_ == 0 ? 0 : static_cast<double>(tokens_) / static_cast<double>(documents_);
  }

 private:
  static constexpr std::size_t kMost = 1 << 16;
  std::vector<std::uint64_t> counts_ = std::vector<std::uint64_t>(kMost + 1, 0);
  std::uint64_t documents_ = 0, tokens_ = 0, longest_ = 0, short_ = 0;
};

// A language as a run sees it.
struct LanguageReport {
  CorpusSource::Language language;
  DocumentLengths lengths;
  double epochs = 0;  // of a run
  // Of packed rows, in the regions looked at.
  std::int64_t rows = 0, source = 0, target = 0, cut = 0, pieces = 0, joined = 0;
};

Result<LanguageReport> report_on(const CorpusSource::Language& language, const Corpus& corpus,
                                 Split split) {
  LanguageReport report;
  report.language = language;
  QT_TRY(corpus.stream(split, language.name)
             .for_each_document({}, 0, [&](const TokenStream::DocumentSpan& document) {
               report.lengths.add(document.end - document.begin);
               return true;
             }));
  if (language.packed == nullptr) return report;
  constexpr std::uint64_t kRegions = 64;
  const std::uint64_t regions = std::min(kRegions, language.packed->regions());
  for (std::uint64_t i = 0; i < regions; ++i) {
    QT_ASSIGN(const PackedStream::Region region,
              language.packed->region(0, i * language.packed->regions() / regions));
    report.rows += static_cast<std::int64_t>(region.packed.ends.size());
    report.source += region.source;
    report.target += region.target;
    report.cut += region.packed.cut;
    report.pieces += static_cast<std::int64_t>(region.packed.pieces.size());
    report.joined += region.joined;
  }
  return report;
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

void print_shares(const CorpusSource& source, const CorpusConfig& config,
                  const InspectOptions& options, const std::vector<LanguageReport>& reports) {
  fmt::print("\nsampled with alpha = {}, {} raw tokens an example ({} source, {} target):\n",
             config.alpha, source.objective().tokens(), source.objective().source_length(),
             source.objective().target_length());
  for (const Denoiser& denoiser : source.objective().denoisers()) {
    fmt::print("  {}: {} raw tokens, {} source, {} target, {} spans\n", denoiser.name,
               denoiser.tokens, denoiser.longest_source(denoiser.tokens),
               denoiser.longest_target(denoiser.tokens), denoiser.spans_of(denoiser.tokens));
  }
  fmt::print(
      "\ndocuments' lengths in tokens, {} split:\n{:<12} {:>14} {:>9} {:>8} {:>8} {:>8} "
      "{:>10} {:>20}\n",
      config.split, "language", "documents", "mean", "10 %", "median", "90 %", "longest",
      "longer than a row");
  for (const LanguageReport& report : reports) {
    const auto longer =
        report.lengths.longer_than(static_cast<std::uint64_t>(source.objective().tokens()));
    fmt::print("{:<12} {:>14} {:>9.1f} {:>8} {:>8} {:>8} {:>10} {:>20}\n", report.language.name,
               with_commas(static_cast<std::int64_t>(report.lengths.documents())),
               report.lengths.mean(), report.lengths.quantile(0.1), report.lengths.quantile(0.5),
               report.lengths.quantile(0.9),
               with_commas(static_cast<std::int64_t>(report.lengths.longest())),
               fmt::format("{}{}", with_commas(static_cast<std::int64_t>(longer)),
                           config.pack && longer > 0 ? " (cut)" : ""));
  }
  fmt::print("\n{:<12} {:>16} {:>10} {:>12}{}\n", "language", "examples/epoch", "share",
             options.run_tokens > 0 ? "epochs" : "", config.pack ? "   fill: source, target" : "");
  for (const LanguageReport& report : reports) {
    fmt::print("{:<12} {:>16} {:>8.3f} % {:>12}", report.language.name,
               with_commas(static_cast<std::int64_t>(report.language.rows)),
               100 * report.language.share,
               options.run_tokens > 0 ? fmt::format("{:.4g}", report.epochs) : "");
    if (config.pack) {
      const auto percent = [&](std::int64_t used, std::int64_t length) {
        return 100.0 * static_cast<double>(used) / static_cast<double>(report.rows * length);
      };
      fmt::print("   {:>5.1f} % {:>5.1f} %; {} of {} examples cut to fill rows, {} joined",
                 percent(report.source, options.source),
                 percent(report.target, source.target_length()), with_commas(report.cut),
                 with_commas(report.pieces), with_commas(report.joined));
    }
    fmt::print("\n");
  }
  if (options.run_tokens > 0) {
    fmt::print(
        "epochs: of a run of {} tokens, source and target, padding included, with rows of "
        "{} + {}\n",
        human_count(options.run_tokens), options.source, source.target_length());
  }
  for (const std::string& name : source.left_out()) fmt::print("left out, too short: {}\n", name);
}

Json json_of(const Manifest& manifest, const CorpusSource& source, const InspectOptions& options,
             const std::vector<LanguageReport>& reports) {
  Json json = Json::parse(to_json(manifest));
  json.erase("shards");
  Json languages = Json::array();
  for (const LanguageReport& report : reports) {
    const DocumentLengths& lengths = report.lengths;
    Json entry = {{"language", report.language.name},
                  {"examples_per_epoch", report.language.rows},
                  {"share", report.language.share},
                  {"epochs", report.epochs},
                  {"documents", lengths.documents()},
                  {"mean", lengths.mean()},
                  {"median", lengths.quantile(0.5)},
                  {"longest", lengths.longest()},
                  {"longer_than_row",
                   lengths.longer_than(static_cast<std::uint64_t>(source.objective().tokens()))}};
    if (report.rows > 0) {
      const auto share = [&](std::int64_t used, std::int64_t length) {
        return static_cast<double>(used) / static_cast<double>(report.rows * length);
      };
      entry["source_fill"] = share(report.source, options.source);
      entry["target_fill"] = share(report.target, source.target_length());
      entry["cut"] = report.cut;
      entry["joined"] = report.joined;
    }
    languages.push_back(std::move(entry));
  }
  json["run"] = {{"source", options.source},
                 {"target", source.target_length()},
                 {"tokens", options.run_tokens},
                 {"languages", std::move(languages)},
                 {"left_out", source.left_out()}};
  return json;
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
  ExampleText text(tokenizer.vocabulary(), manifest.special);
  text.add_sentinels(source.special().more, source.sentinels() - manifest.special.sentinels);
  Batch batch;
  batch.resize(1, options.source, source.target_length());
  for (const std::int64_t sample : options.samples) {
    QT_TRY(source.fill(sample, batch));
    QT_ASSIGN(const CorpusSource::Stretch stretch, source.stretch_of(sample));
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
  if (!options.json) print_manifest(options.folder, manifest);
  QT_ASSIGN(const CorpusConfig config, corpus_config(options));
  // Whoever did not ask how a run sees the corpus need not have one that a run can use.
  const bool asked = options.json || !options.samples.empty() || options.run_tokens > 0 ||
                     !options.assignments.empty();
  Result<CorpusSource> opened = CorpusSource::open(
      config, options.source, options.target, INT32_MAX, static_cast<std::uint64_t>(options.seed));
  if (!opened.ok()) {
    if (asked) return opened.error();
    fmt::print("\nno run with the default lengths: {}\n", opened.error().message);
    return {};
  }
  CorpusSource& source = opened.value();
  const Split split = config.split == name_of(Split::kTrain) ? Split::kTrain : Split::kHeldOut;
  std::vector<LanguageReport> reports;
  for (const CorpusSource::Language& language : source.languages()) {
    QT_ASSIGN(LanguageReport report, report_on(language, source.corpus(), split));
    const double samples =
        options.run_tokens / static_cast<double>(options.source + source.target_length());
    report.epochs = samples * language.share / static_cast<double>(language.rows);
    reports.push_back(std::move(report));
  }
  if (options.json) {
    fmt::print("{}\n", to_text(json_of(manifest, source, options, reports), 1));
    return {};
  }
  print_shares(source, config, options, reports);
  return print_samples(options, source);
}

}  // namespace

void add_data_inspect(CLI::App& data, Action& action) {
  CLI::App* command = data.add_subcommand(
      "inspect", "show a corpus: what it is made of, what was left out, how a run would see it");
  auto options = std::make_shared<InspectOptions>();
  command->add_option("corpus", options->folder, "folder of a corpus")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--sample", options->samples,
                   "show these samples of a run; what the decoder has to find is in [brackets]")
      ->check(whole_number<std::int64_t>(0))
      ->type_name("NUMBER...");
  command->add_option("--tokens", options->run_tokens, "how many epochs a run of N tokens is")
      ->check(CLI::Range(0.0, 1e18))
      ->type_name("N");
  command->add_option("--source", options->source, "of a run's rows: tokens of the encoder's input")
      ->check(CLI::Range(3, 1 << 20))
      ->capture_default_str();
  command->add_option("--target", options->target, "tokens of the decoder's; 0: as many as follow")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of the run")
      ->check(whole_number<std::int64_t>(INT64_MIN))
      ->capture_default_str();
  command->add_option("--set", options->assignments, "keys of [data], e.g. objective=ul2")
      ->type_name("KEY=VALUE");
  command->add_flag("--ids", options->ids, "show the samples' ids, too");
  command->add_flag("--json", options->json, "print JSON; without samples");
  command->footer(
      "Reads the tables of all documents, and tokens only of samples.\n\n"
      "Examples:\n"
      "  quintet data inspect corpus\n"
      "  quintet data inspect corpus --tokens 1e9 --source 512 --set pack=true\n"
      "  quintet data inspect corpus --sample 0 1 2 --source 64\n"
      "  quintet data inspect corpus --sample 0 --source 256 --set objective=ul2 --set "
      "only='[\"de\"]'");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace quintet
