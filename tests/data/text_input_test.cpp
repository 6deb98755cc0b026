// From files to documents: decompression, cutting into blocks, lines, paragraphs and JSON.
#include <gtest/gtest.h>

#include "base/philox.h"
#include "data/corpus/byte_source.h"
#include "data/corpus/documents.h"
#include "data/corpus/inputs.h"
#include "data/corpus/text_blocks.h"
#include "data/corpus/training_text.h"
#include "data/tokenizer/utf8.h"
#include "tests/support/folders.h"
#include "tests/support/mutate.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

std::string random_text(std::size_t size, std::uint64_t seed, std::uint32_t long_line = 60) {
  PhiloxSequence random(seed, 1);
  std::string text;
  while (text.size() < size) {
    const std::uint32_t longest = random.below(50) == 0 ? long_line : 60;
    text.append(random.below(longest), static_cast<char>('a' + random.below(26)));
    text += random.below(5) == 0 ? "\n\n" : "\n";
  }
  return text;
}

Result<std::string> read_all(const Path& path, std::size_t chunk = 1000) {
  QT_ASSIGN(const auto source, ByteSource::open(path));
  std::string text, part(chunk, '\0');
  for (;;) {
    QT_ASSIGN(const std::size_t got, source->read(part));
    text.append(part, 0, got);
    if (got < part.size()) break;
  }
  EXPECT_EQ(source->consumed(), std::filesystem::file_size(path));
  return text;
}

TEST(ByteSource, DecompressesByName) {
  const TemporaryFolder folder;
  const std::string text = random_text(1 << 20, 1);
  put_file(folder.path() / "a.txt", text);
  put_file(folder.path() / "a.txt.gz", gzip(text));
  put_file(folder.path() / "a.txt.zst", zstd(text));
  for (const char* name : {"a.txt", "a.txt.gz", "a.txt.zst"}) {
    for (const std::size_t chunk : {std::size_t{17}, std::size_t{1} << 16, std::size_t{1} << 21}) {
      EXPECT_EQ(read_all(folder.path() / name, chunk).value(), text) << name;
    }
    // Skipping is reading.
    const auto source = ByteSource::open(folder.path() / name).value();
    ASSERT_TRUE(source->skip(123456).ok());
    std::string rest(text.size(), '\0');
    const std::size_t got = source->read(rest).value();
    EXPECT_EQ(rest.substr(0, got), text.substr(123456)) << name;
  }
}

TEST(ByteSource, ReadsSeveralStreamsInOneFile) {
  const TemporaryFolder folder;
  put_file(folder.path() / "a.gz", gzip("one ") + gzip("") + gzip("two"));
  put_file(folder.path() / "a.zst", zstd("one ") + zstd("") + zstd("two"));
  EXPECT_EQ(read_all(folder.path() / "a.gz").value(), "one two");
  EXPECT_EQ(read_all(folder.path() / "a.zst").value(), "one two");
}

TEST(ByteSource, ATruncatedFileIsAnErrorWhereverItEnds) {
  const TemporaryFolder folder;
  const std::string text = random_text(3000, 2);
  for (const auto& [name, bytes] :
       {std::pair("a.gz", gzip(text)), std::pair("a.zst", zstd(text))}) {
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      put_file(folder.path() / name, bytes.substr(0, size));
      const auto result = read_all(folder.path() / name);
      ASSERT_FALSE(result.ok()) << name << " cut to " << size << " of " << bytes.size();
      EXPECT_EQ(result.error().code, ErrorCode::kBadInput);
      EXPECT_NE(result.error().message.find(name), std::string::npos);
    }
  }
}

TEST(ByteSource, DamageIsAnErrorOrHarmless) {
  const TemporaryFolder folder;
  const std::string text = random_text(3000, 2);
  PhiloxSequence random(3, 3);
  for (int i = 0; i < 400; ++i) {
    const bool gz = i % 2 == 0;
    const Path path = folder.path() / (gz ? "a.gz" : "a.zst");
    put_file(path, mutate(gz ? gzip(text) : zstd(text), random));
    (void)read_all(path);  // no crash, no endless loop; the sanitizers watch
  }
}

Result<std::vector<InputFile>> found(const std::vector<std::string>& names,
                                     const LanguageRule& rule, bool paragraphs) {
  InputOptions options;
  options.names = names;
  options.languages = rule;
  options.paragraphs = paragraphs;
  QT_ASSIGN(FoundInputs inputs, find_inputs(options));
  return inputs.files;
}

std::vector<InputFile> make_inputs(const Path& folder, bool paragraphs) {
  return found({folder.string()}, {}, paragraphs).value();
}

std::vector<std::uint32_t> all_of(const std::vector<InputFile>& files) {
  std::vector<std::uint32_t> indices(files.size());
  for (std::uint32_t i = 0; i < indices.size(); ++i) indices[i] = i;
  return indices;
}

TEST(TextBlocks, CutWholeLinesAndLoseNothing) {
  for (const auto& [paragraphs, long_line] :
       {std::pair(false, 60u), std::pair(true, 60u), std::pair(false, 200000u),
        std::pair(true, 200000u)}) {
    const TemporaryFolder folder;
    const std::string a = random_text(1000000, 4, long_line), b = "no line break at the end",
                      d = random_text(70000, 5);
    put_file(folder.path() / "a.txt", a);
    put_file(folder.path() / "b.txt", b);
    put_file(folder.path() / "c.txt", "");
    put_file(folder.path() / "d.txt.gz", gzip(d));
    const auto files = make_inputs(folder.path(), paragraphs);
    TextBlocks blocks(files, all_of(files), 100000);
    std::string joined;
    std::uint64_t file_bytes = 0;
    TextBlock block;
    std::vector<TextPosition> positions = {blocks.position()};
    std::vector<std::string> texts;
    for (;;) {
      ASSERT_TRUE(blocks.next(block).ok());
      if (block.text.empty()) break;
      texts.emplace_back(block.text.data(), block.text.size());
      joined += texts.back();
      file_bytes += block.file_bytes;
      positions.push_back(blocks.position());
      std::size_t end = 0;
      for (const TextBlock::Part& part : block.parts) {
        EXPECT_EQ(part.begin, end);
        end = part.end;
        const std::string text(block.text.data() + part.begin, part.end - part.begin);
        const std::string& file = part.file == 0 ? a : part.file == 1 ? b : d;
        const std::size_t at = file.find(text);
        ASSERT_NE(at, std::string::npos);
        EXPECT_EQ(
            std::count(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1,
            part.first_line);
        // Between two blocks lies the end of a document.
        if (at + text.size() < file.size()) {
          EXPECT_TRUE(text.ends_with(paragraphs ? "\n\n" : "\n"));
        }
      }
    }
    EXPECT_TRUE(joined == a + b + d);
    std::uint64_t expected = 0;
    for (const InputFile& file : files) expected += file.bytes;
    EXPECT_EQ(file_bytes, expected);
    // From any position on, the same blocks.
    for (std::size_t i = 0; i < positions.size(); ++i) {
      TextBlocks again(files, all_of(files), 100000);
      ASSERT_TRUE(again.seek(positions[i]).ok());
      ASSERT_TRUE(again.next(block).ok());
      EXPECT_TRUE(std::string(block.text.data(), block.text.size()) ==
                  (i < texts.size() ? texts[i] : ""))
          << "block " << i;
    }
  }
}

TEST(TextBlocks, PassOverLinesThatAreTooLong) {
  const TemporaryFolder folder;
  const std::string huge(kMaxDocumentBytes + 300000, 'x');
  put_file(folder.path() / "a.txt", "first\n" + huge + "\nsecond\n" + huge + "\n" + huge);
  const auto files = make_inputs(folder.path(), false);
  TextBlocks blocks(files, {0}, 50000);
  TextBlock block;
  std::vector<std::pair<std::string, std::int64_t>> lines;
  DocumentReader reader(files, {});
  BlockNotes notes;
  for (;;) {
    ASSERT_TRUE(blocks.next(block).ok());
    if (block.text.empty() && block.too_long.empty()) break;
    ASSERT_LE(block.text.size(), kMaxDocumentBytes + (1 << 20));
    ASSERT_TRUE(reader
                    .read(block, notes,
                          [&](const Document& document) -> Status {
                            lines.emplace_back(document.text, document.line);
                            return {};
                          })
                    .ok());
  }
  ASSERT_EQ(notes.too_long.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(notes.too_long[i].line, std::vector<std::int64_t>({2, 4, 5})[i]);
    EXPECT_EQ(notes.too_long[i].reason, "longer than 8 MiB");
  }
  EXPECT_EQ(lines,
            (std::vector<std::pair<std::string, std::int64_t>>{{"first", 1}, {"second", 3}}));
}

// The boundary after a paragraph that is too long may lie across the places up to which was read.
TEST(TextBlocks, WhatComesAfterALongParagraphIsKept) {
  const TemporaryFolder folder;
  constexpr std::size_t kCut = kMaxDocumentBytes + (64 << 10);  // where the first reading ends
  for (const std::string& boundary : {std::string("\n\n"), std::string("\n\r\n")}) {
    for (std::size_t before = 0; before < boundary.size(); ++before) {
      put_file(folder.path() / "a.txt",
               std::string(kCut - before, 'x') + boundary + "second\n\nthird\n");
      const auto files = make_inputs(folder.path(), true);
      TextBlocks blocks(files, {0}, kTextBlockBytes);
      TextBlock block;
      std::string text;
      std::size_t too_long = 0;
      do {
        ASSERT_TRUE(blocks.next(block).ok());
        text.append(block.text.data(), block.text.size());
        too_long += block.too_long.size();
      } while (!block.text.empty() || !block.too_long.empty());
      EXPECT_TRUE(text == "second\n\nthird\n") << before;
      EXPECT_EQ(too_long, 1u) << before;
    }
  }
}

// The documents of one file, as "text@line", bad lines as "!reason@line".
std::vector<std::string> documents_of(const std::string& name, const std::string& text,
                                      const DocumentOptions& options = {},
                                      bool paragraphs = false) {
  const TemporaryFolder folder;
  put_file(folder.path() / name, text);
  const auto files = found({(folder.path() / name).string()},
                           options.language_field.empty()
                               ? LanguageRule{}
                               : LanguageRule{LanguageRule::Kind::kField, options.language_field},
                           paragraphs)
                         .value();
  TextBlocks blocks(files, {0}, 1 << 16);
  DocumentReader reader(files, options);
  std::vector<std::string> found;
  TextBlock block;
  for (;;) {
    BlockNotes notes;
    EXPECT_TRUE(blocks.next(block).ok());
    if (block.text.empty()) break;
    EXPECT_TRUE(reader
                    .read(block, notes,
                          [&](const Document& document) -> Status {
                            found.push_back(
                                fmt::format("{}@{}{}", document.text, document.line,
                                            options.language_field.empty()
                                                ? ""
                                                : fmt::format("@{}", document.language)));
                            return {};
                          })
                    .ok());
    for (const BadLine& line : notes.bad) {
      found.push_back(fmt::format("!{}@{}", line.reason, line.line));
    }
    for (const BadLine& line : notes.too_long) {
      found.push_back(fmt::format("~{}@{}", line.reason, line.line));
    }
    for (const auto& [reason, count] : notes.left_out) {
      found.push_back(fmt::format("-{}={}", reason, count));
    }
  }
  return found;
}

using Found = std::vector<std::string>;

TEST(Documents, LinesAndParagraphs) {
  EXPECT_EQ(documents_of("a.txt", "one\n\n two \r\n\r\nthree"),
            (Found{"one@1", " two @3", "three@5"}));
  EXPECT_EQ(documents_of("a.txt", "one\nmore\n\n\ntwo\r\n\r\nthree\n", {}, true),
            (Found{"one\nmore@1", "two@5", "three@7"}));
  DocumentOptions clean;
  clean.normalize_spaces = true;
  EXPECT_EQ(documents_of("a.txt", "  one\t two\x01 \n", clean), (Found{"one two@1"}));
}

TEST(Documents, JsonLines) {
  EXPECT_EQ(documents_of("a.jsonl",
                         "{\"text\": \"caf\\u00e9 \\ud83d\\ude00\\n\", \"n\": {\"text\": 1}}\n"
                         "{\"id\": 7, \"text\": \"\"}\n\n"
                         "  {\"text\":\"b\"}  \n"),
            (Found{"caf\u00e9 \U0001F600\n@1", "@2", "b@4"}));
  DocumentOptions options;
  options.text_field = "body";
  options.language_field = "lang";
  EXPECT_EQ(
      documents_of("a.json", "{\"lang\":\"de\",\"body\":\"x\"}\n{\"body\":\"y\",\"lang\":\"fr\"}\n",
                   options),
      (Found{"x@1@de", "y@2@fr"}));
}

TEST(Documents, BadJsonLinesAreNamed) {
  const auto reason = [](const std::string& line, const DocumentOptions& options = {}) {
    const Found found = documents_of("a.jsonl", line + "\n", options);
    return found.size() == 1 ? found[0] : std::string();
  };
  for (const char* line :
       {"{", "nonsense", "[1]", "\"text\"", "{\"text\": \"a\"", "{\"text\": \"a\"} {}",
        "{\"text\": \"a\", }", "{\"text\" \"a\"}", "{\"text\": \"\\ud800\"}",
        "{\"text\": \"\xff\"}", "{\"text\": \"a\tb\"}", "{\"a\": [1, 2, \"text\": \"b\"}"}) {
    EXPECT_TRUE(reason(line).starts_with("!not valid JSON: ")) << line << " gives " << reason(line);
  }
  EXPECT_EQ(reason("{\"txt\": \"a\"}"), "!no field \"text\"@1");
  EXPECT_EQ(reason("{\"text\": null}"), "!field \"text\" is no string@1");
  EXPECT_EQ(reason("{\"text\": 5}"), "!field \"text\" is no string@1");
  DocumentOptions options;
  options.language_field = "lang";
  EXPECT_EQ(reason("{\"text\": \"a\"}", options), "!no field \"lang\"@1");
  EXPECT_TRUE(
      reason("{\"text\": \"a\", \"lang\": \"../x\"}", options).starts_with("!language \"../x\""));
}

// Nobody wrote the JSON that records become.
TEST(Documents, BadTextOfRecordsIsNotCalledJson) {
  const Found found = documents_of("a.csv", "text\ncaf\xe9\nb\n");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0], "b@2");
  // (What the library says of it differs from version to version.)
  EXPECT_TRUE(found[1].starts_with("!not valid text: ")) << found[1];
  EXPECT_TRUE(found[1].ends_with(" is not valid UTF-8@1")) << found[1];
}

TEST(Documents, DamagedJsonNeverHurts) {
  PhiloxSequence random(5, 5);
  const std::string line =
      "{\"id\": 12, \"text\": \"some \\\"quoted\\\" text \\u00e9\", \"meta\": {\"a\": [1, 2.5e3, "
      "true, null]}}";
  std::string text;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = mutate(line, random);
    std::replace(damaged.begin(), damaged.end(), '\n', ' ');
    text += damaged + "\n";
  }
  EXPECT_GT(documents_of("a.jsonl", text).size(), 2000u);
}

// All of a text gets into sentences, however long its lines are and whatever their bytes.
TEST(TrainingText, IsCutBetweenCharacters) {
  const TemporaryFolder folder;
  const auto sentences_of = [&](const std::string& text) {
    put_file(folder.path() / "a.txt", text);
    TrainingTextOptions options;
    options.inputs.names = {(folder.path() / "a.txt").string()};
    return read_training_text(options, {}).value().sentences;
  };
  std::string long_line;
  while (long_line.size() < 3 * kMaxSentenceBytes) long_line += "\u00e9\u4e2d\U0001F600";
  // The latter are no characters, only bytes that go on with one.
  for (const std::string& line : {long_line, std::string(3 << 20, '\x80')}) {
    std::string joined;
    for (const std::string& sentence : sentences_of(line + "\n")) {
      EXPECT_LE(sentence.size(), kMaxSentenceBytes);
      EXPECT_GT(sentence.size() + joined.size(), std::min(joined.size() + 4180, line.size() - 1));
      EXPECT_EQ(is_valid_utf8(sentence), line == long_line);
      joined += sentence;
    }
    EXPECT_TRUE(joined == line);
  }
}

// The library would drop the sentence.
TEST(TrainingText, HasASpaceForTheLibrarysOwnCharacter) {
  const TemporaryFolder folder;
  put_file(folder.path() / "a.txt", "one\u2585two \u2585\u2585\n");
  TrainingTextOptions options;
  options.inputs.names = {(folder.path() / "a.txt").string()};
  EXPECT_EQ(read_training_text(options, {}).value().sentences,
            std::vector<std::string>{"one two   "});
}

TEST(Inputs, AreFoundInOrderWithTheirLanguages) {
  const TemporaryFolder folder;
  for (const char* name :
       {"de/b.txt", "de/a.jsonl.gz", "fr/x.txt.zst", "fr/readme.md", "c4-sw.0001.json.gz"}) {
    put_file(folder.path() / name, "x");
  }
  const auto names = [&](const std::vector<std::string>& inputs, const LanguageRule& rule) {
    const auto files = found(inputs, rule, false);
    Found list;
    if (!files.ok()) return Found{files.error().message};
    for (const InputFile& file : files.value()) {
      list.push_back(file.path.lexically_relative(folder.path()).string() + "=" + file.language);
    }
    return list;
  };
  const std::string all = folder.path().string();
  const LanguageRule directory{LanguageRule::Kind::kDirectory, ""};
  EXPECT_EQ(names({all + "/de", all + "/fr", all + "/de/b.txt"}, directory),
            (Found{"de/a.jsonl.gz=de", "de/b.txt=de", "fr/x.txt.zst=fr"}));
  EXPECT_EQ(names({all + "/*/*.txt"}, directory), (Found{"de/b.txt=de"}));
  EXPECT_EQ(names({all + "/c4-*"}, LanguageRule::parse("file:c4-{}.*.json.gz").value()),
            (Found{"c4-sw.0001.json.gz=sw"}));
  EXPECT_EQ(names({all + "/de/b.txt"}, LanguageRule::fixed("und").value()),
            (Found{"de/b.txt=und"}));
  EXPECT_NE(names({all + "/de/b.txt"}, LanguageRule::parse("file:c4-{}").value())[0].find(
                "does not match"),
            std::string::npos);
  EXPECT_NE(names({all + "/nothing*"}, directory)[0].find("no such file"), std::string::npos);
  EXPECT_NE(names({all + "/fr/readme.md"}, directory)[0].find("unknown kind"), std::string::npos);
  EXPECT_NE(
      names({all + "/de/b.txt"}, LanguageRule::parse("field:lang").value())[0].find("JSON lines"),
      std::string::npos);
  EXPECT_FALSE(LanguageRule::parse("file:no-place").ok());
  EXPECT_FALSE(LanguageRule::parse("folder").ok());
  EXPECT_FALSE(LanguageRule::fixed("no/way").ok());
}

}  // namespace
}  // namespace quintet
