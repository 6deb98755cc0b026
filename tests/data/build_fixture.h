// Text to build corpora from, and the corpus that must come out.
#pragma once

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "data/corpus/build.h"
#include "tests/data/models.h"
#include "tests/support/folders.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temporary_folder.h"

namespace quintet {

using Files = std::map<std::string, std::string>;

// Text files in three languages and all formats, enough for a few dozen blocks, and a model.
class BuildTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    source_ = new TemporaryFolder;
    put_file(path("model"), quick_model(3000, true));
    std::string lines[3], json;
    for (int i = 0; i < 3; ++i) {
      lines[i] = sample_lines(static_cast<std::uint64_t>(20 + i), megabytes(i) << 20, 1000);
    }
    for (const std::string& line : split_lines(lines[1]))
      json += "{\"id\": 1, \"text\": \"" + line + "\"}\n";
    put_file(path("text/aa/lines.txt"), lines[0]);
    put_file(path("text/bb/objects.jsonl.zst"), zstd(json));
    put_file(path("text/cc/packed.txt.gz"), gzip(lines[2]));
    for (int i = 0; i < 5; ++i)
      put_file(path("text/aa/small" + std::to_string(i) + ".txt"), "a small file\n");
  }
  static void TearDownTestSuite() { delete source_; }
  static std::size_t megabytes(int i) { return i == 0 && !kThreadSanitizer ? 3 : 1; }
  static Path path(const std::string& name) { return source_->path() / name; }

  static BuildOptions options(const Path& output) {
    BuildOptions options;
    options.inputs = {path("text").string()};
    options.output = output;
    options.tokenizer = path("model");
    options.languages = LanguageRule::parse("directory").value();
    options.shard_tokens = 300000;
    options.held_out = 0.02;
    options.deduplicate = true;
    options.threads = 2;
    return options;
  }
  // The corpus as it should be.
  static const Files& expected() {
    static const Files kExpected = [] {
      const TemporaryFolder folder;
      const auto report = build_corpus(options(folder.path() / "out"), {});
      if (!report.ok()) throw std::runtime_error(report.error().message);
      return folder_contents(folder.path() / "out");
    }();
    return kExpected;
  }
  static void expect_same(const Path& folder, const std::string& what) {
    const Files files = folder_contents(folder);
    ASSERT_EQ(files.size(), expected().size()) << what;
    for (const auto& [name, contents] : expected()) {
      ASSERT_TRUE(files.contains(name)) << what << ": no " << name;
      ASSERT_TRUE(files.at(name) == contents) << what << ": " << name << " differs";
    }
  }

  static inline TemporaryFolder* source_ = nullptr;
};

}  // namespace quintet
