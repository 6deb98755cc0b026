#include <cstdio>

#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/data_tables.h"
#include "cli/interrupt.h"
#include "cli/number_checks.h"
#include "data/corpus/build.h"
#include "data/corpus/shard.h"

namespace quintet {
namespace {

struct BuildCommand {
  BuildOptions options;
  std::string language, language_by, documents = "lines", normalize = "none";
};

// One line on a terminal, redrawn; elsewhere a line now and then.
class ProgressLine {
 public:
  void show(const BuildProgress& progress) {
    const double wait = terminal_ ? 0.2 : 10;
    if (progress.phase != phase_) {  // its clock starts anew
      phase_ = progress.phase;
      first_input_ = progress.input_bytes;
      shown_ = 0;
    }
    if (progress.seconds - shown_ < wait) return;
    shown_ = progress.seconds;
    const double seconds = std::max(progress.seconds, 1e-3);
    const double share = progress.total_bytes == 0 ? 1
                                                   : static_cast<double>(progress.input_bytes) /
                                                         static_cast<double>(progress.total_bytes);
    std::string line = fmt::format("{}: {:5.1f} %", progress.phase, 100 * share);
    if (terminal_) {
      constexpr int kWidth = 24;
      const int filled = static_cast<int>(share * kWidth);
      line += fmt::format(" [{}{}]", std::string(static_cast<std::size_t>(filled), '#'),
                          std::string(static_cast<std::size_t>(kWidth - filled), '.'));
    }
    line += fmt::format("  {:.1f} MB/s", static_cast<double>(progress.text_bytes) / seconds * 1e-6);
    if (progress.tokens > 0) {
      line +=
          fmt::format(", {} tokens/s", human_count(static_cast<double>(progress.tokens) / seconds));
    }
    const auto done = static_cast<double>(progress.input_bytes - first_input_);
    if (done > 0 && seconds > 1) {
      const auto left = static_cast<double>(progress.total_bytes - progress.input_bytes);
      line += fmt::format(", {} left", human_duration(left / done * seconds));
    }
    if (terminal_) {
      fmt::print(stderr, "\r{:<100}", line);
      drawn_ = true;
    } else {
      fmt::print(stderr, "{}\n", line);
    }
    std::fflush(stderr);
  }
  ~ProgressLine() {
    if (drawn_) fmt::print(stderr, "\r{:<100}\r", "");
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) == 1, drawn_ = false;
  const char* phase_ = nullptr;
  double shown_ = 0;
  std::uint64_t first_input_ = 0;
};

Status run(BuildCommand& command) {
  BuildOptions& options = command.options;
  if (!command.language_by.empty()) {
    if (!command.language.empty()) {
      return usage_error("--language and --language-by: give one of them");
    }
    QT_ASSIGN(options.languages, LanguageRule::parse(command.language_by));
  } else if (!command.language.empty()) {
    QT_ASSIGN(options.languages, LanguageRule::fixed(command.language));
  }
  options.paragraphs = command.documents == "paragraphs";
  options.normalize_spaces = command.normalize == "spaces";
  BuildEnvironment environment;
  environment.stop = &interrupt_flag();
  Result<BuildReport> report = [&] {
    ProgressLine line;
    environment.progress = [&line](const BuildProgress& progress) { line.show(progress); };
    return build_corpus(options, environment);
  }();
  if (!report.ok()) return report.error();
  for (const std::string& line : report.value().first_bad_lines)
    log_warning("passed over {}", line);
  if (report.value().bad_lines > 0) {
    log_warning("{} bad lines in all", with_commas(report.value().bad_lines));
  }
  constexpr std::size_t kNamed = 100;
  const std::vector<NotTaken>& not_taken = report.value().not_taken;
  for (std::size_t i = 0; i < std::min(kNamed, not_taken.size()); ++i) {
    log_warning("not taken: {}: {}", not_taken[i].path.string(), not_taken[i].reason);
  }
  if (not_taken.size() > kNamed) log_warning("and {} more", not_taken.size() - kNamed);
  if (report.value().already_complete) log_info("already complete, nothing to do");
  const Manifest& manifest = report.value().manifest;
  print_corpus_table(manifest);
  if (const double seconds = report.value().seconds; seconds > 0) {
    log_info("{} in {} shards; it took {}", options.output.string(), manifest.shards.size(),
             human_duration(seconds));
  }
  return {};
}

}  // namespace

void add_data_build(CLI::App& data, Action& action) {
  CLI::App* command = data.add_subcommand("build", "turn text files into a corpus of token shards");
  auto build = std::make_shared<BuildCommand>();
  BuildOptions& options = build->options;
  command
      ->add_option("inputs", options.inputs,
                   "files, folders or patterns: " + known_endings() + "; -: standard input")
      ->required()
      ->type_name("FILE...");
  command
      ->add_option("--out", options.output, "folder for the corpus; empty, or of this very build")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--tokenizer", options.tokenizer,
                   "SentencePiece model, or a unigram tokenizer.json")
      ->required()
      ->type_name("MODEL");
  command->add_option("--language", build->language, "the language of all files (default: und)")
      ->type_name("NAME");
  command
      ->add_option("--language-by", build->language_by,
                   "how to tell languages: directory, file:PATTERN with {} in the place of the "
                   "language, or field:NAME of records")
      ->type_name("RULE");
  command
      ->add_option("--text-field", options.text_field,
                   "the field with the text: of JSON lines, or the column of CSV, TSV and "
                   "Parquet (a.b: b in a)")
      ->type_name("NAME")
      ->capture_default_str();
  command
      ->add_option("--stdin-format", options.stdin_format,
                   "what standard input is: txt, jsonl, csv, tsv or warc")
      ->capture_default_str();
  command
      ->add_option("--documents", build->documents,
                   ".txt files: every line is a document, or paragraphs between empty lines are")
      ->check(CLI::IsMember({"lines", "paragraphs"}))
      ->capture_default_str();
  command
      ->add_option("--normalize", build->normalize,
                   "before anything else; spaces: runs of white space and control characters "
                   "become one space")
      ->check(CLI::IsMember({"none", "spaces"}))
      ->capture_default_str();
  command->add_option("--min-characters", options.min_characters, "leave out shorter documents")
      ->check(whole_number<std::int64_t>(0))
      ->capture_default_str();
  command->add_option("--max-characters", options.max_characters, "leave out longer documents")
      ->check(whole_number<std::int64_t>(1));
  command->add_flag("--deduplicate", options.deduplicate,
                    "leave out documents whose text occurred before (reads the input twice)");
  command
      ->add_option("--held-out", options.held_out, "share of the documents set aside, e.g. 0.001")
      ->capture_default_str();
  command
      ->add_option("--sentinels", options.sentinels,
                   "sentinel ids above the model's pieces, if it has none of its own")
      ->check(CLI::Range(0, 10000))
      ->capture_default_str();
  command->add_option("--shard-tokens", options.shard_tokens, "tokens of a shard, at most")
      ->check(whole_number<std::int64_t>(1, static_cast<std::int64_t>(ShardWriter::kMaxTokens)))
      ->capture_default_str();
  command
      ->add_option("--max-bad-lines", options.bad_lines,
                   "lines that are not valid or lack the field are passed over, up to this many")
      ->check(whole_number<std::int64_t>(0))
      ->capture_default_str();
  command->add_option("--threads", options.threads, "0: one a core; does not change the result")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->footer(
      "Interrupted (Ctrl-C, a crash, a full disk), the same command continues where it was; not\n"
      "with standard input and named pipes, whose text comes once.\n"
      "Everything found and not taken is named, with the reason. Documents longer than 8 MiB (1 "
      "MiB\n"
      "with models that are not unigram) are left out; memory stays below 1 GiB.\n\n"
      "Examples:\n"
      "  quintet data build --tokenizer mt5.model --out corpus --language-by directory text/\n"
      "  quintet data build --tokenizer mt5.model --out web --language-by 'file:c4-{}.*' "
      "'c4/c4-*.json.gz'\n"
      "  quintet data build --tokenizer m.model --out wiki --language-by field:lang --deduplicate "
      "--held-out 0.001 wiki.jsonl.gz\n"
      "  quintet data build --tokenizer m.model --out hf --language-by field:lang data/*.parquet\n"
      "  zcat x.gz | quintet data build --tokenizer m.model --out x --stdin-format jsonl -");
  command->callback([build, &action] { action = [build] { return run(*build); }; });
}

}  // namespace quintet
