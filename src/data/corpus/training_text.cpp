#include "data/corpus/training_text.h"

#include <algorithm>

#include "base/philox.h"
#include "data/corpus/text_blocks.h"
#include "data/tokenizer/utf8.h"

namespace quintet {
namespace {

// Keeps sentences whose random number is below a threshold, which is halved whenever they become
// too many: so every sentence has the same chance, and one pass is enough.
class Sample {
 public:
  Sample(std::uint64_t max_bytes, std::uint64_t max_sentences)
      : max_bytes_(max_bytes), max_sentences_(max_sentences) {}

  void add(std::string_view sentence) {
    const auto words = philox(1, stream_of("training text"), number_++);
    const std::uint64_t draw = std::uint64_t{words[0]} << 32 | words[1];
    if (draw > threshold_) return;
    kept_.emplace_back(draw, sentence);
    bytes_ += sentence.size();
    while (bytes_ > max_bytes_ || kept_.size() > max_sentences_) {
      threshold_ /= 2;
      std::erase_if(kept_, [&](const auto& entry) {
        if (entry.first <= threshold_) return false;
        bytes_ -= entry.second.size();
        return true;
      });
    }
  }
  std::vector<std::string> take() {
    std::vector<std::string> sentences;
    for (auto& [draw, sentence] : kept_) sentences.push_back(std::move(sentence));
    kept_.clear();
    return sentences;
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t max_bytes_, max_sentences_, bytes_ = 0, number_ = 0;
  std::uint64_t threshold_ = UINT64_MAX;
  std::vector<std::pair<std::uint64_t, std::string>> kept_;
};

// Cuts a document into sentences of at most kMaxSentenceBytes: at line breaks, at the last space
// that leaves one short enough, or between characters.
template <class Body>
void for_each_sentence(std::string_view document, const Body& body) {
  while (!document.empty()) {
    std::string_view line = document.substr(0, document.find('\n'));
    document.remove_prefix(std::min(line.size() + 1, document.size()));
    while (!line.empty()) {
      std::string_view sentence = line;
      if (line.size() > kMaxSentenceBytes) {
        const std::size_t space = line.rfind(' ', kMaxSentenceBytes);
        sentence = space != std::string_view::npos && space > kMaxSentenceBytes / 2
                       ? line.substr(0, space)
                       : beginning_of(line, kMaxSentenceBytes);
      }
      body(sentence);
      line.remove_prefix(sentence.size());
    }
  }
}

// The library marks what is unknown to it with U+2585, and drops sentences that have it already.
void replace_reserved(std::string& sentence) {
  constexpr std::string_view kReserved = "\xE2\x96\x85";
  for (std::size_t at = 0; (at = sentence.find(kReserved, at)) != std::string::npos;) {
    sentence.replace(at, kReserved.size(), " ");
  }
}

}  // namespace

Result<TrainingText> read_training_text(
    const TrainingTextOptions& options,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress,
    const std::atomic<bool>* stop) {
  QT_ASSIGN(FoundInputs found, find_inputs(options.inputs));
  TrainingText text;
  text.not_taken = std::move(found.not_taken);
  std::uint64_t total = 0, done = 0;
  std::vector<std::uint32_t> indices;
  for (std::uint32_t i = 0; i < found.files.size(); ++i) {
    indices.push_back(i);
    total += found.files[i].bytes;
  }
  DocumentOptions document_options;
  document_options.text_field = options.inputs.text_field;
  TextBlocks blocks(found.files, std::move(indices), kTextBlockBytes);
  DocumentReader reader(found.files, document_options);
  Sample sample(options.max_bytes, options.max_sentences);
  TextBlock block;
  constexpr std::int64_t kNamed = 5;
  for (;;) {
    if (stop != nullptr && *stop) return make_error(ErrorCode::kInterrupted, "interrupted");
    QT_TRY(blocks.next(block));
    if (block.text.empty() && block.too_long.empty()) break;
    BlockNotes notes;
    QT_TRY(reader.read(block, notes, [&](const Document& document) -> Status {
      ++text.documents;
      text.bytes += document.text.size();
      for_each_sentence(document.text, [&](std::string_view sentence) { sample.add(sentence); });
      return {};
    }));
    const auto named = [&](const BadLine& line) {
      return fmt::format("{}:{}: {}", found.files[line.file].name(), line.line, line.reason);
    };
    for (const BadLine& line : notes.bad) {
      if (text.bad_lines == options.bad_lines) {
        return bad_input(
            "{}; {} bad lines before it were passed over, which is all that "
            "--max-bad-lines allows",
            named(line), options.bad_lines);
      }
      if (text.bad_lines++ < kNamed) text.first_bad_lines.push_back(named(line));
    }
    for (const BadLine& line : notes.too_long) {
      if (text.too_long++ < kNamed) text.first_bad_lines.push_back(named(line));
    }
    for (const auto& [reason, count] : notes.left_out) text.left_out[reason] += count;
    done += block.file_bytes;
    if (progress) progress(done, total);
  }
  text.kept_bytes = sample.bytes();
  text.sentences = sample.take();
  for (std::string& sentence : text.sentences) replace_reserved(sentence);
  if (text.sentences.empty()) {
    return bad_input("{}: no text to train on; {} bad lines, {} too long",
                     options.inputs.names.front(), text.bad_lines, text.too_long);
  }
  return text;
}

}  // namespace quintet
