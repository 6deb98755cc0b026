// Mixtures of good and bad inputs at random: every document is in the corpus, or in a count with a
// reason; and every file is read, or named with one.
#include "data/bench/parquet_writer.h"
#include "tests/data/build_fixture.h"
#include "tests/data/packed_text.h"
#include "tests/support/faulty_store.h"

namespace quintet {
namespace {

using Counts = std::map<std::string, std::int64_t>;

// What goes into a folder, and what must come of it.
struct Mess {
  std::int64_t documents = 0;
  Counts left_out, not_taken;
};

class MessMaker {
 public:
  MessMaker(Path folder, std::uint64_t seed) : folder_(std::move(folder)), random_(seed, 77) {}

  Mess make() {
    std::filesystem::create_directories(folder_);
    const std::uint32_t files = 2 + random_.below(6);
    for (std::uint32_t i = 0; i < files; ++i) add_file(i);
    document_file("one-good.txt", {good()});  // something is taken
    return mess_;
  }

 private:
  bool chance(std::uint32_t of) { return random_.below(of) == 0; }

  // A text that no other document has.
  std::string good() {
    ++mess_.documents;
    return fmt::format("document {} of {} words", ++number_, random_.below(1000));
  }
  std::string text() {
    if (chance(12)) {
      ++mess_.left_out["too short"];
      const auto n = short_++;  // duplicates are counted first: no two are the same
      return {static_cast<char>('a' + n / 26 % 26), static_cast<char>('a' + n % 26)};
    }
    if (chance(12)) {
      ++mess_.left_out["too long"];  // by --max-characters
      return std::string(300, 'y') + fmt::format("{}", ++number_);
    }
    if (chance(12) && !last_.empty()) {
      ++mess_.left_out["duplicate"];
      return last_;
    }
    return last_ = good();
  }
  std::string packed(std::string& name, const std::string& bytes) {
    switch (random_.below(5)) {
      case 0:
        name += ".gz";
        return gzip(bytes);
      case 1:
        name += ".zst";
        return zstd(bytes);
      case 2:
        name += ".xz";
        return xz(bytes);
      case 3:
        name += ".bz2";
        return bzip2(bytes);
      default:
        return bytes;
    }
  }
  void document_file(const std::string& name, const std::vector<std::string>& lines) {
    std::string bytes;
    for (const std::string& line : lines) bytes += line + "\n";
    put_file(folder_ / name, bytes);
  }
  static std::string quoted(const std::string& text) { return "\"" + text + "\""; }

  void add_file(std::uint32_t i) {
    const std::uint32_t count = random_.below(12);
    std::string name, bytes;
    switch (random_.below(9)) {
      case 0: {
        name = fmt::format("{}.txt", i);
        if (chance(3)) bytes = "\xEF\xBB\xBF";
        for (std::uint32_t k = 0; k < count; ++k) bytes += text() + (chance(4) ? "\n\n" : "\r\n");
        break;
      }
      case 1: {
        name = fmt::format("{}.JSONL", i);
        for (std::uint32_t k = 0; k < count; ++k) {
          if (chance(6)) {
            ++mess_.left_out["bad line"];
            const char* bad[] = {"{\"text\": ", "{\"words\": \"a\"}", "{\"text\": null}",
                                 "nonsense", "{\"text\": \"\xff\"}"};
            bytes += std::string(bad[random_.below(5)]) + "\n";
          } else {
            bytes += "{\"id\": 3, \"text\": " + quoted(text()) + "}\n";
          }
        }
        break;
      }
      case 2: {
        name = fmt::format("{}.csv", i);
        bytes = "text,n\n";
        for (std::uint32_t k = 0; k < count; ++k) {
          if (chance(6)) {
            ++mess_.left_out["bad line"];
            bytes += "one field\n";
          } else {
            bytes += quoted(text()) + ",1\n";
          }
        }
        break;
      }
      case 3: {
        name = fmt::format("{}.tsv", i);
        bytes = "n\ttext\n";
        for (std::uint32_t k = 0; k < count; ++k) bytes += "1\t" + text() + "\n";
        break;
      }
      case 4: {
        name = fmt::format("{}.warc.wet", i);
        for (std::uint32_t k = 0; k < count; ++k) {
          const bool other = chance(4);
          const std::string body = other ? std::string("<html>") : text();
          if (other) ++mess_.left_out["WARC record of type response"];
          bytes += fmt::format("WARC/1.0\r\nWARC-Type: {}\r\nContent-Length: {}\r\n\r\n{}\r\n\r\n",
                               other ? "response" : "conversion", body.size(), body);
        }
        break;
      }
      case 5: {
        std::vector<std::string> texts;
        for (std::uint32_t k = 0; k < count + 1; ++k) texts.push_back(text());
        put_file(folder_ / fmt::format("{}.parquet", i),
                 parquet_file({texts.begin(), texts.end()}, 60, 150));
        return;
      }
      case 6: {
        const std::pair<const char*, const char*> bad[] = {
            {"readme.md", "of an unknown kind"},
            {"gz.txt", "its contents are gzip, not text"},
            {"wide.txt", "its contents are UTF-16, not text"},
            {"array.json",
             "a JSON array; an object on every line is needed (jq -c '.[]' makes that)"}};
        const auto& [end, reason] = bad[random_.below(4)];
        const std::string contents = std::string(end) == "gz.txt"       ? gzip("text\n")
                                     : std::string(end) == "wide.txt"   ? "\xff\xfe"
                                     : std::string(end) == "array.json" ? "[{\"text\": \"a\"}]"
                                                                        : "text\n";
        put_file(folder_ / fmt::format("{}-{}", i, end), contents);
        ++mess_.not_taken[reason];
        return;
      }
      case 7:
        std::filesystem::create_symlink("nowhere", folder_ / fmt::format("{}.txt", i));
        ++mess_.not_taken["a link that leads nowhere"];
        return;
      default: {
        document_file(fmt::format("{}.txt", i), {good()});
        std::filesystem::create_symlink(fmt::format("{}.txt", i),
                                        folder_ / fmt::format("{}-again.txt", i));
        ++mess_.not_taken["the same file again"];
        return;
      }
    }
    const std::string stored = packed(name, bytes);
    put_file(folder_ / name, stored);
  }

  Path folder_;
  PhiloxSequence random_;
  Mess mess_;
  std::string last_;
  std::int64_t number_ = 0, short_ = 0;
};

TEST_F(BuildTest, EveryDocumentIsInTheCorpusOrInACount) {
  const int mixtures = kThreadSanitizer ? 10 : 200;
  for (int i = 0; i < mixtures; ++i) {
    const TemporaryFolder folder;
    const Mess mess = MessMaker(folder.path() / "in", static_cast<std::uint64_t>(i)).make();
    BuildOptions options;
    options.inputs = {(folder.path() / "in").string()};
    options.output = folder.path() / "in/out";  // it is no input of its own
    options.tokenizer = path("model");
    options.deduplicate = true;
    options.min_characters = 3;
    options.max_characters = 200;
    options.bad_lines = 1000;
    options.threads = 1 + i % 3;
    const auto report = build_corpus(options, {});
    ASSERT_TRUE(report.ok()) << "mixture " << i << ": " << report.error().message;
    const Manifest& manifest = report.value().manifest;
    EXPECT_EQ(manifest.total(Split::kTrain).documents, mess.documents) << "mixture " << i;
    EXPECT_EQ(manifest.left_out, mess.left_out) << "mixture " << i;
    EXPECT_EQ(manifest.not_taken, mess.not_taken) << "mixture " << i;
    std::int64_t named = 0;
    for (const auto& [reason, count] : mess.not_taken) named += count;
    EXPECT_EQ(static_cast<std::int64_t>(report.value().not_taken.size()), named);
  }
}

TEST_F(BuildTest, NothingTakenIsAnError) {
  const TemporaryFolder folder;
  put_file(folder.path() / "in/a.jsonl", "{\"words\": \"a\"}\n");
  BuildOptions options;
  options.inputs = {(folder.path() / "in").string()};
  options.output = folder.path() / "out";
  options.tokenizer = path("model");
  const auto report = build_corpus(options, {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::kBadInput);
  EXPECT_NE(report.error().message.find("1 (bad line)"), std::string::npos)
      << report.error().message;
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "out/manifest.json"));
}

// What the state speaks of is on the disk before it does.
class SyncWatcher final : public FileStore {
 public:
  Status append(const Path& path, std::span<const std::byte> bytes) override {
    dirty_.insert(path);
    return local_files().append(path, bytes);
  }
  Status truncate(const Path& path, std::uint64_t size) override {
    return local_files().truncate(path, size);
  }
  Status sync(const Path& path) override {
    dirty_.erase(path);
    return local_files().sync(path);
  }
  Status rename(const Path& from, const Path& to) override {
    if (dirty_.erase(from) > 0) dirty_.insert(to);
    return local_files().rename(from, to);
  }
  Status remove(const Path& path) override {
    dirty_.erase(path);
    return local_files().remove(path);
  }
  Status replace(const Path& path, std::string_view contents) override {
    ++replaced;
    for (const Path& file : dirty_) {
      if (file.string().find("/duplicates/") != std::string::npos) unsynced.insert(file.string());
    }
    return local_files().replace(path, contents);
  }
  Status create(const Path& path, std::int64_t size) override {
    return local_files().create(path, size);
  }
  Result<std::unique_ptr<PlacedFile>> open(const Path& path) override {
    return local_files().open(path);
  }
  Status make_folder(const Path& path) override { return local_files().make_folder(path); }
  Status sync_folder(const Path& path) override { return local_files().sync_folder(path); }
  Status remove_folder(const Path& path) override { return local_files().remove_folder(path); }
  Result<std::int64_t> free_bytes(const Path& path) override {
    return local_files().free_bytes(path);
  }
  int replaced = 0;
  std::set<std::string> unsynced;

 private:
  std::set<Path> dirty_;
};

TEST_F(BuildTest, DuplicatesAreOnTheDiskBeforeTheStateSpeaksOfThem) {
  const TemporaryFolder folder;
  SyncWatcher store;
  BuildEnvironment environment;
  environment.files = &store;
  environment.checkpoint_seconds = 0;
  BuildOptions all = options(folder.path() / "out");
  all.deduplicate = true;
  ASSERT_TRUE(build_corpus(all, environment).ok());
  EXPECT_GT(store.replaced, 4);
  EXPECT_TRUE(store.unsynced.empty()) << *store.unsynced.begin();
}

}  // namespace
}  // namespace quintet
