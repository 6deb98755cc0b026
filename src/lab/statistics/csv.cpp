#include "lab/statistics/csv.h"

#include <algorithm>

#include "base/text.h"
#include "data/tokenizer/utf8.h"

namespace quintet {
namespace {

class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {}

  bool at_end() const { return at_ >= text_.size(); }

  // One record, which quoted fields may carry over several lines.
  Result<CsvTable::Row> record() {
    CsvTable::Row row;
    row.line = line_;
    while (true) {
      std::string field;
      if (!at_end() && text_[at_] == '"') {
        QT_TRY(quoted(field));
      } else {
        QT_TRY(plain(field));
      }
      row.fields.push_back(std::move(field));
      if (at_end()) return row;
      if (text_[at_] == ',') {
        ++at_;
        continue;
      }
      end_line();
      return row;
    }
  }

 private:
  Status plain(std::string& field) {
    for (; !at_end(); ++at_) {
      const char c = text_[at_];
      if (c == ',' || c == '\n') break;
      if (c == '\r') {
        if (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') {
          return bad_input("{}:{}: a carriage return in the middle of a line", origin_, line_);
        }
        break;
      }
      if (c == '\0') return bad_input("{}:{}: a zero byte: not a text file", origin_, line_);
      if (c == '"') {
        return bad_input(
            "{}:{}: a quote inside a field that does not begin with one; write \"\" inside quotes",
            origin_, line_);
      }
      field += c;
    }
    return {};
  }

  Status quoted(std::string& field) {
    const std::size_t began = line_;
    for (++at_; !at_end(); ++at_) {
      const char c = text_[at_];
      if (c == '\0') return bad_input("{}:{}: a zero byte: not a text file", origin_, line_);
      if (c == '\n') ++line_;
      if (c != '"') {
        field += c;
        continue;
      }
      ++at_;
      if (!at_end() && text_[at_] == '"') {
        field += '"';
        continue;
      }
      const bool ends = at_end() || text_[at_] == ',' || text_[at_] == '\n' ||
                        text_.substr(at_, 2) == "\r\n" || text_.substr(at_) == "\r";
      if (ends) return {};
      return bad_input("{}:{}: after a closing quote there must be a comma or the end of the line",
                       origin_, line_);
    }
    return bad_input("{}:{}: a quoted field begins here and never ends", origin_, began);
  }

  void end_line() {
    if (!at_end() && text_[at_] == '\r') ++at_;
    if (!at_end() && text_[at_] == '\n') ++at_;
    ++line_;
  }

  std::string_view text_;
  const std::string& origin_;
  std::size_t at_ = 0, line_ = 1;
};

Status check_utf8(std::string_view text, const std::string& origin) {
  std::size_t line = 1;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const Utf8Char c = decode_utf8(at, end);
    if (!c.valid) {
      return bad_input("{}:{}: not UTF-8 (byte 0x{:02x}); save the file as UTF-8", origin, line,
                       static_cast<unsigned char>(*at));
    }
    line += c.code == '\n';
    at += c.length;
  }
  return {};
}

bool is_empty(const CsvTable::Row& row) {
  return row.fields.size() == 1 && row.fields[0].empty();
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

Status check_names(const std::vector<std::string>& names, std::size_t line,
                   const std::string& origin) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) {
      return bad_input("{}:{}: column {} has no name; the first line must name the columns", origin,
                       line, i + 1);
    }
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i)) {
      return bad_input("{}:{}: two columns are named \"{}\"", origin, line, names[i]);
    }
  }
  return {};
}

}  // namespace

Result<std::size_t> CsvTable::column(const std::string& name, const std::string& origin) const {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  const std::string meant = nearest(name, names);
  return usage_error("{}: there is no column \"{}\"{}; there are {}", origin, name,
                     meant.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", meant),
                     join(names, ", "));
}

Result<CsvTable> parse_csv(std::string_view text, const std::string& origin) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    return bad_input("{}: is UTF-16; save it as UTF-8", origin);
  }
  QT_TRY(check_utf8(text, origin));
  CsvReader reader(text, origin);
  CsvTable table;
  bool named = false;
  while (!reader.at_end()) {
    QT_ASSIGN(CsvTable::Row row, reader.record());
    if (is_empty(row)) continue;
    if (!named) {
      for (const std::string& name : row.fields) table.names.push_back(trimmed(name));
      QT_TRY(check_names(table.names, row.line, origin));
      table.line = row.line;
      named = true;
      continue;
    }
    if (row.fields.size() != table.names.size()) {
      return bad_input("{}:{}: {} fields where the first line names {} columns", origin, row.line,
                       row.fields.size(), table.names.size());
    }
    table.rows.push_back(std::move(row));
  }
  if (!named) return bad_input("{}: is empty; the first line must name the columns", origin);
  if (table.rows.empty()) return bad_input("{}: names columns but has no rows", origin);
  return table;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

bool is_missing(std::string_view field) {
  const std::size_t begin = field.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return true;
  field = field.substr(begin, field.find_last_not_of(" \t") - begin + 1);
  return field == "NA" || field == "NaN" || field == "nan" || field == "null" || field == "-";
}

}  // namespace quintet
