// The files that a corpus is built from: found by name, with what is in them and the language of
// each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "data/corpus/byte_source.h"
#include "data/corpus/record_source.h"

namespace quintet {

enum class TextFormat : std::uint8_t {
  kLines,       // .txt: every line that is not empty is a document
  kParagraphs,  // .txt: documents are separated by empty lines
  kJsonLines,   // .jsonl, .json, .ndjson: every line is an object with the text in a field
};

// How a file holds its text. Records of all but the first are read as JSON lines.
enum class InputKind : std::uint8_t { kText, kCsv, kTsv, kWarc, kParquet };

// A file; or a row group of a Parquet file, so that several threads can read it.
struct InputFile {
  Path path;
  std::uint64_t bytes = 0;    // as it lies on the disk
  std::int64_t modified = 0;  // nanoseconds; together with the size tells whether it has changed
  TextFormat format = TextFormat::kLines;
  InputKind kind = InputKind::kText;
  std::uint32_t row_group = 0;
  bool once = false;     // standard input or a named pipe: what was read does not come again
  RecordFields fields;   // of records
  std::string language;  // empty: the documents say

  // How people call it.
  std::string name() const;
};

// How languages are found; one of them.
struct LanguageRule {
  enum class Kind : std::uint8_t { kFixed, kDirectory, kFileName, kField };
  Kind kind = Kind::kFixed;
  std::string argument = "und";  // the language, a pattern with {} in it, or a field

  // "directory", "file:PATTERN" or "field:NAME"; or, through `fixed`, one for all.
  static Result<LanguageRule> parse(const std::string& text);
  static Result<LanguageRule> fixed(const std::string& language);
};

// A language's name is part of file names: letters, digits, '-' and '_', at most 32.
bool is_language_name(const std::string& name);

struct InputOptions {
  std::vector<std::string> names;  // files, folders, patterns; "-": standard input
  LanguageRule languages;
  std::string text_field = "text";
  bool paragraphs = false;           // how .txt files are read
  std::string stdin_format = "txt";  // what comes from standard input: an ending from below
  Path output;                       // a folder that is no input, wherever it lies; empty: none
};

// Something that was found and is not read, and why.
struct NotTaken {
  Path path;
  std::string reason;
};

struct FoundInputs {
  std::vector<InputFile> files;     // in a fixed order
  std::vector<NotTaken> not_taken;  // of folders and patterns
};

// Expands names, globs and folders to files. Folders are searched to the bottom, links in them
// followed; the same file under several names is read once. Whatever there is and is not read is in
// `not_taken`: files of an unknown kind, whose contents are of another kind than their names say,
// links that lead nowhere. Fails when a file named by itself cannot be read, or nothing can.
Result<FoundInputs> find_inputs(const InputOptions& options);

// The text of an input: lines, or records as JSON lines.
Result<std::unique_ptr<ByteSource>> open_input(const InputFile& file);

// The endings of files that can be read, for help and errors.
std::string known_endings();

}  // namespace quintet
