#include "data/corpus/inputs.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include <glob.h>
#include <sys/stat.h>

namespace quintet {
namespace {

bool is_language_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

// The format that a file's name tells, its compression aside.
std::optional<TextFormat> format_of(const Path& path, bool paragraphs) {
  Path name = path.filename();
  if (name.extension() == ".gz" || name.extension() == ".zst") name.replace_extension();
  const std::string extension = name.extension().string();
  if (extension == ".txt") return paragraphs ? TextFormat::kParagraphs : TextFormat::kLines;
  if (extension == ".jsonl" || extension == ".json" || extension == ".ndjson") {
    return TextFormat::kJsonLines;
  }
  return std::nullopt;
}

// Whether `name` matches a pattern of '*' (anything) and one "{}" (the language, longest first).
bool matches(std::string_view pattern, std::string_view name, std::string& language) {
  if (pattern.empty()) return name.empty();
  if (pattern.starts_with("{}")) {
    std::size_t length = 0;
    while (length < name.size() && is_language_character(name[length])) ++length;
    for (; length > 0; --length) {
      if (!matches(pattern.substr(2), name.substr(length), language)) continue;
      language = name.substr(0, length);
      return true;
    }
    return false;
  }
  if (pattern.front() == '*') {
    for (std::size_t skip = 0; skip <= name.size(); ++skip) {
      if (matches(pattern.substr(1), name.substr(skip), language)) return true;
    }
    return false;
  }
  return !name.empty() && name.front() == pattern.front() &&
         matches(pattern.substr(1), name.substr(1), language);
}

Result<std::string> language_of(const Path& path, const LanguageRule& rule) {
  switch (rule.kind) {
    case LanguageRule::Kind::kFixed:
      return rule.argument;
    case LanguageRule::Kind::kField:
      return std::string();
    case LanguageRule::Kind::kDirectory: {
      std::string name = std::filesystem::absolute(path).parent_path().filename().string();
      if (is_language_name(name)) return name;
      return usage_error(
          "{}: its folder \"{}\" is no language name (letters, digits, - and _, at most 32)",
          path.string(), name);
    }
    case LanguageRule::Kind::kFileName: {
      std::string language;
      if (matches(rule.argument, path.filename().string(), language) &&
          is_language_name(language)) {
        return language;
      }
      return usage_error("{}: its name does not match the pattern \"{}\" of --language-by",
                         path.string(), rule.argument);
    }
  }
  return usage_error("no such rule");
}

// The names that one argument stands for.
Result<std::vector<Path>> expand(const std::string& name, bool paragraphs) {
  namespace fs = std::filesystem;
  std::vector<Path> found;
  std::error_code failure;
  if (fs::is_directory(name, failure)) {
    for (auto it = fs::recursive_directory_iterator(name, failure);
         !failure && it != fs::recursive_directory_iterator(); it.increment(failure)) {
      if (it->is_regular_file() && format_of(it->path(), paragraphs)) found.push_back(it->path());
    }
    if (failure) return io_error("{}: cannot list: {}", name, failure.message());
    if (found.empty()) {
      return bad_input("{}: no .txt or .jsonl file in it, plain, .gz or .zst", name);
    }
    return found;
  }
  if (fs::exists(name, failure)) return std::vector<Path>{name};
  glob_t matches{};
  if (::glob(name.c_str(), 0, nullptr, &matches) == 0) {
    for (std::size_t i = 0; i < matches.gl_pathc; ++i) found.emplace_back(matches.gl_pathv[i]);
  }
  ::globfree(&matches);
  if (found.empty()) return bad_input("{}: no such file, folder or pattern that matches", name);
  return found;
}

}  // namespace

bool is_language_name(const std::string& name) {
  return !name.empty() && name.size() <= 32 &&
         std::all_of(name.begin(), name.end(), is_language_character);
}

Result<LanguageRule> LanguageRule::parse(const std::string& text) {
  if (text == "directory") return LanguageRule{Kind::kDirectory, ""};
  if (text.starts_with("file:")) {
    const std::string pattern = text.substr(5);
    const std::size_t place = pattern.find("{}");
    if (place == std::string::npos || pattern.find("{}", place + 1) != std::string::npos) {
      return usage_error(
          "--language-by {}: a pattern needs {{}} exactly once, where the language stands, e.g. "
          "file:c4-{{}}.*.json.gz",
          text);
    }
    return LanguageRule{Kind::kFileName, pattern};
  }
  if (text.starts_with("field:") && text.size() > 6) {
    return LanguageRule{Kind::kField, text.substr(6)};
  }
  return usage_error("--language-by {}: expected directory, file:PATTERN or field:NAME", text);
}

Result<LanguageRule> LanguageRule::fixed(const std::string& language) {
  if (is_language_name(language)) return LanguageRule{Kind::kFixed, language};
  return usage_error("--language {}: expected letters, digits, - and _, at most 32 of them",
                     language);
}

Result<std::vector<InputFile>> find_inputs(const std::vector<std::string>& names,
                                           const LanguageRule& languages, bool paragraphs) {
  std::set<Path> paths;  // sorted, and each once
  for (const std::string& name : names) {
    QT_ASSIGN(const std::vector<Path> found, expand(name, paragraphs));
    for (const Path& path : found) {
      if (!std::filesystem::is_directory(path)) paths.insert(path.lexically_normal());
    }
  }
  std::vector<InputFile> files;
  for (const Path& path : paths) {
    InputFile file;
    file.path = path;
    const auto format = format_of(path, paragraphs);
    if (!format) {
      return bad_input(
          "{}: of an unknown kind; expected .txt, .jsonl, .json or .ndjson, perhaps with .gz or "
          ".zst after it",
          path.string());
    }
    file.format = *format;
    if (languages.kind == LanguageRule::Kind::kField && *format != TextFormat::kJsonLines) {
      return usage_error("{}: --language-by field needs JSON lines; this is plain text",
                         path.string());
    }
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
      return io_error("{}: cannot stat: {}", path.string(), std::strerror(errno));
    }
    file.bytes = static_cast<std::uint64_t>(info.st_size);
    file.modified = std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
    QT_ASSIGN(file.language, language_of(path, languages));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace quintet
