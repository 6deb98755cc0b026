// What is found in folders, what is not taken and why; and the formats whose records are not lines.
#include "data/corpus/inputs.h"

#include <algorithm>

#include <bzlib.h>
#include <gtest/gtest.h>
#include <lzma.h>

#include "data/corpus/record_source.h"
#include "tests/data/packed_text.h"
#include "tests/support/folders.h"
#include "tests/support/mutate.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

struct Listing {
  std::vector<std::string> taken;
  std::map<std::string, std::string> not_taken;
};

Listing list(const Path& folder, InputOptions options = {}) {
  if (options.names.empty()) options.names = {folder.string()};
  const auto found = find_inputs(options);
  if (!found.ok()) return {{found.error().message}, {}};
  Listing listing;
  for (const InputFile& file : found.value().files) {
    listing.taken.push_back(file.path.lexically_relative(folder).string());
  }
  for (const NotTaken& file : found.value().not_taken) {
    listing.not_taken[file.path.lexically_relative(folder).string()] = file.reason;
  }
  return listing;
}

TEST(FindInputs, NamesWhatItDoesNotTake) {
  const TemporaryFolder folder;
  const Path& at = folder.path();
  put_file(at / "a.txt", "text\n");
  put_file(at / "B.TXT", "text\n");
  put_file(at / "c.md", "text\n");
  put_file(at / "d.txt", gzip("text\n"));
  put_file(at / "e.txt", std::string("\xff\xfet\0e\0x\0t\0", 10));
  put_file(at / "f.txt", std::string("t\0e\0x\0t\0\n\0", 10));
  put_file(at / "g.json", " [{\"text\": \"a\"}]\n");
  put_file(at / "h.txt.xz", xz("text\n"));
  put_file(at / "i.txt.bz2", bzip2("text\n"));
  put_file(at / "j.csv", "text\na\n");
  put_file(at / "k.parquet", "nothing of the kind");
  put_file(at / "l.txt.gz", gzip(gzip("text\n")));
  put_file(at / "n.csv", "");
  put_file(at / "n.tsv.gz", gzip(""));
  std::filesystem::create_symlink("nowhere.txt", at / "dangling.txt");
  std::filesystem::create_symlink("self.txt", at / "self.txt");
  std::filesystem::create_symlink("a.txt", at / "z-again.txt");
  std::filesystem::create_hard_link(at / "a.txt", at / "z-linked.txt");
  put_file(at / "real/inside.txt", "text\n");
  std::filesystem::create_directory_symlink(at / "real", at / "m-link");
  std::filesystem::create_directory_symlink("..", at / "real/up");
  const Listing listing = list(at);
  EXPECT_EQ(listing.taken, (std::vector<std::string>{"B.TXT", "a.txt", "h.txt.xz", "i.txt.bz2",
                                                     "j.csv", "m-link/inside.txt"}));
  const std::map<std::string, std::string> reasons = {{"c.md", "unknown kind"},
                                                      {"d.txt", "contents are gzip"},
                                                      {"e.txt", "UTF-16"},
                                                      {"f.txt", "UTF-16"},
                                                      {"g.json", "JSON array"},
                                                      {"k.parquet", "not a Parquet file"},
                                                      {"l.txt.gz", "contents are gzip"},
                                                      {"n.csv", "should name the columns"},
                                                      {"n.tsv.gz", "should name the columns"},
                                                      {"dangling.txt", "leads nowhere"},
                                                      {"self.txt", "leads to itself"},
                                                      {"z-again.txt", "the same file as"},
                                                      {"z-linked.txt", "the same file as"},
                                                      {"real", "under another name"},
                                                      {"m-link/up", "under another name"}};
  for (const auto& [name, reason] : reasons) {
    ASSERT_TRUE(listing.not_taken.contains(name)) << name;
    EXPECT_NE(listing.not_taken.at(name).find(reason), std::string::npos)
        << name << ": " << listing.not_taken.at(name);
  }
  EXPECT_TRUE(listing.not_taken.at("k.parquet").starts_with("not a Parquet file"))
      << "the path is said beside the reason: " << listing.not_taken.at("k.parquet");
  EXPECT_EQ(listing.not_taken.size(), reasons.size());
  // Named by itself, what cannot be read is an error.
  for (const char* name : {"c.md", "d.txt", "e.txt", "g.json", "k.parquet", "n.csv"}) {
    InputOptions options;
    options.names = {(at / name).string()};
    const auto found = find_inputs(options);
    ASSERT_FALSE(found.ok()) << name;
    EXPECT_EQ(found.error().code, ErrorCode::kBadInput);
    EXPECT_NE(found.error().message.find(name), std::string::npos);
  }
}

TEST(FindInputs, NothingTakenIsAnError) {
  const TemporaryFolder folder;
  put_file(folder.path() / "c.md", "text\n");
  put_file(folder.path() / "e.txt", "\xff\xfe");
  InputOptions options;
  options.names = {folder.path().string()};
  const auto found = find_inputs(options);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kBadInput);
  EXPECT_NE(found.error().message.find("c.md: of an unknown kind"), std::string::npos)
      << found.error().message;
}

// A corpus built inside the folder of its inputs is none of them, while it is built and after.
TEST(FindInputs, TheOutputIsNoInput) {
  const TemporaryFolder folder;
  put_file(folder.path() / "a.txt", "text\n");
  put_file(folder.path() / "out/build.json", "{\"text\": \"no\"}\n");
  InputOptions options;
  options.names = {folder.path().string()};
  options.output = folder.path() / "out";
  const Listing listing = list(folder.path(), options);
  EXPECT_EQ(listing.taken, (std::vector<std::string>{"a.txt"}));
  EXPECT_TRUE(listing.not_taken.empty());
}

// All lines that a file is read as.
Result<std::string> lines_of(const Path& folder, const std::string& name, const std::string& text,
                             const std::string& language = "") {
  put_file(folder / name, text);
  InputOptions options;
  options.names = {(folder / name).string()};
  if (!language.empty()) options.languages = {LanguageRule::Kind::kField, language};
  QT_ASSIGN(const FoundInputs found, find_inputs(options));
  QT_ASSIGN(const auto source, open_input(found.files.front()));
  std::string all, part(37, '\0');
  for (;;) {
    QT_ASSIGN(const std::size_t got, source->read(part));
    all.append(part, 0, got);
    if (got < part.size()) return all;
  }
}

TEST(ByteSource, ReadsXzAndBzip2) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 20000; ++i) text += fmt::format("line {}\n", i * 7919);
  for (const auto& [name, packed] : {std::pair("a.txt.xz", xz(text) + xz("more\n")),
                                     std::pair("a.txt.bz2", bzip2(text) + bzip2("more\n"))}) {
    EXPECT_TRUE(lines_of(folder.path(), name, packed).value() == text + "more\n") << name;
    // Skipping is reading.
    const auto source = ByteSource::open(folder.path() / name).value();
    ASSERT_TRUE(source->skip(100000).ok());
    std::string some(10, '\0');
    ASSERT_EQ(source->read(some).value(), 10u);
    EXPECT_EQ(some, text.substr(100000, 10));
  }
  PhiloxSequence random(3, 8);
  for (const auto& [name, packed] :
       {std::pair("c.txt.xz", xz("some text\n")), std::pair("c.txt.bz2", bzip2("some text\n"))}) {
    for (std::size_t size = 0; size < packed.size(); ++size) {
      const auto lines = lines_of(folder.path(), name, packed.substr(0, size));
      ASSERT_FALSE(lines.ok()) << name << " cut to " << size;
      EXPECT_NE(lines.error().message.find(name), std::string::npos);
    }
    for (int i = 0; i < 200; ++i) {
      (void)lines_of(folder.path(), name, mutate(packed, random));  // no crash, no endless loop
    }
  }
}

TEST(Records, CommaSeparatedValues) {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text, const std::string& language = "") {
    const auto lines = lines_of(folder.path(), "a.csv", text, language);
    return lines.ok() ? lines.value() : "error: " + lines.error().message;
  };
  EXPECT_EQ(
      read("id,text,lang\r\n1,one,de\r\n2,\"two, with \"\"quotes\"\"\nand a line\",fr\r\n", "lang"),
      "{\"text\":\"one\",\"lang\":\"de\"}\n"
      "{\"text\":\"two, with \\\"quotes\\\"\\nand a line\",\"lang\":\"fr\"}\n");
  EXPECT_EQ(read("\xEF\xBB\xBFtext,n\nno break at the end,1"),
            "{\"text\":\"no break at the end\"}\n");
  EXPECT_EQ(read("\xEF\xBB\xBF\"text\",\"n\"\na,1\n"), "{\"text\":\"a\"}\n");
  // A blank line is nothing, and still a line.
  EXPECT_EQ(read("text,n\n\na,1\n"), "\n{\"text\":\"a\"}\n");
  EXPECT_NE(read("text,n\na\n").find("1 fields, and the first line names 2"), std::string::npos);
  EXPECT_NE(read("text,n\n\"open,1\nmore,2\n").find("a quote is not closed"), std::string::npos);
  EXPECT_NE(read("a,b\n1,2\n").find("no column \"text\"; there are a, b"), std::string::npos);
  EXPECT_NE(read("").find("empty"), std::string::npos);
  EXPECT_NE(read("text\n\"" + std::string((8 << 20) + 5, 'x') + "\"\nshort\n").find("too long"),
            std::string::npos);
}

TEST(Records, TabSeparatedValues) {
  const TemporaryFolder folder;
  EXPECT_EQ(
      lines_of(folder.path(), "a.tsv.gz", gzip("lang\ttext\nde\tsaid \"hello\", twice\n")).value(),
      "{\"text\":\"said \\\"hello\\\", twice\"}\n");
}

TEST(Records, WebArchives) {
  const TemporaryFolder folder;
  const auto record = [](const std::string& type, const std::string& extra,
                         const std::string& text) {
    return fmt::format("WARC/1.0\r\nWARC-Type: {}\r\n{}Content-Length: {}\r\n\r\n{}\r\n\r\n", type,
                       extra, text.size(), text);
  };
  const std::string archive = record("warcinfo", "", "software: x\r\n") +
                              record("conversion", "WARC-Identified-Content-Language: deu,eng\r\n",
                                     "first\nWARC/1.0\r\n\r\nstill the first") +
                              record("response", "", "HTTP/1.1 200 OK\r\n\r\n<html>") +
                              record("conversion", "", "second");
  const auto lines = lines_of(folder.path(), "a.warc.wet.gz", gzip(archive), "lang");
  ASSERT_TRUE(lines.ok()) << lines.error().message;
  EXPECT_EQ(lines.value(),
            "{\"\\u0001left out\":\"WARC record of type warcinfo\"}\n"
            "{\"text\":\"first\\nWARC/1.0\\r\\n\\r\\nstill the first\",\"lang\":\"deu\"}\n"
            "{\"\\u0001left out\":\"WARC record of type response\"}\n"
            "{\"text\":\"second\",\"lang\":\"\"}\n");
  for (const std::size_t size : {std::size_t{5}, std::size_t{60}, archive.size() - 8}) {
    const auto cut = lines_of(folder.path(), "a.warc", archive.substr(0, size));
    ASSERT_FALSE(cut.ok()) << size;
    EXPECT_EQ(cut.error().code, ErrorCode::kBadInput);
  }
}

}  // namespace
}  // namespace quintet
