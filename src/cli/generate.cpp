#include <charconv>
#include <cstdio>
#include <iostream>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/number_checks.h"
#include "data/loader/example_text.h"
#include "data/tokenizer/model_tokenizer.h"
#include "generate/generator.h"
#include "train/evaluate.h"
#include "train/run_config.h"

namespace quintet {
namespace {

struct GenerateCommand {
  std::string model, tokenizer, file, device = "cpu", precision = "fp32";
  std::vector<std::string> texts;
  std::int64_t max_tokens = 64, batch = 16, beams = 1, top_k = 50, seed = 1;
  int threads = 0;
  double temperature = 0, top_p = 1, length_penalty = 1;
  bool ids = false, json = false;
};

// What turns text into a source and a result into text; none when ids are given.
class TextCodec {
 public:
  static Result<TextCodec> open(const GenerateCommand& command) {
    TextCodec codec;
    if (command.ids) return codec;
    QT_ASSIGN(const Path path, tokenizer_of(command));
    QT_ASSIGN(Tokenizer tokenizer, Tokenizer::open(path));
    codec.tokenizer_ = std::make_unique<Tokenizer>(std::move(tokenizer));
    const Vocabulary& vocabulary = codec.tokenizer_->vocabulary();
    codec.special_ = {.pad = vocabulary.pad_id(),
                      .eos = vocabulary.eos_id(),
                      .unknown = vocabulary.unknown_id(),
                      .first_sentinel = vocabulary.size() - 1,
                      .sentinels = vocabulary.sentinels()};
    return codec;
  }

  // A text's ids, "<extra_id_N>" standing for the sentinel; or the ids themselves.
  Result<std::vector<std::int32_t>> encode(const std::string& text) const {
    if (tokenizer_ == nullptr) return parse(text);
    std::vector<std::int32_t> ids;
    Encoder encoder(*tokenizer_);
    constexpr std::string_view kMark = "<extra_id_";
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t mark = std::min(text.find(kMark, at), text.size());
      Buffer<std::int32_t> piece;
      QT_TRY(encoder.encode(std::string_view(text).substr(at, mark - at), piece));
      // The space that tokenizers put before a text is none of the text's where a blank ends.
      const bool space = at > 0 && at < mark && text[at] != ' ' && piece.size() > 0 &&
                         piece.data()[0] == tokenizer_->vocabulary().find("\u2581");
      ids.insert(ids.end(), piece.data() + (space ? 1 : 0), piece.data() + piece.size());
      if (mark == text.size()) break;
      const std::size_t close = std::min(text.find('>', mark), text.size() - 1);
      std::int32_t number = -1;
      std::from_chars(text.data() + mark + kMark.size(), text.data() + close, number);
      if (special_.sentinels == 0) return bad_input("\"{}\": the tokenizer has no blanks", text);
      if (number < 0 || number >= special_.sentinels) {
        return bad_input("\"{}\": the tokenizer has <extra_id_0> to <extra_id_{}>",
                         text.substr(mark, close + 1 - mark), special_.sentinels - 1);
      }
      ids.push_back(special_.first_sentinel - number);
      at = close + 1;
    }
    ids.push_back(special_.eos);
    return ids;
  }

  // The result for people: with blanks filled in where the source has any.
  Result<std::string> decode(const std::vector<std::int32_t>& source,
                             const std::vector<std::int32_t>& result) const {
    if (tokenizer_ == nullptr) return fmt::format("{}", fmt::join(result, " "));
    const ExampleText text(tokenizer_->vocabulary(), special_);
    const bool blanks = std::any_of(source.begin(), source.end(), [&](std::int32_t id) {
      return id > special_.first_sentinel - special_.sentinels && id <= special_.first_sentinel;
    });
    if (blanks) return text.with_spans(source, result);
    return tokenizer_->decode(result);
  }

  std::int64_t words() const { return tokenizer_ == nullptr ? 0 : tokenizer_->vocabulary().size(); }

 private:
  static Result<Path> tokenizer_of(const GenerateCommand& command) {
    std::error_code ignored;
    const Path place = command.tokenizer.empty() ? command.model : command.tokenizer;
    if (!command.tokenizer.empty() && !std::filesystem::is_directory(place, ignored)) return place;
    if (const auto found = tokenizer_in(place)) return *found;
    std::string why = "has no tokenizer.model, spiece.model or tokenizer.json";
    if (command.tokenizer.empty() && std::filesystem::exists(place / "run.toml", ignored)) {
      const auto trained = trained_tokenizer(place);
      if (trained.ok()) return trained.value();
      why = "has no tokenizer: " + trained.error().message;
    }
    return usage_error(
        "{}: {}; say --tokenizer FILE (a SentencePiece model or the corpus it was trained on), or "
        "give ids with --ids",
        place.string(), why);
  }
  static Result<std::vector<std::int32_t>> parse(const std::string& text) {
    std::vector<std::int32_t> ids;
    const char *at = text.data(), *end = at + text.size();
    while (at < end) {
      if (*at == ' ' || *at == '\t' || *at == '\r') {
        ++at;
        continue;
      }
      std::int32_t id = 0;
      const auto [stop, error] = std::from_chars(at, end, id);
      if (error != std::errc()) return bad_input("\"{}\": expected ids separated by spaces", text);
      ids.push_back(id);
      at = stop;
    }
    return ids;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  SpecialTokens special_;
};

Result<std::vector<std::string>> texts_of(const GenerateCommand& command) {
  std::vector<std::string> texts = command.texts;
  if (!command.file.empty() && command.file != "-") {
    QT_ASSIGN(const std::string text, read_file(command.file));
    std::size_t begin = 0;
    while (begin < text.size()) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      texts.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  } else if (command.file == "-") {
    for (std::string line; std::getline(std::cin, line);) texts.push_back(line);
  }
  std::erase_if(texts, [](const std::string& text) { return text.empty(); });
  if (texts.empty())
    return usage_error("nothing to read: give a text, or --file FILE with one text per line");
  return texts;
}

Status generate_texts(GenerateCommand command) {
  QT_ASSIGN(const std::vector<std::string> texts, texts_of(command));
  QT_ASSIGN(const Path model, checkpoint_folder(command.model));
  command.model = model.string();
  QT_ASSIGN(const TextCodec codec, TextCodec::open(command));
  std::vector<std::vector<std::int32_t>> sources;
  std::int64_t longest = 1;
  for (const std::string& text : texts) {
    QT_ASSIGN(sources.emplace_back(), codec.encode(text));
    longest = std::max(longest, static_cast<std::int64_t>(sources.back().size()));
  }
  GenerateOptions options;
  options.shape.sequences = std::min<std::int64_t>(command.batch, std::ssize(sources));
  options.shape.beams = command.beams;
  options.shape.source = (longest + 7) / 8 * 8;
  options.shape.tokens = command.max_tokens;
  options.shape.candidates = static_cast<std::int32_t>(command.beams > 1         ? 2 * command.beams
                                                       : command.temperature > 0 ? command.top_k
                                                                                 : 1);
  options.dtype = command.precision == "bf16" ? DType::kBF16 : DType::kF32;
  options.target.device = command.device == "cuda" ? Device::kCuda : Device::kCpu;
  options.target.threads = command.threads > 0 ? command.threads : share_of_cores();
  QT_ASSIGN(Generator generator, Generator::open(command.model, options));
  if (codec.words() > generator.model().vocab_size) {
    return bad_input(
        "the tokenizer has {} words and the model's vocabulary {}; this is not the tokenizer the "
        "model was trained with",
        codec.words(), generator.model().vocab_size);
  }
  const Choice choice{command.temperature, command.top_p, static_cast<std::uint64_t>(command.seed)};
  const double began = now();
  std::int64_t words = 0;
  for (std::size_t first = 0; first < sources.size();
       first += static_cast<std::size_t>(options.shape.sequences)) {
    const std::size_t count =
        std::min(static_cast<std::size_t>(options.shape.sequences), sources.size() - first);
    QT_ASSIGN(const auto results,
              generator.generate(std::span(sources).subspan(first, count), choice,
                                 command.length_penalty, static_cast<std::int64_t>(first)));
    for (std::size_t i = 0; i < count; ++i) {
      words += std::ssize(results[i].words);
      QT_ASSIGN(const std::string text, codec.decode(sources[first + i], results[i].words));
      if (command.json) {
        const Json line = {{"source", texts[first + i]},
                           {"ids", results[i].words},
                           {"log_probability", results[i].log_probability},
                           {"text", text}};
        fmt::print("{}\n", to_text(line));
      } else {
        fmt::print("{}\n", text);
      }
    }
    std::fflush(stdout);
  }
  const double seconds = now() - began;
  fmt::print(stderr, "{} tokens in {} ({:.0f} tokens/s), {} of memory\n", words,
             human_duration(seconds), static_cast<double>(words) / seconds,
             human_bytes(static_cast<double>(generator.planned_bytes())));
  return {};
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("generate", "let a trained model fill in blanks or continue a text");
  auto options = std::make_shared<GenerateCommand>();
  command
      ->add_option("model", options->model,
                   "a checkpoint, a run (its newest checkpoint), or a Hugging Face model's folder")
      ->type_name("FOLDER")
      ->required();
  command->add_option("text", options->texts, "texts; <extra_id_0>, <extra_id_1>, ... are blanks");
  command->add_option("--file", options->file,
                      "read texts from here, one per line; -: standard input");
  command->add_option(
      "--tokenizer", options->tokenizer,
      "SentencePiece model, or the folder of a corpus; default: in the model's folder, or that of "
      "the run's data");
  command->add_flag("--ids", options->ids, "texts are ids, and so are the results");
  command->add_option("--max-tokens", options->max_tokens, "tokens of a result at most")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--beams", options->beams, "beam search over this many; 1: none")
      ->check(CLI::Range(1, 32))
      ->capture_default_str();
  command
      ->add_option("--length-penalty", options->length_penalty,
                   "beam search: scores are divided by length to this power")
      ->check(number_between(-10, 10))
      ->capture_default_str();
  command
      ->add_option("--temperature", options->temperature,
                   "draw words at this temperature; 0: always the best")
      ->check(number_between(0, 100))
      ->capture_default_str();
  command->add_option("--top-k", options->top_k, "draw from this many best words")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--top-p", options->top_p, "of those, from the fewest with this probability")
      ->check(number_between(0, 1))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of the draws")->capture_default_str();
  command->add_option("--batch", options->batch, "texts at one time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--device", options->device, "cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--precision", options->precision, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "CPU threads (0: one per core)")
      ->check(CLI::Range(0, 1024));
  command->add_flag("--json", options->json, "print JSON, one line per text");
  command->footer("Example: quintet generate runs/corpus \"one <extra_id_0> three\"");
  command->callback(
      [options, &action] { action = [options] { return generate_texts(*options); }; });
}

}  // namespace quintet
