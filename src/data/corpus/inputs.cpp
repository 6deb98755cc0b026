#include "data/corpus/inputs.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>

#include <glob.h>
#include <sys/stat.h>

#include "data/corpus/parquet_source.h"

namespace quintet {
namespace {

bool is_language_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

struct Kind {
  InputKind kind;
  TextFormat format;
};

// What an ending tells.
std::optional<Kind> kind_of_ending(const std::string& ending, bool paragraphs) {
  if (ending == ".txt") {
    return Kind{InputKind::kText, paragraphs ? TextFormat::kParagraphs : TextFormat::kLines};
  }
  if (ending == ".jsonl" || ending == ".json" || ending == ".ndjson") {
    return Kind{InputKind::kText, TextFormat::kJsonLines};
  }
  if (ending == ".csv") return Kind{InputKind::kCsv, TextFormat::kJsonLines};
  if (ending == ".tsv") return Kind{InputKind::kTsv, TextFormat::kJsonLines};
  if (ending == ".warc" || ending == ".wet") return Kind{InputKind::kWarc, TextFormat::kJsonLines};
  if (ending == ".parquet") return Kind{InputKind::kParquet, TextFormat::kJsonLines};
  return std::nullopt;
}

// What a file's name tells, its compression aside.
std::optional<Kind> kind_of(const Path& path, bool paragraphs) {
  Path name = path.filename();
  const bool compressed = !compression_of(name).empty();
  if (compressed) name.replace_extension();
  auto kind = kind_of_ending(lower(name.extension().string()), paragraphs);
  if (kind && kind->kind == InputKind::kParquet && compressed) return std::nullopt;
  return kind;
}

// Why a file's contents are not what its name says; empty: nothing is wrong as far as one can see.
// Files that cannot be read are left to those who read them.
std::string wrong_contents(const Path& path, const Kind& kind) {
  if (kind.kind == InputKind::kParquet) return "";
  const auto opened = ByteSource::open(path);
  if (!opened.ok()) return "";
  std::string start(4096, '\0');
  const auto got = opened.value()->read(start);
  if (!got.ok()) return "";
  start.resize(got.value());
  if (start.empty() && (kind.kind == InputKind::kCsv || kind.kind == InputKind::kTsv)) {
    return "empty; its first line should name the columns";
  }
  const auto begins = [&](std::string_view magic) { return start.starts_with(magic); };
  using namespace std::string_view_literals;
  for (const auto& [magic, name] :
       {std::pair("\x1f\x8b"sv, "gzip"), std::pair("\x28\xb5\x2f\xfd"sv, "zstd"),
        std::pair("\xfd"
                  "7zXZ\0"sv,
                  "xz"),
        std::pair("BZh"sv, "bzip2"), std::pair("PAR1"sv, "Parquet"), std::pair("PK\3\4"sv, "zip"),
        std::pair("\xff\xfe"sv, "UTF-16"), std::pair("\xfe\xff"sv, "UTF-16")}) {
    // Text may begin with BZh, but hardly with a digit and the mark of a block after it.
    if (name == "bzip2"sv && (start.size() < 10 || start.substr(4, 6) != "1AY&SY")) continue;
    if (begins(magic)) return fmt::format("its contents are {}, not text", name);
  }
  const auto zeros = static_cast<std::size_t>(std::count(start.begin(), start.end(), '\0'));
  if (zeros * 10 > start.size()) return "its contents are binary or UTF-16, not UTF-8 text";
  if (kind.kind == InputKind::kText && kind.format == TextFormat::kJsonLines) {
    const std::size_t first = start.find_first_not_of(" \t\r\n");
    const std::size_t second =
        first == std::string::npos ? first : start.find_first_not_of(" \t\r\n", first + 1);
    if (second != std::string::npos && start[first] == '[' && start[second] == '{') {
      return "a JSON array; an object on every line is needed (jq -c '.[]' makes that)";
    }
  }
  return "";
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

// Walks through everything that the names stand for.
class Search {
 public:
  explicit Search(const InputOptions& options) : options_(options) {
    struct stat info {};
    if (!options.output.empty() && ::stat(options.output.c_str(), &info) == 0) {
      folders_.insert({info.st_dev, info.st_ino});  // as if it were read already, unsaid
      output_ = {info.st_dev, info.st_ino};
    }
  }

  Status look_at(const std::string& name) {
    if (name == "-") {
      found_.files.push_back({});
      return {};
    }
    std::error_code failure;
    if (std::filesystem::exists(name, failure)) {
      if (std::filesystem::is_directory(name, failure)) return visit_folder(name, true);
      return visit_file(name, true);
    }
    glob_t matches{};
    const int status = ::glob(name.c_str(), 0, nullptr, &matches);
    std::vector<Path> paths;
    for (std::size_t i = 0; status == 0 && i < matches.gl_pathc; ++i) {
      paths.emplace_back(matches.gl_pathv[i]);
    }
    ::globfree(&matches);
    if (paths.empty()) return bad_input("{}: no such file, folder or pattern that matches", name);
    for (const Path& path : paths) QT_TRY(visit(path));
    return {};
  }

  std::set<Path> paths_;  // sorted, and each once
  FoundInputs found_;

 private:
  using Identity = std::pair<dev_t, ino_t>;

  void leave(const Path& path, std::string reason) {
    found_.not_taken.push_back({path, std::move(reason)});
  }
  Status visit(const Path& path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
      leave(path, errno == ENOENT  ? "a link that leads nowhere"
                  : errno == ELOOP ? "a link that leads to itself"
                                   : std::strerror(errno));
      return {};
    }
    if (S_ISDIR(info.st_mode)) return visit_folder(path, false);
    return visit_file(path, false);
  }
  Status visit_folder(const Path& path, bool named) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
      return io_error("{}: cannot stat: {}", path.string(), std::strerror(errno));
    }
    if (!folders_.insert({info.st_dev, info.st_ino}).second) {
      if (Identity(info.st_dev, info.st_ino) != output_) {
        leave(path, "a folder that was read under another name");
      }
      return {};
    }
    std::error_code failure;
    std::vector<Path> entries;
    for (auto it = std::filesystem::directory_iterator(path, failure);
         !failure && it != std::filesystem::directory_iterator(); it.increment(failure)) {
      entries.push_back(it->path());
    }
    if (failure) {
      if (named) return io_error("{}: cannot list: {}", path.string(), failure.message());
      leave(path, "cannot be listed: " + failure.message());
      return {};
    }
    std::sort(entries.begin(), entries.end());
    for (const Path& entry : entries) QT_TRY(visit(entry));
    return {};
  }
  Status visit_file(const Path& path, bool named) {
    const auto refuse = [&](std::string reason) -> Status {
      if (named) return bad_input("{}: {}", path.string(), reason);
      leave(path, std::move(reason));
      return {};
    };
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) return refuse(std::strerror(errno));
    // Pipes are read where they are named.
    if (!S_ISREG(info.st_mode) && !(named && S_ISFIFO(info.st_mode))) {
      return refuse("not a regular file");
    }
    const auto kind = kind_of(path, options_.paragraphs);
    if (!kind) {
      return refuse(named ? fmt::format("of an unknown kind; expected {}", known_endings())
                          : "of an unknown kind");
    }
    const auto [place, added] = seen_.emplace(Identity(info.st_dev, info.st_ino), path);
    if (!added) {
      if (place->second.lexically_normal() == path.lexically_normal()) return {};
      leave(path, fmt::format("the same file as {}", place->second.string()));
      return {};
    }
    if (S_ISREG(info.st_mode)) {
      if (std::string reason = wrong_contents(path, *kind); !reason.empty()) return refuse(reason);
    }
    paths_.insert(path.lexically_normal());
    return {};
  }

  const InputOptions& options_;
  std::set<Identity> folders_;
  Identity output_{};
  std::map<Identity, Path> seen_;
};

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
          "--language-by {}: a pattern needs {{}} exactly once, in the place of the language, "
          "e.g. "
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

std::string InputFile::name() const {
  if (path == "-") return "standard input";
  return kind == InputKind::kParquet ? fmt::format("{} (row group {})", path.string(), row_group)
                                     : path.string();
}

std::string known_endings() {
  return ".txt, .jsonl, .json, .ndjson, .csv, .tsv, .warc or .wet, each perhaps with .gz, .zst, "
         ".xz "
         "or .bz2 after it, or .parquet";
}

namespace {

// A file as one input, or as many as it has row groups.
Status add_inputs(const InputOptions& options, const Path& path, bool named, FoundInputs& found) {
  InputFile file;
  file.path = path;
  const bool standard = path == "-";
  file.once = standard;
  const auto kind = standard ? kind_of_ending("." + lower(options.stdin_format), options.paragraphs)
                             : kind_of(path, options.paragraphs);
  if (!kind || (standard && kind->kind == InputKind::kParquet)) {
    return usage_error("--stdin-format {}: expected txt, jsonl, csv, tsv or warc",
                       options.stdin_format);
  }
  file.kind = kind->kind;
  file.format = kind->format;
  file.fields.text = options.text_field;
  if (options.languages.kind == LanguageRule::Kind::kField) {
    if (file.format != TextFormat::kJsonLines) {
      return usage_error("{}: --language-by field needs JSON lines, or columns; this is plain text",
                         file.name());
    }
    file.fields.language = options.languages.argument;
  }
  if (!standard) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
      return io_error("{}: cannot stat: {}", path.string(), std::strerror(errno));
    }
    file.bytes = static_cast<std::uint64_t>(info.st_size);
    file.once = S_ISFIFO(info.st_mode);
    file.modified = std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
    QT_ASSIGN(file.language, language_of(path, options.languages));
  } else if (options.languages.kind == LanguageRule::Kind::kFixed) {
    file.language = options.languages.argument;
  } else if (options.languages.kind != LanguageRule::Kind::kField) {
    return usage_error("standard input has no name to tell a language by; use --language");
  }
  if (file.kind != InputKind::kParquet) {
    found.files.push_back(std::move(file));
    return {};
  }
  const auto groups = [&]() -> Status {
    QT_ASSIGN(const ParquetFile parquet, read_parquet_footer(path));
    std::vector<InputFile> inputs;
    for (std::size_t i = 0; i < parquet.groups.size(); ++i) {
      file.row_group = static_cast<std::uint32_t>(i);
      QT_ASSIGN(file.bytes, parquet_group_bytes(parquet, i, file.fields, path.string()));
      inputs.push_back(file);
    }
    if (inputs.empty()) return bad_input("{}: has no rows", path.string());
    found.files.insert(found.files.end(), inputs.begin(), inputs.end());
    return {};
  };
  const Status status = groups();
  if (status.ok() || named || status.error().code != ErrorCode::kBadInput) return status;
  std::string reason = status.error().message;
  if (const std::string name = path.string() + ": "; reason.starts_with(name)) {
    reason.erase(0, name.size());
  }
  found.not_taken.push_back({path, std::move(reason)});
  return {};
}

}  // namespace

Result<FoundInputs> find_inputs(const InputOptions& options) {
  Search search(options);
  for (const std::string& name : options.names) QT_TRY(search.look_at(name));
  FoundInputs found = std::move(search.found_);
  const bool standard = !found.files.empty();
  found.files.clear();
  if (standard) QT_TRY(add_inputs(options, "-", true, found));
  for (const Path& path : search.paths_) {
    const bool named =
        std::any_of(options.names.begin(), options.names.end(),
                    [&](const std::string& name) { return Path(name).lexically_normal() == path; });
    QT_TRY(add_inputs(options, path, named, found));
  }
  if (found.files.empty()) {
    std::string first;
    for (std::size_t i = 0; i < std::min<std::size_t>(found.not_taken.size(), 5); ++i) {
      first += fmt::format("; {}: {}", found.not_taken[i].path.string(), found.not_taken[i].reason);
    }
    return bad_input("{}: nothing in it can be read; expected {}{}", options.names.front(),
                     known_endings(), first);
  }
  return found;
}

Result<std::unique_ptr<ByteSource>> open_input(const InputFile& file) {
  if (file.kind == InputKind::kParquet) {
    return open_parquet_group(file.path, file.row_group, file.fields);
  }
  QT_ASSIGN(std::unique_ptr<ByteSource> source, ByteSource::open(file.path));
  switch (file.kind) {
    case InputKind::kCsv:
      return open_separated(std::move(source), file.name(), ',', file.fields);
    case InputKind::kTsv:
      return open_separated(std::move(source), file.name(), '\t', file.fields);
    case InputKind::kWarc:
      return open_warc(std::move(source), file.name(), file.fields);
    default:
      return source;
  }
}

}  // namespace quintet
