#include "data/corpus/shard.h"

#include <set>

#include <gtest/gtest.h>

#include "base/philox.h"
#include "data/corpus/duplicates.h"
#include "data/corpus/manifest.h"
#include "tests/support/faulty_store.h"
#include "tests/support/folders.h"
#include "tests/support/mutate.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

const std::string kDigest = "0123456789abcdef0123456789abcdef";
using Documents = std::vector<std::vector<std::int32_t>>;

Documents random_documents(std::size_t count, std::uint32_t vocabulary, std::uint64_t seed) {
  PhiloxSequence random(seed, 2);
  Documents documents(count);
  for (auto& document : documents) {
    document.resize(random.below(random.below(20) == 0 ? 20000 : 50));
    for (std::int32_t& id : document) id = static_cast<std::int32_t>(random.below(vocabulary));
  }
  return documents;
}

void write_shard(const Path& name, const Documents& documents, const TokenLayout& layout) {
  ShardWriter writer(local_files(), name, layout);
  for (const auto& document : documents) ASSERT_TRUE(writer.add(document).ok());
  ASSERT_TRUE(writer.finish().ok());
}

TEST(TokenShard, ReadsWhatWasWritten) {
  for (const std::uint32_t vocabulary : {1000u, 300000u}) {
    const TemporaryFolder folder;
    const Path name = folder.path() / "s";
    const TokenLayout layout{token_bytes_for(vocabulary), vocabulary, kDigest};
    const Documents documents = random_documents(500, vocabulary, 1);
    write_shard(name, documents, layout);
    const auto opened = TokenShard::open(name);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const TokenShard& shard = opened.value();
    EXPECT_EQ(shard.layout(), layout);
    ASSERT_EQ(shard.documents(), documents.size());
    std::uint64_t at = 0;
    for (std::uint64_t d = 0; d < documents.size(); ++d) {
      EXPECT_EQ(shard.document_begin(d), at);
      std::vector<std::int32_t> ids(documents[d].size());
      shard.range(at, shard.document_end(d)).copy_to(ids);
      EXPECT_EQ(ids, documents[d]);
      for (const std::uint64_t token : {at, at + ids.size() / 2}) {
        if (!ids.empty()) {
          EXPECT_EQ(shard.document_at(token), d);
        }
      }
      at += ids.size();
    }
    EXPECT_EQ(shard.tokens(), at);
    EXPECT_TRUE(shard.verify().ok());
    // The token file is nothing but tokens.
    EXPECT_EQ(std::filesystem::file_size(tokens_path(name)), at * layout.token_bytes);
  }
}

TEST(TokenShard, CanBeEmpty) {
  const TemporaryFolder folder;
  write_shard(folder.path() / "none", {}, {4, 100000, kDigest});
  write_shard(folder.path() / "empty", {{}, {}}, {4, 100000, kDigest});
  EXPECT_EQ(TokenShard::open(folder.path() / "none").value().documents(), 0u);
  EXPECT_EQ(TokenShard::open(folder.path() / "empty").value().documents(), 2u);
  EXPECT_TRUE(TokenShard::open(folder.path() / "empty").value().verify().ok());
}

TEST(TokenShard, InterruptedAnywhereItContinuesToTheSameBytes) {
  const TokenLayout layout{4, 300000, kDigest};
  const Documents documents = random_documents(300, 300000, 3);
  const TemporaryFolder whole;
  write_shard(whole.path() / "s", documents, layout);
  const auto expected = folder_contents(whole.path());
  PhiloxSequence random(4, 4);
  for (int round = 0; round < 30; ++round) {
    const TemporaryFolder folder;
    const Path name = folder.path() / "s";
    // Flushed after `saved` documents, then broken off at some operation.
    const std::size_t saved = random.below(300);
    ShardPosition position;
    {
      FaultyStore store(INT64_MAX);
      ShardWriter writer(store, name, layout);
      for (std::size_t d = 0; d < saved; ++d) ASSERT_TRUE(writer.add(documents[d]).ok());
      ASSERT_TRUE(writer.flush().ok());
      position = writer.position();
      FaultyStore broken(random.below(12));
      ShardWriter again(broken, name, layout);
      bool failed = !again.resume(position).ok();
      for (std::size_t d = saved; !failed && d < documents.size(); ++d) {
        failed = !again.add(documents[d]).ok();
      }
      failed = failed || !again.finish().ok();
      if (failed) {
        EXPECT_FALSE(std::filesystem::exists(index_path(name)));
      }
    }
    ShardWriter writer(local_files(), name, layout);
    ASSERT_TRUE(writer.resume(position).ok());
    for (std::size_t d = saved; d < documents.size(); ++d)
      ASSERT_TRUE(writer.add(documents[d]).ok());
    ASSERT_TRUE(writer.finish().ok());
    for (const auto& [file, contents] : expected) {
      EXPECT_TRUE(read_file(folder.path() / file).value() == contents)
          << file << ", round " << round;
    }
  }
}

TEST(TokenShard, EveryFlippedBitIsFound) {
  const TemporaryFolder folder;
  const Path name = folder.path() / "s";
  write_shard(name, random_documents(200, 300000, 5), {4, 300000, kDigest});
  PhiloxSequence random(6, 6);
  for (const Path& path : {tokens_path(name), index_path(name)}) {
    const std::string good = read_file(path).value();
    const bool index = path == index_path(name);
    for (int i = 0; i < 150; ++i) {
      std::string bad = good;
      // In the index, mostly where the tables and the footer are.
      const std::size_t at = index && i % 2 == 0
                                 ? bad.size() - 1 - random.below(120)
                                 : random.below(static_cast<std::uint32_t>(bad.size()));
      bad[at] ^= static_cast<char>(1 << random.below(8));
      put_file(path, bad);
      const auto shard = TokenShard::open(name);
      const bool found = !shard.ok() || !shard.value().verify().ok();
      EXPECT_TRUE(found) << path << " byte " << at;
      if (shard.ok()) {
        EXPECT_NE(shard.value().verify().error().message.find(path.filename().string()),
                  std::string::npos);
      }
    }
    put_file(path, good);
  }
  EXPECT_TRUE(TokenShard::open(name).value().verify().ok());
}

TEST(TokenShard, AnotherShardsIndexIsRefused) {
  const TemporaryFolder folder;
  write_shard(folder.path() / "a", random_documents(20, 1000, 7), {2, 1000, kDigest});
  write_shard(folder.path() / "b", random_documents(30, 1000, 8), {2, 1000, kDigest});
  std::filesystem::copy_file(index_path(folder.path() / "b"), index_path(folder.path() / "a"),
                             std::filesystem::copy_options::overwrite_existing);
  const auto shard = TokenShard::open(folder.path() / "a");
  ASSERT_FALSE(shard.ok());
  EXPECT_NE(shard.error().message.find("a.tokens"), std::string::npos) << shard.error().message;
}

// Whatever the index says: an error, or a shard that can be walked without harm.
TEST(TokenShard, SurvivesADamagedIndex) {
  const TemporaryFolder folder;
  const Path name = folder.path() / "s";
  write_shard(name, random_documents(40, 1000, 9), {2, 1000, kDigest});
  const std::string good = read_file(index_path(name)).value();
  PhiloxSequence random(10, 10);
  for (int i = 0; i < 1500; ++i) {
    put_file(index_path(name), mutate(good, random));
    const auto shard = TokenShard::open(name);
    if (!shard.ok()) continue;
    (void)shard.value().verify();
    for (std::uint64_t d = 0; d < shard.value().documents(); ++d) {
      const std::uint64_t begin = shard.value().document_begin(d),
                          end = shard.value().document_end(d);
      if (begin <= end) shard.value().range(begin, end);
    }
    shard.value().document_at(100);
  }
}

Manifest example_manifest() {
  Manifest manifest;
  manifest.layout = {4, 250100, kDigest};
  manifest.special = {0, 1, 2, 250099, 100};
  manifest.plan_digest = "abc";
  manifest.options = {{"held_out", "0.01"}};
  manifest.left_out = {{"duplicate", 3}};
  manifest.languages["de"][Split::kTrain] = {5, 1000, 900, 250, 1};
  manifest.languages["de"][Split::kHeldOut] = {1, 10, 9, 5, 0};
  manifest.languages["fr"][Split::kTrain] = {2, 100, 90, 25, 0};
  manifest.shards = {{Split::kTrain, "de", "train/de-00000", 250, 5}};
  return manifest;
}

TEST(Manifest, ReadsWhatItWrites) {
  const Manifest manifest = example_manifest();
  const std::string json = to_json(manifest);
  const auto again = parse_manifest(json, "m");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(to_json(again.value()), json);
  EXPECT_EQ(again.value().total(Split::kTrain).tokens, 275);
}

TEST(Manifest, SurvivesDamage) {
  const std::string good = to_json(example_manifest());
  PhiloxSequence random(11, 11);
  for (int i = 0; i < 3000; ++i) {
    const auto parsed = parse_manifest(mutate(good, random), "m");
    if (!parsed.ok()) {
      EXPECT_EQ(parsed.error().code, ErrorCode::kBadInput);
    }
  }
  for (const auto& [from, to] :
       {std::pair("train/de-00000", "../../etc/passwd"),
        std::pair("\"tokens\": 250,", "\"tokens\": -1,"),
        std::pair("\"version\": 1", "\"version\": 2"), std::pair("quintet-corpus", "x"),
        std::pair("\"language\": \"de\"", "\"language\": \"xx\"")}) {
    std::string bad = good;
    const std::size_t at = bad.rfind(from);
    ASSERT_NE(at, std::string::npos) << from;
    bad.replace(at, std::string(from).size(), to);
    EXPECT_FALSE(parse_manifest(bad, "m").ok()) << to;
  }
}

TEST(Duplicates, AreThoseOfAPlainSet) {
  const TemporaryFolder folder;
  PhiloxSequence random(12, 12);
  std::vector<std::vector<std::uint32_t>> expected(2000);
  std::set<std::uint32_t> seen;
  DuplicateFinder finder(local_files(), folder.path(), 16);
  std::vector<std::uint64_t> sizes(16, 0);
  ASSERT_TRUE(finder.resume(sizes).ok());
  std::vector<std::vector<std::uint32_t>> blocks(2000);
  for (auto& block : blocks) {
    block.resize(random.below(30));
    for (std::uint32_t& value : block) value = random.below(20000);
  }
  for (std::uint64_t b = 0; b < blocks.size(); ++b) {
    for (std::uint32_t i = 0; i < blocks[b].size(); ++i) {
      if (!seen.insert(blocks[b][i]).second) expected[b].push_back(i);
      ASSERT_TRUE(finder.add(fingerprint_of(std::to_string(blocks[b][i])), {b, i}).ok());
    }
    if (b == 700) {
      // Interrupted: what was added after the last flush is added again.
      sizes = finder.flush().value();
      for (std::uint32_t i = 0; i < 600; ++i)
        ASSERT_TRUE(finder.add(fingerprint_of(std::to_string(i)), {b, i}).ok());
      finder = DuplicateFinder(local_files(), folder.path(), 16);
      ASSERT_TRUE(finder.resume(sizes).ok());
    }
  }
  ASSERT_TRUE(finder.find().ok());
  ASSERT_TRUE(finder.find().ok());  // again: nothing doubles
  DuplicateList list(folder.path());
  for (std::uint64_t b = 0; b < blocks.size(); ++b)
    ASSERT_EQ(list.in_block(b).value(), expected[b]) << b;
  ASSERT_EQ(list.in_block(3).value(), expected[3]);  // backwards, too
  ASSERT_TRUE(finder.clean().ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path()));
}

}  // namespace
}  // namespace quintet
