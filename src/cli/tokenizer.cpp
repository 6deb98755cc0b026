#include "data/tokenizer/tokenizer.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/data_tables.h"
#include "cli/interrupt.h"
#include "cli/number_checks.h"
#include "data/corpus/training_text.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/quick_model.h"

namespace quintet {
namespace {

struct TrainOptions {
  TrainingTextOptions text;
  std::string output, normalization = "nmt_nfkc", documents = "lines";
  std::int64_t vocabulary = 32000, sentinels = 100, sentences = 10'000'000, megabytes = 256,
               threads = 0;
  double coverage = 0.99999;
  bool byte_fallback = true, bpe = false, verbose = false, overwrite = false;
};

// Says now and then that the library is still at it: it tells nothing of how far it is.
class StillTraining {
 public:
  StillTraining() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

 private:
  void run(const std::stop_token& stop) {
    const auto began = std::chrono::steady_clock::now();
    std::mutex mutex;
    std::unique_lock lock(mutex);
    while (!changed_.wait_for(lock, stop, std::chrono::seconds(10), [] { return false; }) &&
           !stop.stop_requested()) {
      log_info(
          "training for {}",
          human_duration(
              std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count()));
    }
  }
  std::condition_variable_any changed_;
  std::jthread thread_;
};

Result<TrainingText> read_text(const TrainOptions& options) {
  TrainingTextOptions text = options.text;
  text.inputs.paragraphs = options.documents == "paragraphs";
  text.max_bytes = static_cast<std::uint64_t>(options.megabytes) << 20;
  text.max_sentences = static_cast<std::uint64_t>(options.sentences);
  double said = 0;
  const auto began = std::chrono::steady_clock::now();
  QT_ASSIGN(
      TrainingText read,
      read_training_text(
          text,
          [&](std::uint64_t done, std::uint64_t total) {
            const double now =
                std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
            if (now - said < 5 || total == 0) return;
            said = now;
            log_info("reading: {:.0f} %",
                     100 * static_cast<double>(done) / static_cast<double>(total));
          },
          &interrupt_flag()));
  for (const NotTaken& file : read.not_taken) {
    log_warning("not taken: {}: {}", file.path.string(), file.reason);
  }
  for (const std::string& line : read.first_bad_lines) log_warning("passed over {}", line);
  if (read.bad_lines > 0) log_warning("{} bad lines in all", with_commas(read.bad_lines));
  if (read.too_long > 0) log_warning("{} documents too long", with_commas(read.too_long));
  for (const auto& [reason, count] : read.left_out) {
    log_warning("left out: {} ({})", with_commas(count), reason);
  }
  log_info("{} documents, {}; {} of it to train on, as {} sentences",
           with_commas(static_cast<std::int64_t>(read.documents)),
           human_bytes(static_cast<double>(read.bytes)),
           human_bytes(static_cast<double>(read.kept_bytes)),
           with_commas(static_cast<std::int64_t>(read.sentences.size())));
  return read;
}

// Whether normalization leaves anything of the text: of nothing the library makes an end of the
// process.
Result<bool> is_any_left(const std::vector<std::string>& sentences, const std::string& rules) {
  ModelProto model;
  QT_ASSIGN(model.charsmap, builtin_charsmap(rules));
  QT_ASSIGN(const Normalizer normalizer, Normalizer::create(model, rules));
  Buffer<char> text;
  return std::any_of(sentences.begin(), sentences.end(), [&](const std::string& sentence) {
    normalizer.normalize(sentence, text);
    return !text.empty();
  });
}

Status run(const TrainOptions& options) {
  if (!options.overwrite && std::filesystem::exists(options.output)) {
    return usage_error("{}: exists; choose another name, or --overwrite", options.output);
  }
  const std::int64_t trained = options.vocabulary - options.sentinels;
  if (trained < 300) {
    return usage_error("--vocabulary {} leaves {} pieces beside {} sentinels; at least 300",
                       options.vocabulary, trained, options.sentinels);
  }
  QT_ASSIGN(const TrainingText text, read_text(options));
  QT_ASSIGN(const bool any_left, is_any_left(text.sentences, options.normalization));
  if (!any_left) {
    return bad_input("{}: no text to train on: normalization ({}) leaves nothing of it",
                     options.text.inputs.names.front(), options.normalization);
  }
  log_info("training {} pieces; this can take minutes to hours", with_commas(trained));
  const auto threads =
      options.threads > 0
          ? options.threads
          : static_cast<std::int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  std::optional<StillTraining> still;
  still.emplace();
  QT_ASSIGN(std::string model,
            train_sentencepiece({{"model_type", options.bpe ? "bpe" : "unigram"},
                                 {"vocab_size", fmt::format("{}", trained)},
                                 {"character_coverage", fmt::format("{}", options.coverage)},
                                 {"byte_fallback", options.byte_fallback ? "true" : "false"},
                                 {"normalization_rule_name", options.normalization},
                                 {"max_sentence_length", fmt::format("{}", kMaxSentenceBytes)},
                                 {"num_threads", fmt::format("{}", threads)},
                                 // T5's: padding 0, end 1, unknown 2, no beginning.
                                 {"pad_id", "0"},
                                 {"eos_id", "1"},
                                 {"unk_id", "2"},
                                 {"bos_id", "-1"},
                                 {"minloglevel", options.verbose ? "0" : "2"}},
                                text.sentences));
  still.reset();
  // Sentinels come last, <extra_id_0> at the very end; control pieces, so that no text can spell
  // one.
  for (std::int64_t i = options.sentinels; i-- > 0;) {
    model += serialize_piece({fmt::format("<extra_id_{}>", i), 0, PieceType::kControl});
  }
  QT_ASSIGN(const Tokenizer tokenizer, Tokenizer::create(model, options.output));
  QT_TRY(write_file(options.output, model));
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  fmt::print("{}: {} pieces, {}, digest {}\n", options.output, with_commas(vocabulary.size()),
             describe_sentinels(vocabulary.sentinels(), vocabulary.size() - 1), tokenizer.digest());
  return {};
}

}  // namespace

void add_tokenizer(CLI::App& app, Action& action) {
  CLI::App* tokenizer = app.add_subcommand("tokenizer", "make a tokenizer");
  tokenizer->require_subcommand(1);
  CLI::App* command = tokenizer->add_subcommand(
      "train", "train a SentencePiece model with mT5's settings, sentinels included");
  auto options = std::make_shared<TrainOptions>();
  InputOptions& inputs = options->text.inputs;
  command
      ->add_option("inputs", inputs.names,
                   "files, folders or patterns, as of `data build`: " + known_endings() +
                       "; -: standard input")
      ->required()
      ->type_name("FILE...");
  command->add_option("--out", options->output, "the model to write")
      ->required()
      ->type_name("MODEL");
  command->add_flag("--overwrite", options->overwrite, "replace a model that is there");
  command->add_option("--text-field", inputs.text_field, "the field or column with the text")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--stdin-format", inputs.stdin_format, "txt, jsonl, csv, tsv or warc")
      ->capture_default_str();
  command
      ->add_option("--documents", options->documents,
                   ".txt files: every line is a document, or paragraphs between empty lines are")
      ->check(CLI::IsMember({"lines", "paragraphs"}))
      ->capture_default_str();
  command
      ->add_option("--max-bad-lines", options->text.bad_lines,
                   "lines that are not valid or lack the field are passed over, up to this many")
      ->check(whole_number<std::int64_t>(0))
      ->capture_default_str();
  command->add_option("--megabytes", options->megabytes, "of text to train on, drawn from all")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--vocabulary", options->vocabulary, "pieces in all, sentinels included")
      ->check(CLI::Range(400, 10'000'000))
      ->capture_default_str();
  command->add_option("--sentinels", options->sentinels, "<extra_id_0> and so on, at the top")
      ->check(CLI::Range(0, 10000))
      ->capture_default_str();
  command
      ->add_option("--coverage", options->coverage,
                   "share of the text's characters that get a piece of their own")
      ->check(CLI::Range(0.98, 1.0))
      ->capture_default_str();
  command->add_flag("--byte-fallback,!--no-byte-fallback", options->byte_fallback,
                    "spell other characters as bytes instead of <unk> (default)");
  command->add_option("--normalization", options->normalization, "rules of the library")
      ->check(CLI::IsMember({"nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"}))
      ->capture_default_str();
  command
      ->add_option("--sentences", options->sentences,
                   "sentences to train on at most, drawn from all")
      ->check(whole_number<std::int64_t>(1))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "0: one a core")->check(CLI::Range(0, 1024));
  command->add_flag("--bpe", options->bpe, "byte-pair encoding instead of a unigram model");
  command->add_flag("--verbose", options->verbose, "show what the library has to say");
  command->footer(
      "Documents are cut into sentences of at most 4,192 bytes; nothing is skipped, but a space\n"
      "stands for U+2585, which the library keeps to itself. It takes memory of many times the\n"
      "text's size: --megabytes bounds it.\n\n"
      "Examples:\n"
      "  quintet tokenizer train --out my.model --vocabulary 4000 text/\n"
      "  quintet tokenizer train --out hf.model --vocabulary 400 --text-field text data/*.parquet");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace quintet
