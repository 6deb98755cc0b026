#include "data/corpus/documents.h"

#include <optional>

#include <simdjson.h>

#include "data/tokenizer/utf8.h"

namespace quintet {
namespace {

static_assert(TextBlock::kPadding >= simdjson::SIMDJSON_PADDING);

std::string long_reason(std::size_t most) {
  return fmt::format("longer than {} MiB", most >> 20);
}

bool is_blank(std::string_view line) {
  return line.empty() || line == "\r";
}

void normalize_spaces(std::string_view text, std::string& out) {
  out.clear();
  bool pending = false;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7F) {
      pending = true;
      continue;
    }
    if (pending && !out.empty()) out += ' ';
    pending = false;
    out += c;
  }
}

}  // namespace

// Keeps simdjson's header out of ours.
struct DocumentReader::Json {
  simdjson::ondemand::parser parser;
};

DocumentReader::DocumentReader(std::span<const InputFile> files, DocumentOptions options)
    : files_(files), options_(std::move(options)), json_(std::make_unique<Json>()) {}
DocumentReader::DocumentReader(DocumentReader&&) noexcept = default;
DocumentReader::~DocumentReader() = default;

Status DocumentReader::read(const TextBlock& block, BlockNotes& notes, const Body& body) {
  for (const TextBlock::LongLine& line : block.too_long) {
    notes.too_long.push_back({line.file, line.line, long_reason(kMaxDocumentBytes)});
  }
  for (const TextBlock::Part& part : block.parts) {
    const InputFile& file = files_[part.file];
    std::string_view rest(block.text.data() + part.begin, part.end - part.begin);
    std::int64_t line = part.first_line;
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (line == 1 && rest.starts_with(kByteOrderMark)) rest.remove_prefix(kByteOrderMark.size());
    while (!rest.empty()) {
      Document document{{}, file.language, part.file, line};
      // 1. A line; or, in paragraphs, all lines up to a blank one.
      std::size_t end = std::min(rest.find('\n'), rest.size());
      std::string_view text = rest.substr(0, end);
      ++line;
      if (file.format == TextFormat::kParagraphs && !is_blank(text)) {
        while (end < rest.size()) {
          const std::size_t next = std::min(rest.find('\n', end + 1), rest.size());
          if (is_blank(rest.substr(end + 1, next - end - 1))) break;
          end = next;
          ++line;
        }
        text = rest.substr(0, end);
      }
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (is_blank(text)) continue;
      if (text.size() > kMaxDocumentBytes) {
        notes.too_long.push_back({part.file, document.line, long_reason(kMaxDocumentBytes)});
        continue;
      }
      // 2. What is in it.
      if (file.format == TextFormat::kJsonLines) {
        QT_TRY(read_json(block, part, text, document, notes, body));
      } else {
        if (text.ends_with('\r')) text.remove_suffix(1);
        document.text = text;
        QT_TRY(deliver(document, notes, body));
      }
    }
  }
  return {};
}

Status DocumentReader::read_json(const TextBlock& block, const TextBlock::Part& part,
                                 std::string_view line, Document& document, BlockNotes& notes,
                                 const Body& body) {
  const auto refuse = [&](std::string reason) -> Status {
    notes.bad.push_back({part.file, document.line, std::move(reason)});
    return {};
  };
  const auto refuse_json = [&](simdjson::error_code error) {
    // Of records we made the JSON: what is wrong is their text.
    const bool record = files_[part.file].kind != InputKind::kText;
    return refuse(
        fmt::format("not valid {}: {}", record ? "text" : "JSON", simdjson::error_message(error)));
  };
  // The parser reads past the line's end, into the next line or the padding.
  const std::size_t readable = static_cast<std::size_t>(block.text.data() + block.text.size() +
                                                        TextBlock::kPadding - line.data());
  simdjson::ondemand::document json;
  if (auto error =
          json_->parser.iterate(simdjson::padded_string_view(line.data(), line.size(), readable))
              .get(json)) {
    return refuse_json(error);
  }
  simdjson::ondemand::object object;
  if (auto error = json.get_object().get(object)) return refuse_json(error);
  std::optional<std::string_view> text, language;
  // All fields are walked through, not only ours: a line that is broken behind them is broken.
  for (auto field : object) {
    std::string_view key;
    if (auto error = field.unescaped_key().get(key)) return refuse_json(error);
    if (key == kLeftOutField || key == kBadRecordField) {
      const bool bad = key == kBadRecordField;
      std::string_view reason;
      if (auto error = field.value().get_string().get(reason)) return refuse_json(error);
      if (bad) return refuse(std::string(reason));
      if (reason == "too long") {
        notes.too_long.push_back({part.file, document.line, long_reason(kMaxDocumentBytes)});
      } else {
        ++notes.left_out[std::string(beginning_of(reason, 100))];
      }
      return {};
    }
    auto* target = key == options_.text_field && !text ? &text
                   : !options_.language_field.empty() && key == options_.language_field && !language
                       ? &language
                       : nullptr;
    if (target == nullptr) continue;
    const std::string name(key);
    std::string_view value;
    if (auto error = field.value().get_string().get(value)) {
      if (error != simdjson::INCORRECT_TYPE) return refuse_json(error);
      return refuse(fmt::format("field \"{}\" is no string", name));
    }
    *target = value;
  }
  if (json.current_location().error() == simdjson::SUCCESS) {
    return refuse("not valid JSON: something follows the object");
  }
  if (!text) return refuse(fmt::format("no field \"{}\"", options_.text_field));
  if (!options_.language_field.empty()) {
    if (!language) return refuse(fmt::format("no field \"{}\"", options_.language_field));
    if (!is_language_name(std::string(*language))) {
      return refuse(fmt::format("language \"{}\": expected letters, digits, - and _, at most 32",
                                beginning_of(*language, 40)));
    }
    document.language = *language;
  }
  document.text = *text;
  return deliver(document, notes, body);
}

void DocumentReader::trim_memory() {
  json_ = std::make_unique<Json>();
  clean_ = {};
}

Status DocumentReader::deliver(Document& document, BlockNotes& notes, const Body& body) {
  if (document.text.size() > options_.max_bytes) {
    notes.too_long.push_back({document.file, document.line, long_reason(options_.max_bytes)});
    return {};
  }
  if (options_.normalize_spaces) {
    normalize_spaces(document.text, clean_);
    document.text = clean_;
  }
  return body(document);
}

}  // namespace quintet
