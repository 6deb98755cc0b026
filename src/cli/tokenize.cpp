#include <charconv>
#include <cstdio>

#include "cli/commands.h"
#include "data/corpus/byte_source.h"
#include "data/tokenizer/tokenizer.h"

namespace quintet {
namespace {

struct TokenizeOptions {
  std::string model, file = "-";
  bool detokenize = false;
};

// Lines of a file or of standard input, of any length.
class LineReader {
 public:
  static Result<LineReader> open(const std::string& file) {
    LineReader reader;
    if (file != "-") {
      QT_ASSIGN(reader.source_, ByteSource::open(file));
    }
    return reader;
  }
  // False at the end.
  Result<bool> next(std::string_view& line) {
    for (;;) {
      const std::size_t end = text_.find('\n', searched_);
      if (end != std::string::npos) {
        line = std::string_view(text_).substr(begin_, end - begin_);
        begin_ = searched_ = end + 1;
        return true;
      }
      if (at_end_) {
        line = std::string_view(text_).substr(begin_);
        begin_ = searched_ = text_.size();
        return !line.empty();
      }
      text_.erase(0, begin_);
      begin_ = 0;
      searched_ = text_.size();
      QT_TRY(read_more());
    }
  }

 private:
  Status read_more() {
    constexpr std::size_t kChunk = 1 << 20;
    const std::size_t old = text_.size();
    text_.resize(old + kChunk);
    std::size_t got = 0;
    if (source_ != nullptr) {
      QT_ASSIGN(got, source_->read({text_.data() + old, kChunk}));
    } else {
      got = std::fread(text_.data() + old, 1, kChunk, stdin);
      if (std::ferror(stdin) != 0) return io_error("standard input: read failed");
    }
    text_.resize(old + got);
    at_end_ = got < kChunk;
    return {};
  }

  std::unique_ptr<ByteSource> source_;
  std::string text_;
  std::size_t begin_ = 0, searched_ = 0;  // where the next line begins; no line break before this
  bool at_end_ = false;
};

Status put(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    return io_error("standard output: write failed");
  }
  return {};
}

Result<std::vector<std::int32_t>> parse_ids(std::string_view line, std::int64_t number) {
  std::vector<std::int32_t> ids;
  const char *at = line.data(), *end = at + line.size();
  while (at < end) {
    if (*at == ' ' || *at == '\r') {
      ++at;
      continue;
    }
    std::int32_t id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (stop < end && *stop != ' ' && *stop != '\r')) {
      return bad_input("line {}: \"{}\" is no id; expected numbers separated by spaces", number,
                       std::string_view(at, std::min<std::ptrdiff_t>(20, end - at)));
    }
    ids.push_back(id);
    at = stop;
  }
  return ids;
}

Status run(const TokenizeOptions& options) {
  QT_ASSIGN(const Tokenizer tokenizer, Tokenizer::open(options.model));
  QT_ASSIGN(LineReader lines, LineReader::open(options.file));
  Encoder encoder(tokenizer);
  Buffer<std::int32_t> ids;
  std::string out;
  std::string_view line;
  for (std::int64_t number = 1;; ++number) {
    QT_ASSIGN(const bool more, lines.next(line));
    if (!more) break;
    if (options.detokenize) {
      QT_ASSIGN(const auto parsed, parse_ids(line, number));
      const auto text = tokenizer.decode(parsed);
      if (!text.ok()) return bad_input("line {}: {}", number, text.error().message);
      out += text.value();
    } else {
      ids.clear();
      QT_TRY(encoder.encode(line, ids));
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (i > 0) out += ' ';
        out += fmt::format_int(ids[i]).str();
      }
    }
    out += '\n';
    if (out.size() > 1 << 16) {
      QT_TRY(put(out));
      out.clear();
    }
  }
  QT_TRY(put(out));
  if (std::fflush(stdout) != 0) return io_error("standard output: write failed");
  return {};
}

}  // namespace

void add_tokenize(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("tokenize", "text to ids, or ids to text, line by line");
  auto options = std::make_shared<TokenizeOptions>();
  command
      ->add_option("--model", options->model,
                   "SentencePiece model (.model), or a unigram tokenizer.json")
      ->required()
      ->type_name("MODEL");
  command
      ->add_option("file", options->file, "text, perhaps .gz, .zst, .xz or .bz2; -: standard input")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_flag("--detokenize", options->detokenize, "from ids back to text");
  command->footer(
      "Ids are those of `spm_encode --output_format=id`.\n\n"
      "Examples:\n"
      "  echo 'Hello world' | quintet tokenize --model mt5.model\n"
      "  quintet tokenize --model mt5.model book.txt.gz > ids.txt\n"
      "  quintet tokenize --model mt5.model --detokenize ids.txt");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace quintet
