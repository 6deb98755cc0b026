// The files that a corpus is built from: found by name, with what is in them and the language of
// each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace quintet {

enum class TextFormat : std::uint8_t {
  kLines,       // .txt: every line that is not empty is a document
  kParagraphs,  // .txt: documents are separated by empty lines
  kJsonLines,   // .jsonl, .json, .ndjson: every line is an object with the text in a field
};

struct InputFile {
  Path path;
  std::uint64_t bytes = 0;    // as it lies on the disk
  std::int64_t modified = 0;  // nanoseconds; together with the size tells whether it has changed
  TextFormat format = TextFormat::kLines;
  std::string language;  // empty: the documents say
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

// Expands names, globs and folders (these to all files below them that have a known extension) to
// files in a fixed order. Fails when something is missing, empty of files, or of an unknown kind.
// `paragraphs`: how .txt files are read.
Result<std::vector<InputFile>> find_inputs(const std::vector<std::string>& names,
                                           const LanguageRule& languages, bool paragraphs);

}  // namespace quintet
