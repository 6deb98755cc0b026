// From raw text to samples by the command line alone, and what it says when something is wrong.
#include <gtest/gtest.h>

#include "tests/data/models.h"
#include "tests/support/command.h"
#include "tests/support/folders.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

using testing::quintet;

// Text in two languages, and a model trained on it by the program itself.
class DataCli : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TemporaryFolder;
    const SampleText german("de"), chinese("zh");
    std::string lines, json;
    for (std::uint64_t i = 0; i < 400; ++i) {
      german.append_document(1, i, 300, lines);
      lines += '\n';
      json += "{\"text\": \"";
      chinese.append_document(1, i, 300, json);
      json += "\"}\n";
    }
    put_file(shared("text/de/lines.txt"), lines);
    put_file(shared("text/zh/objects.jsonl.zst"), zstd(json));
    const testing::Outcome trained =
        quintet("tokenizer train --vocabulary 1200 --coverage 0.98 --threads 2 --out " +
                shared("m.model") + " " + shared("text/de/lines.txt"));
    if (trained.exit_code != 0) throw std::runtime_error(trained.output);
    const testing::Outcome built = quintet(build(shared("corpus")));
    if (built.exit_code != 0) throw std::runtime_error(built.output);
    table_ = built.output;
  }
  static void TearDownTestSuite() { delete shared_; }

  static std::string shared(const std::string& name) { return (shared_->path() / name).string(); }
  static std::string build(const std::string& output) {
    return "data build --language-by directory --held-out 0.05 --tokenizer " + shared("m.model") +
           " --out " + output + " " + shared("text");
  }
  // A corpus to be damaged.
  std::string copy() {
    std::filesystem::copy(shared("corpus"), folder_.path() / "copy",
                          std::filesystem::copy_options::recursive);
    return (folder_.path() / "copy").string();
  }
  std::string path(const std::string& name) { return (folder_.path() / name).string(); }

  static inline TemporaryFolder* shared_ = nullptr;
  static inline std::string table_;
  TemporaryFolder folder_;
};

TEST_F(DataCli, EveryCommandHasHelp) {
  for (const char* command :
       {"tokenize", "tokenizer", "tokenizer train", "data", "data build", "data inspect",
        "data verify", "data import", "data export", "data bench"}) {
    const testing::Outcome outcome = quintet(std::string(command) + " --help");
    EXPECT_EQ(outcome.exit_code, 0) << command;
    EXPECT_TRUE(outcome.says("Usage")) << command;
  }
}

TEST_F(DataCli, TokenizesAsTheLibraryDoesAndBack) {
  const auto library = SentencePiece::load(read_file(shared("m.model")).value(), "m").value();
  const std::vector<std::string> lines = {"", "ein Satz", "  viele   Wörter \t", "中文", "\xff x"};
  std::string text, expected, decoded;
  for (const std::string& line : lines) {
    text += line + "\n";
    const auto ids = library_ids(library, line);
    expected += fmt::format("{}\n", fmt::join(ids, " "));
    decoded += library.decode(ids).value() + "\n";
  }
  put_file(path("text"), text);
  put_file(path("text.gz"), gzip(text));
  put_file(path("ids"), expected);
  const std::string model = " --model " + shared("m.model") + " ";
  EXPECT_EQ(quintet("tokenize" + model + path("text")).output, expected);
  EXPECT_EQ(quintet("tokenize" + model + path("text.gz")).output, expected);
  EXPECT_EQ(quintet("tokenize" + model + "< " + path("text")).output, expected);
  EXPECT_EQ(quintet("tokenize --detokenize" + model + path("ids")).output, decoded);
}

TEST_F(DataCli, GeneratesTextToTryThingsWith) {
  const TemporaryFolder folder;
  const std::string command =
      "data generate --kilobytes 20 --languages de,ru " + (folder.path() / "a").string();
  EXPECT_EQ(quintet(command).exit_code, 0);
  EXPECT_EQ(quintet(command + "2").exit_code, 0);
  const Path text = folder.path() / "a/ru/text.txt";
  EXPECT_GE(std::filesystem::file_size(text), 20000U);
  EXPECT_EQ(read_file(text).value(), read_file(folder.path() / "a2/ru/text.txt").value());
  // Somebody's text is not overwritten, nor is anything else written then.
  put_file(text, "mine\n");
  const testing::Outcome refused =
      quintet("data generate --languages en,ru " + (folder.path() / "a").string());
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(refused.says("text.txt: exists") && refused.says("--overwrite")) << refused.output;
  EXPECT_EQ(read_file(text).value(), "mine\n");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "a/en"));
  EXPECT_EQ(quintet("data generate --overwrite --kilobytes 20 --languages de,ru " +
                    (folder.path() / "a").string())
                .exit_code,
            0);
  EXPECT_GE(std::filesystem::file_size(text), 20000U);
  const testing::Outcome wrong =
      quintet("data generate --languages xx " + (folder.path() / "b").string());
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_TRUE(wrong.says("no language xx")) << wrong.output;
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "b"));
}

TEST_F(DataCli, BuildsOnceAndSaysWhatItBuilt) {
  for (const char* part :
       {"language", "bytes/token", "unknown", "de ", "zh ", "held_out", "all "}) {
    EXPECT_NE(table_.find(part), std::string::npos) << part << "\n" << table_;
  }
  const testing::Outcome again = quintet(build(shared("corpus")));
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_TRUE(again.says("already complete")) << again.output;
  // No progress bar where there is no terminal.
  EXPECT_EQ(table_.find('\r'), std::string::npos);
}

TEST_F(DataCli, InspectsAndVerifies) {
  const testing::Outcome plain = quintet("data inspect " + shared("corpus"));
  EXPECT_EQ(plain.exit_code, 0);
  EXPECT_TRUE(plain.says("100 of them sentinels (1199 down to 1100)")) << plain.output;
  EXPECT_FALSE(plain.says("sample "));
  const testing::Outcome samples =
      quintet("data inspect " + shared("corpus") + " --sample 0 7 --source 64 --ids");
  EXPECT_EQ(samples.exit_code, 0);
  for (const char* part : {"sample 0: ", "sample 7: ", "64 source, 14 target: ", "[", "1199"}) {
    EXPECT_TRUE(samples.says(part)) << part << "\n" << samples.output;
  }
  const testing::Outcome packed =
      quintet("data inspect " + shared("corpus") +
              " --sample 3 --source 256 --target 128 --set pack=true --set only='[\"de\"]'");
  EXPECT_EQ(packed.exit_code, 0);
  EXPECT_TRUE(packed.says("sample 3: de")) << packed.output;
  EXPECT_TRUE(packed.says("fill: source, target")) << packed.output;
  const testing::Outcome epochs =
      quintet("data inspect " + shared("corpus") + " --tokens 1e6 --source 64");
  EXPECT_EQ(epochs.exit_code, 0) << epochs.output;
  EXPECT_TRUE(epochs.says("epochs: of a run of 1")) << epochs.output;
  const testing::Outcome verified = quintet("data verify " + shared("corpus"));
  EXPECT_EQ(verified.exit_code, 0);
  EXPECT_TRUE(verified.says("every checksum is right")) << verified.output;
}

TEST_F(DataCli, VerifyNamesEverythingDamaged) {
  const std::string corpus = copy();
  for (const char* name : {"/train/de-00000.tokens", "/train/zh-00000.index"}) {
    std::string bytes = read_file(corpus + name).value();
    bytes[bytes.size() / 3] ^= 4;
    put_file(corpus + name, bytes);
  }
  std::filesystem::remove(corpus + "/held_out/de-00000.tokens");
  std::filesystem::copy_file(shared("text/de/lines.txt"), corpus + "/tokenizer.model",
                             std::filesystem::copy_options::overwrite_existing);
  const testing::Outcome outcome = quintet("data verify " + corpus);
  EXPECT_EQ(outcome.exit_code, 3);
  for (const char* part : {"train/de-00000.tokens", "train/zh-00000.index",
                           "held_out/de-00000.tokens", "tokenizer.model", "4 of its parts"}) {
    EXPECT_TRUE(outcome.says(part)) << part << "\n" << outcome.output;
  }
}

// Ids of the manifest are the tokenizer's, and a manifest that was changed is not believed.
TEST_F(DataCli, VerifyComparesSpecialIds) {
  const std::string corpus = copy();
  const std::string path = corpus + "/manifest.json";
  const std::string good = read_file(path).value();
  std::string bad = good;
  const std::size_t at = bad.find("\"eos\": 1");
  ASSERT_NE(at, std::string::npos);
  bad.replace(at, 8, "\"eos\": 0");
  put_file(path, bad);
  const testing::Outcome changed = quintet("data verify " + corpus);
  EXPECT_EQ(changed.exit_code, 3);
  EXPECT_TRUE(changed.says("checksum does not match")) << changed.output;
  EXPECT_EQ(quintet("data inspect " + corpus).exit_code, 3);
  // The same in a manifest of before there were checksums.
  const std::size_t sum = bad.rfind(",", bad.find("\"checksum\""));
  ASSERT_NE(sum, std::string::npos);
  bad.erase(sum, bad.find('\n', bad.find("\"checksum\"")) - sum);
  put_file(path, bad);
  const testing::Outcome wrong = quintet("data verify " + corpus);
  EXPECT_EQ(wrong.exit_code, 3);
  EXPECT_TRUE(wrong.says("end 0") && wrong.says("the tokenizer has")) << wrong.output;
}

// Training reads what building reads: all of every document, whatever the file's form.
TEST_F(DataCli, TokenizersAreTrainedOnWhatCorporaAreBuiltFrom) {
  std::string json, lines;
  // Words of their own in lines that the library would skip, and in records.
  for (int i = 0; i < 60; ++i) {
    for (int k = 0; k < 1200; ++k) lines += fmt::format("langezeile{} ", k % 7);
    lines += "\n";
    json += "{\"meta\": \"fremdfeld\", \"text\": \"";
    for (int k = 0; k < 300; ++k) json += "jsonwort ";
    json += "\"}\n";
  }
  put_file(path("in/long.txt"), lines);
  put_file(path("in/records.jsonl.gz"), gzip(json));
  put_file(path("in/other.md"), "text");
  const std::string command =
      "tokenizer train --vocabulary 500 --coverage 0.98 --threads 2 "
      "--no-byte-fallback --out " +
      path("t.model") + " " + path("in") + " " + shared("text/de/lines.txt");
  const testing::Outcome trained = quintet(command);
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_TRUE(trained.says("520 documents")) << trained.output;
  EXPECT_TRUE(trained.says("other.md")) << trained.output;
  const std::string model = read_file(path("t.model")).value();
  EXPECT_NE(model.find("langezeile"), std::string::npos);
  EXPECT_NE(model.find("jsonwort"), std::string::npos);
  EXPECT_EQ(model.find("fremdfeld"), std::string::npos);
  // Not over something that is there.
  const testing::Outcome again = quintet(command);
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_TRUE(again.says("--overwrite")) << again.output;
}

TEST_F(DataCli, BuildsFromStandardInput) {
  put_file(path("lines.csv"), "text\nein Satz\nnoch ein Satz\n");
  const testing::Outcome built =
      quintet("data build --tokenizer " + shared("m.model") + " --out " + path("piped") +
              " --stdin-format csv - < " + path("lines.csv"));
  ASSERT_EQ(built.exit_code, 0) << built.output;
  const testing::Outcome shown = quintet("data inspect --json " + path("piped"));
  EXPECT_EQ(shown.exit_code, 0) << shown.output;
  EXPECT_TRUE(shown.says("\"documents\": 2")) << shown.output;
}

// Whether standard input is the same text again cannot be known.
TEST_F(DataCli, StandardInputIsNeverTheBuildThatIsThere) {
  const std::string command =
      "data build --tokenizer " + shared("m.model") + " --stdin-format jsonl --max-bad-lines 0 ";
  const std::string done = command + "--out " + path("done") + " - ";
  put_file(path("one.jsonl"), "{\"text\": \"ein Satz\"}\n");
  put_file(path("bad.jsonl"), "{\"text\": \"ein Satz\"}\n{\n");
  ASSERT_EQ(quintet(done + "< " + path("one.jsonl")).exit_code, 0);
  const testing::Outcome again = quintet(done + "< " + path("bad.jsonl"));
  EXPECT_EQ(again.exit_code, 2) << again.output;
  EXPECT_TRUE(again.says("holds a corpus") && again.says("another folder")) << again.output;
  EXPECT_EQ(quintet("data verify " + path("done")).exit_code, 0);
  const std::string failed = command + "--out " + path("failed") + " - ";
  EXPECT_EQ(quintet(failed + "< " + path("bad.jsonl")).exit_code, 3);
  const testing::Outcome resumed = quintet(failed + "< " + path("one.jsonl"));
  EXPECT_EQ(resumed.exit_code, 2) << resumed.output;
  EXPECT_TRUE(resumed.says("unfinished build") && resumed.says("begin again")) << resumed.output;
}

TEST_F(DataCli, ACorpusWithoutSentinelsSaysSo) {
  const testing::Outcome trained =
      quintet("tokenizer train --vocabulary 1100 --sentinels 0 --coverage 0.98 --threads 2 --out " +
              path("none.model") + " " + shared("text/de/lines.txt"));
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_TRUE(trained.says("none of them sentinels")) << trained.output;
  ASSERT_EQ(quintet("data build --sentinels 0 --tokenizer " + path("none.model") + " --out " +
                    path("none") + " " + shared("text/de"))
                .exit_code,
            0);
  const testing::Outcome shown = quintet("data inspect " + path("none"));
  EXPECT_TRUE(shown.says("none of them sentinels")) << shown.output;
}

TEST_F(DataCli, NamedPipesAreReadOnce) {
  const std::string pipe = path("pipe.txt");
  ASSERT_EQ(testing::run_shell("mkfifo " + pipe).exit_code, 0);
  const std::string command = QUINTET_BINARY " data build --tokenizer " + shared("m.model") +
                              " --out " + path("out") + " " + pipe;
  const testing::Outcome twice = testing::run_shell("timeout 60 " + command + " --deduplicate");
  EXPECT_EQ(twice.exit_code, 2) << twice.output;
  EXPECT_TRUE(twice.says("pipe.txt comes once")) << twice.output;
  const testing::Outcome once =
      testing::run_shell("echo ein Satz > " + pipe + " & timeout 60 " + command);
  EXPECT_EQ(once.exit_code, 0) << once.output;
}

TEST_F(DataCli, ExportsAndImports) {
  const testing::Outcome exported =
      quintet("data export " + shared("corpus") + " --out " + path("megatron"));
  ASSERT_EQ(exported.exit_code, 0) << exported.output;
  const testing::Outcome imported =
      quintet("data import --tokenizer " + shared("m.model") + " --out " + path("back") +
              " de=" + path("megatron/de_train") + " zh=" + path("megatron/zh_train.bin"));
  ASSERT_EQ(imported.exit_code, 0) << imported.output;
  EXPECT_FALSE(imported.says("0.000")) << "bytes per token of what was never text\n"
                                       << imported.output;
  for (const char* name : {"/train/de-00000.tokens", "/train/zh-00000.tokens",
                           "/train/de-00000.index", "/tokenizer.model"}) {
    EXPECT_TRUE(read_file(path("back") + name).value() ==
                read_file(shared("corpus") + name).value())
        << name;
  }
  EXPECT_EQ(quintet("data verify " + path("back")).exit_code, 0);
  // What fails leaves nothing behind that keeps another attempt out.
  const std::string bytes = read_file(path("megatron/zh_train.bin")).value();
  put_file(path("megatron/zh_train.bin"), bytes + "more");
  const std::string again = "data import --tokenizer " + shared("m.model") + " --out " +
                            path("again") + " de=" + path("megatron/de_train") +
                            " zh=" + path("megatron/zh_train");
  const testing::Outcome refused = quintet(again);
  EXPECT_EQ(refused.exit_code, 3) << refused.output;
  EXPECT_TRUE(refused.says(fmt::format("zh_train.bin: has {} bytes", bytes.size() + 4)))
      << refused.output;
  put_file(path("megatron/zh_train.bin"), bytes);
  EXPECT_EQ(quintet(again).exit_code, 0);
  // Not over something that is there.
  EXPECT_EQ(quintet("data import --tokenizer " + shared("m.model") + " --out " + path("back") +
                    " " + path("megatron/de_train"))
                .exit_code,
            2);
}

TEST_F(DataCli, MistakesAreNamed) {
  put_file(path("bad.jsonl"), "{\"text\": \"a\"}\n{\"text\": \n{\"words\": \"a\"}\n");
  put_file(path("cut.txt.gz"), gzip("some text that is long enough to be cut").substr(0, 30));
  put_file(path("cut.txt.zst"), zstd("some text that is long enough to be cut").substr(0, 30));
  put_file(path("words"), "12 twelve\n");
  put_file(path("ids"), "5\n9999\n");
  put_file(path("blank.txt"), "\u3000 \u00a0\n\u2581\n");
  const std::string out = " --out " + path("out") + " --tokenizer " + shared("m.model") + " ";
  const std::string corpus = shared("corpus");
  struct Case {
    std::string arguments;
    int exit_code;
    std::string says;
  };
  const std::vector<Case> cases = {
      {"data build" + out + path("none.txt"), 3, "none.txt"},
      {"data build" + out + shared("m.model"), 3, ".jsonl"},
      {"data build" + out + "--max-bad-lines 0 " + path("bad.jsonl"), 3, "bad.jsonl:2"},
      {"data build" + out + "--max-bad-lines 1 " + path("bad.jsonl"), 3, "bad.jsonl:3"},
      {"data build" + out + path("cut.txt.gz"), 3, "cut.txt.gz"},
      {"data build" + out + path("cut.txt.zst"), 3, "cut.txt.zst"},
      {"data build" + out + "--held-out 1 " + shared("text"), 2, "--held-out"},
      {"data build" + out + "--min-characters 99999999999999999999 " + shared("text"), 2,
       "99999999999999999999: expected a whole number from 0 to 9223372036854775807"},
      {"data inspect " + corpus + " --sample -1", 2, "-1: expected a whole number from 0 to"},
      {"data build" + out + "--language-by colour " + shared("text"), 2, "colour"},
      {"data build --out " + corpus + " --tokenizer " + shared("m.model") + " " + shared("text"), 2,
       "other options"},
      {"data build --out " + path("o") + " --tokenizer " + path("words") + " " + shared("text"), 3,
       "words"},
      {"data inspect " + path("none"), 3, "manifest.json"},
      {"data inspect " + corpus + " --sample 0 --set only='[\"dd\"]'", 2, "did you mean"},
      {"data inspect " + corpus + " --sample 0 --set obective=ul2", 2, "data.objective"},
      {"data inspect " + corpus + " --sample 0 --source 2048", 2, "sentinels"},
      {"data verify " + path("none"), 3, "manifest.json"},
      {"data export " + corpus + " --out " + path("x") + " --language xx", 2, "de, zh"},
      {"data import --tokenizer " + shared("m.model") + " --out " + path("y") + " " + path("none"),
       3, "none.idx"},
      {"tokenize --model " + path("none") + " " + path("ids"), 3, "no such file"},
      {"tokenize --detokenize --model " + shared("m.model") + " " + path("words"), 3, "line 1"},
      {"tokenize --detokenize --model " + shared("m.model") + " " + path("ids"), 3, "line 2"},
      {"tokenizer train --vocabulary 400 --out " + path("t") + " " + path("none"), 3, "none"},
      {"tokenizer train --vocabulary 400 --out " + path("t") + " " + path("blank.txt"), 3,
       "no text to train on"},
  };
  for (const Case& c : cases) {
    const testing::Outcome outcome = quintet(c.arguments);
    EXPECT_EQ(outcome.exit_code, c.exit_code) << c.arguments << "\n" << outcome.output;
    EXPECT_TRUE(outcome.says(c.says)) << c.arguments << "\n" << outcome.output;
    std::filesystem::remove_all(path("out"));
  }
  EXPECT_EQ(quintet("tokenize --model " + shared("m.model") + " " + path("words") + " > /dev/full")
                .exit_code,
            7);
}

// The system itself refuses to write, here by a limit on the size of files; with room again the
// same command continues, to the same bytes.
TEST_F(DataCli, AFullDiskIsSurvived) {
  const testing::Outcome full =
      testing::run_shell("trap '' XFSZ; ulimit -f 8; " QUINTET_BINARY " " + build(path("out")));
  EXPECT_EQ(full.exit_code, 7) << full.output;
  EXPECT_TRUE(full.says(path("out"))) << full.output;
  EXPECT_FALSE(std::filesystem::exists(path("out/manifest.json")));
  EXPECT_EQ(quintet("data inspect " + path("out")).exit_code, 3);
  const testing::Outcome again = quintet(build(path("out")));
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_TRUE(folder_contents(path("out")) == folder_contents(shared("corpus")));
}

}  // namespace
}  // namespace quintet
