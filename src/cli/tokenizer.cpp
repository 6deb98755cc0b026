#include "data/tokenizer/tokenizer.h"

#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "cli/commands.h"

namespace quintet {
namespace {

struct TrainOptions {
  std::vector<std::string> inputs;
  std::string output, normalization = "nmt_nfkc";
  std::int64_t vocabulary = 32000, sentinels = 100, sentences = 10'000'000, threads = 0;
  double coverage = 0.99999;
  bool byte_fallback = true, bpe = false, verbose = false;
};

Status run(const TrainOptions& options) {
  for (const std::string& input : options.inputs) {
    if (!std::filesystem::exists(input)) return bad_input("{}: no such file", input);
    if (input.find(',') != std::string::npos) {
      return usage_error("{}: SentencePiece cannot read files with a comma in their name", input);
    }
  }
  const std::int64_t trained = options.vocabulary - options.sentinels;
  if (trained < 300) {
    return usage_error("--vocabulary {} leaves {} pieces beside {} sentinels; at least 300",
                       options.vocabulary, trained, options.sentinels);
  }
  log_info("training {} pieces on {} files; this can take minutes to hours", with_commas(trained),
           options.inputs.size());
  const auto threads =
      options.threads > 0
          ? options.threads
          : static_cast<std::int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  QT_ASSIGN(std::string model,
            train_sentencepiece({{"input", join(options.inputs, ",")},
                                 {"model_type", options.bpe ? "bpe" : "unigram"},
                                 {"vocab_size", fmt::format("{}", trained)},
                                 {"character_coverage", fmt::format("{}", options.coverage)},
                                 {"byte_fallback", options.byte_fallback ? "true" : "false"},
                                 {"normalization_rule_name", options.normalization},
                                 {"input_sentence_size", fmt::format("{}", options.sentences)},
                                 {"shuffle_input_sentence", "true"},
                                 {"num_threads", fmt::format("{}", threads)},
                                 // T5's: padding 0, end 1, unknown 2, no beginning.
                                 {"pad_id", "0"},
                                 {"eos_id", "1"},
                                 {"unk_id", "2"},
                                 {"bos_id", "-1"},
                                 {"minloglevel", options.verbose ? "0" : "2"}}));
  // Sentinels come last, <extra_id_0> at the very end; control pieces, so that no text can spell
  // one.
  for (std::int64_t i = options.sentinels; i-- > 0;) {
    model += serialize_piece({fmt::format("<extra_id_{}>", i), 0, PieceType::kControl});
  }
  QT_ASSIGN(const Tokenizer tokenizer, Tokenizer::create(model, options.output));
  QT_TRY(write_file(options.output, model));
  fmt::print("{}: {} pieces, {} of them sentinels (ids {} down to {}), digest {}\n", options.output,
             with_commas(tokenizer.vocabulary().size()), tokenizer.vocabulary().sentinels(),
             tokenizer.vocabulary().size() - 1,
             tokenizer.vocabulary().size() - tokenizer.vocabulary().sentinels(),
             tokenizer.digest());
  return {};
}

}  // namespace

void add_tokenizer(CLI::App& app, Action& action) {
  CLI::App* tokenizer = app.add_subcommand("tokenizer", "make a tokenizer");
  tokenizer->require_subcommand(1);
  CLI::App* command = tokenizer->add_subcommand(
      "train", "train a SentencePiece model with mT5's settings, sentinels included");
  auto options = std::make_shared<TrainOptions>();
  command->add_option("inputs", options->inputs, "plain text, one sentence or document a line")
      ->required()
      ->type_name("FILE...");
  command->add_option("--out", options->output, "the model to write")
      ->required()
      ->type_name("MODEL");
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
  command->add_option("--sentences", options->sentences, "lines to train on, drawn from all")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--threads", options->threads, "0: one a core")->check(CLI::Range(0, 1024));
  command->add_flag("--bpe", options->bpe, "byte-pair encoding instead of a unigram model");
  command->add_flag("--verbose", options->verbose, "show what the library has to say");
  command->footer("Example: quintet tokenizer train --out my.model --vocabulary 32100 text/*.txt");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace quintet
