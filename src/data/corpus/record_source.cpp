#include "data/corpus/record_source.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

#include "data/corpus/text_blocks.h"
#include "data/tokenizer/utf8.h"

namespace quintet {
namespace {

// Text of a source with as much of it ahead as is wanted.
class Window {
 public:
  explicit Window(std::unique_ptr<ByteSource> file) : file_(std::move(file)) {}

  // What is there, at least `want` bytes unless the file ends before.
  Result<std::string_view> ahead(std::size_t want) {
    while (!ended_ && text_.size() - begin_ < want) {
      text_.erase(0, begin_);
      begin_ = 0;
      const std::size_t old = text_.size();
      text_.resize(std::max(want, old + kChunk));
      QT_ASSIGN(const std::size_t got, file_->read(std::span(text_).subspan(old)));
      ended_ = got < text_.size() - old;
      text_.resize(old + got);
    }
    return std::string_view(text_).substr(begin_);
  }
  void drop(std::size_t bytes) { begin_ += bytes; }
  bool ended() const { return ended_; }
  std::uint64_t consumed() const { return file_->consumed(); }

 private:
  static constexpr std::size_t kChunk = 256 << 10;
  std::unique_ptr<ByteSource> file_;
  std::string text_;
  std::size_t begin_ = 0;
  bool ended_ = false;
};

class SeparatedSource final : public RecordSource {
 public:
  SeparatedSource(std::unique_ptr<ByteSource> file, std::string name, char separator,
                  RecordFields fields)
      : window_(std::move(file)),
        name_(std::move(name)),
        separator_(separator),
        fields_(std::move(fields)) {}

  std::uint64_t consumed() const override { return window_.consumed(); }

  Status read_header() {
    // Before anything is parsed: a quote after it still begins a field.
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    QT_ASSIGN(const std::string_view start, window_.ahead(kByteOrderMark.size()));
    if (start.starts_with(kByteOrderMark)) window_.drop(kByteOrderMark.size());
    QT_ASSIGN(const bool more, read_record());
    if (!more) return bad_input("{}: empty; its first line should name the columns", name_);
    if (too_long_) return bad_input("{}: its first line does not name columns", name_);
    columns_ = used_;
    const auto find = [&](const std::string& column) -> std::optional<std::size_t> {
      for (std::size_t i = 0; i < used_; ++i) {
        if (record_[i] == column) return i;
      }
      return std::nullopt;
    };
    const auto missing = [&](const std::string& column) {
      std::string there;
      for (std::size_t i = 0; i < std::min<std::size_t>(used_, 20); ++i) {
        there += i > 0 ? ", " : "";
        there += beginning_of(record_[i], 40);
      }
      return bad_input("{}: no column \"{}\"; there are {}", name_, column, there);
    };
    text_ = find(fields_.text);
    if (!text_) return missing(fields_.text);
    if (!fields_.language.empty()) {
      language_ = find(fields_.language);
      if (!language_) return missing(fields_.language);
    }
    return {};
  }

 protected:
  Result<bool> next(std::string& lines) override {
    QT_ASSIGN(const bool more, read_record());
    if (!more) return false;
    if (used_ == 1 && record_[0].empty() && !too_long_) {
      lines += '\n';  // an empty line is nothing
    } else if (too_long_) {
      append_json_line(kLeftOutField, "too long", lines);
    } else if (unclosed_) {
      append_json_line(kBadRecordField, "a quote is not closed", lines);
    } else if (used_ != columns_) {
      append_json_line(kBadRecordField,
                       fmt::format("{} fields, and the first line names {}", used_, columns_),
                       lines);
    } else {
      lines += '{';
      append_json_string(fields_.text, lines);
      lines += ':';
      append_json_string(record_[*text_], lines);
      if (language_) {
        lines += ',';
        append_json_string(fields_.language, lines);
        lines += ':';
        append_json_string(record_[*language_], lines);
      }
      lines += "}\n";
    }
    return true;
  }

 private:
  std::string& field(std::size_t i) {
    if (i == record_.size()) record_.emplace_back();
    record_[i].clear();
    return record_[i];
  }
  // The next record into record_; false at the end.
  Result<bool> read_record() {
    QT_ASSIGN(std::string_view text, window_.ahead(1));
    used_ = 0;
    too_long_ = unclosed_ = false;
    if (text.empty()) return false;
    std::size_t bytes = 0;
    std::string* value = &field(used_++);
    bool quoted = false, begins = true;
    for (;;) {
      if (text.empty()) {
        QT_ASSIGN(text, window_.ahead(1));
        if (text.empty()) {
          unclosed_ = quoted;
          break;
        }
      }
      // A run without anything special.
      std::size_t run = 0;
      while (run < text.size() && text[run] != '\n' && text[run] != separator_ &&
             (separator_ != ',' || text[run] != '"')) {
        ++run;
      }
      if (bytes <= kMaxDocumentBytes) value->append(text.substr(0, run));
      bytes += run;
      if (run > 0) begins = false;
      advance(text, run);
      if (text.empty()) continue;
      const char c = text.front();
      advance(text, 1);
      ++bytes;
      if (c == '"' && separator_ == ',') {
        if (!quoted && begins) {
          quoted = true;
          begins = false;
        } else if (quoted) {
          if (text.empty()) {
            QT_ASSIGN(text, window_.ahead(1));
          }
          if (text.starts_with('"')) {  // doubled: one of the text's own
            *value += '"';
            advance(text, 1);
          } else {
            quoted = false;
          }
        } else {
          *value += '"';
        }
      } else if (quoted) {
        if (bytes <= kMaxDocumentBytes) *value += c;
      } else if (c == separator_) {
        if (used_ == kMaxFields) {
          too_long_ = true;
          continue;
        }
        value = &field(used_++);
        begins = true;
      } else {
        break;  // the record's end
      }
    }
    if (value->ends_with('\r')) value->pop_back();
    too_long_ = too_long_ || bytes > kMaxDocumentBytes;
    return true;
  }
  void advance(std::string_view& text, std::size_t bytes) {
    window_.drop(bytes);
    text.remove_prefix(bytes);
  }

  static constexpr std::size_t kMaxFields = 10000;
  Window window_;
  std::string name_;
  char separator_;
  RecordFields fields_;
  std::vector<std::string> record_;
  std::size_t used_ = 0, columns_ = 0;
  std::optional<std::size_t> text_, language_;
  bool too_long_ = false, unclosed_ = false;
};

bool equal_names(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return std::tolower(static_cast<unsigned char>(x)) ==
                  std::tolower(static_cast<unsigned char>(y));
         });
}

class WarcSource final : public RecordSource {
 public:
  WarcSource(std::unique_ptr<ByteSource> file, std::string name, RecordFields fields)
      : window_(std::move(file)), name_(std::move(name)), fields_(std::move(fields)) {}

  std::uint64_t consumed() const override { return window_.consumed(); }

 protected:
  Result<bool> next(std::string& lines) override {
    // 1. Line breaks end the record before.
    for (;;) {
      QT_ASSIGN(const std::string_view text, window_.ahead(1));
      if (text.empty()) return false;
      if (text.front() != '\r' && text.front() != '\n') break;
      window_.drop(1);
    }
    // 2. The header.
    QT_ASSIGN(std::string_view text, window_.ahead(kMaxHeader));
    const std::size_t end = text.substr(0, kMaxHeader).find("\r\n\r\n");
    if (!text.starts_with("WARC/1.") || end == std::string_view::npos) {
      return bad_input("{}: record {}: not the header of a WARC record; the file is damaged", name_,
                       record_ + 1);
    }
    ++record_;
    std::string type, language;
    std::optional<std::uint64_t> length;
    for (std::string_view rest = text.substr(0, end + 2); !rest.empty();) {
      const std::size_t stop = rest.find("\r\n");
      const std::string_view line = rest.substr(0, stop);
      rest.remove_prefix(stop + 2);
      const std::size_t colon = line.find(':');
      if (colon == std::string_view::npos) continue;
      std::string_view value = line.substr(colon + 1);
      while (value.starts_with(' ')) value.remove_prefix(1);
      const std::string_view key = line.substr(0, colon);
      if (equal_names(key, "WARC-Type")) type = value;
      if (equal_names(key, "WARC-Identified-Content-Language")) {
        language = value.substr(0, value.find(','));
      }
      if (equal_names(key, "Content-Length")) {
        std::uint64_t number = 0;
        const auto [at, error] = std::from_chars(value.data(), value.data() + value.size(), number);
        if (error == std::errc() && at == value.data() + value.size()) length = number;
      }
    }
    if (!length) {
      return bad_input("{}: record {}: no valid Content-Length; the file is damaged", name_,
                       record_);
    }
    window_.drop(end + 4);
    // 3. The contents.
    if (type != "conversion") {
      QT_TRY(pass_over(*length));
      append_json_line(kLeftOutField, fmt::format("WARC record of type {}", beginning_of(type, 40)),
                       lines);
      return true;
    }
    if (*length > kMaxDocumentBytes) {
      QT_TRY(pass_over(*length));
      append_json_line(kLeftOutField, "too long", lines);
      return true;
    }
    QT_ASSIGN(text, window_.ahead(static_cast<std::size_t>(*length)));
    if (text.size() < *length) return cut_short();
    lines += '{';
    append_json_string(fields_.text, lines);
    lines += ':';
    append_json_string(text.substr(0, *length), lines);
    if (!fields_.language.empty()) {
      lines += ',';
      append_json_string(fields_.language, lines);
      lines += ':';
      append_json_string(language, lines);
    }
    lines += "}\n";
    window_.drop(static_cast<std::size_t>(*length));
    return true;
  }

 private:
  static constexpr std::size_t kMaxHeader = 64 << 10;

  Error cut_short() const {
    return bad_input("{}: ends in the middle of record {}; it was cut short", name_, record_);
  }
  Status pass_over(std::uint64_t bytes) {
    while (bytes > 0) {
      QT_ASSIGN(const std::string_view text, window_.ahead(1));
      if (text.empty()) return cut_short();
      const std::uint64_t some = std::min<std::uint64_t>(bytes, text.size());
      window_.drop(some);
      bytes -= some;
    }
    return {};
  }

  Window window_;
  std::string name_;
  RecordFields fields_;
  std::int64_t record_ = 0;
};

}  // namespace

Result<std::size_t> RecordSource::read(std::span<char> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    if (begin_ == lines_.size()) {
      if (ended_) break;
      lines_.clear();
      begin_ = 0;
      QT_ASSIGN(const bool more, next(lines_));
      ended_ = !more;
      continue;
    }
    const std::size_t some = std::min(out.size() - done, lines_.size() - begin_);
    std::memcpy(out.data() + done, lines_.data() + begin_, some);
    begin_ += some;
    done += some;
  }
  return done;
}

void append_json_string(std::string_view text, std::string& out) {
  static constexpr auto kSpecial = [] {
    std::array<bool, 256> special{};
    for (std::size_t c = 0; c < 0x20; ++c) special[c] = true;
    special['"'] = special['\\'] = true;
    return special;
  }();
  constexpr const char* kHex = "0123456789abcdef";
  out += '"';
  std::size_t plain = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (!kSpecial[c]) continue;
    out.append(text, plain, i - plain);
    plain = i + 1;
    out += '\\';
    switch (c) {
      case '"':
      case '\\':
        out += static_cast<char>(c);
        break;
      case '\n':
        out += 'n';
        break;
      case '\r':
        out += 'r';
        break;
      case '\t':
        out += 't';
        break;
      default:
        out += "u00";
        out += kHex[c >> 4];
        out += kHex[c & 15];
    }
  }
  out.append(text, plain, text.size() - plain);
  out += '"';
}

void append_json_line(std::string_view key, std::string_view value, std::string& out) {
  out += '{';
  append_json_string(key, out);
  out += ':';
  append_json_string(value, out);
  out += "}\n";
}

Result<std::unique_ptr<ByteSource>> open_separated(std::unique_ptr<ByteSource> file,
                                                   const std::string& name, char separator,
                                                   const RecordFields& fields) {
  auto source = std::make_unique<SeparatedSource>(std::move(file), name, separator, fields);
  QT_TRY(source->read_header());
  return std::unique_ptr<ByteSource>(std::move(source));
}

Result<std::unique_ptr<ByteSource>> open_warc(std::unique_ptr<ByteSource> file,
                                              const std::string& name, const RecordFields& fields) {
  return std::unique_ptr<ByteSource>(std::make_unique<WarcSource>(std::move(file), name, fields));
}

}  // namespace quintet
