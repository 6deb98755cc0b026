#include "data/corpus/megatron.h"

#include <cstring>

#include <gtest/gtest.h>

#include "base/philox.h"
#include "data/corpus/corpus_writer.h"
#include "tests/support/folders.h"
#include "tests/support/mutate.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

using Documents = std::vector<std::vector<std::int32_t>>;

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// The files byte by byte, as Megatron's own writer makes them.
void write_reference(const Path& prefix, const Documents& sequences,
                     const std::vector<std::int64_t>& document_starts, std::uint8_t type) {
  std::string data, index("MMIDIDX\0\0", 9);
  put(index, std::uint64_t{1});
  put(index, type);
  put(index, std::uint64_t{sequences.size()});
  if (!document_starts.empty()) put(index, std::uint64_t{document_starts.size()});
  std::string offsets;
  for (const auto& sequence : sequences) {
    put(index, static_cast<std::int32_t>(sequence.size()));
    put(offsets, static_cast<std::int64_t>(data.size()));
    for (const std::int32_t id : sequence) {
      if (type == 8) put(data, static_cast<std::uint16_t>(id));
      if (type == 4) put(data, id);
      if (type == 5) put(data, std::int64_t{id});
    }
  }
  index += offsets;
  for (const std::int64_t start : document_starts) put(index, start);
  put_file(Path(prefix) += ".bin", data);
  put_file(Path(prefix) += ".idx", index);
}

Documents read_all(const MegatronDataset& dataset) {
  Documents documents(dataset.documents());
  for (std::uint64_t d = 0; d < documents.size(); ++d) {
    EXPECT_TRUE(dataset.read_document(d, documents[d]).ok());
  }
  return documents;
}

TEST(Megatron, ReadsItsFilesAndFairseqs) {
  const TemporaryFolder folder;
  const Path prefix = folder.path() / "data";
  const Documents sequences = {{1, 2, 3}, {4}, {}, {500, 600}};
  for (const std::uint8_t type : {std::uint8_t{8}, std::uint8_t{4}, std::uint8_t{5}}) {
    write_reference(prefix, sequences, {0, 2, 2, 4}, type);
    const auto dataset = MegatronDataset::open(prefix);
    ASSERT_TRUE(dataset.ok()) << dataset.error().message;
    EXPECT_EQ(dataset.value().sequences(), 4u);
    EXPECT_EQ(read_all(dataset.value()), (Documents{{1, 2, 3, 4}, {}, {500, 600}}));
    write_reference(prefix, sequences, {}, type);  // fairseq: a sequence is a document
    EXPECT_EQ(read_all(MegatronDataset::open(prefix).value()), sequences);
  }
}

// A corpus of two shards in one language.
Path make_corpus(const Path& folder, const Documents& documents, std::uint32_t vocabulary) {
  Manifest manifest;
  manifest.layout = {token_bytes_for(vocabulary), vocabulary, std::string(32, 'a')};
  CorpusWriter writer(local_files(), folder, manifest.layout, 500);
  for (const auto& document : documents) {
    EXPECT_TRUE(writer.add(Split::kTrain, "xx", document, {}).ok());
  }
  manifest.shards = writer.finish().value().finished;
  EXPECT_GT(manifest.shards.size(), 1u);
  manifest.languages["xx"][Split::kTrain] = {};
  put_file(folder / kManifestFile, to_json(manifest));
  return folder;
}

TEST(Megatron, WritesWhatItsOwnWriterWould) {
  PhiloxSequence random(1, 1);
  for (const std::uint32_t vocabulary : {1000u, 100000u}) {
    const TemporaryFolder folder;
    Documents documents(40);
    std::vector<std::int64_t> starts(1, 0);
    for (auto& document : documents) {
      document.resize(random.below(60));
      for (std::int32_t& id : document) id = static_cast<std::int32_t>(random.below(vocabulary));
      starts.push_back(starts.back() + 1);
    }
    const Corpus corpus =
        Corpus::open(make_corpus(folder.path() / "corpus", documents, vocabulary)).value();
    ASSERT_TRUE(export_megatron(corpus, Split::kTrain, "xx", folder.path() / "out").ok());
    write_reference(folder.path() / "reference", documents, starts, vocabulary < 65500 ? 8 : 4);
    for (const char* extension : {".bin", ".idx"}) {
      EXPECT_TRUE(read_file(Path(folder.path() / "out") += extension).value() ==
                  read_file(Path(folder.path() / "reference") += extension).value())
          << extension;
    }
    EXPECT_EQ(read_all(MegatronDataset::open(folder.path() / "out").value()), documents);
  }
}

TEST(Megatron, BadFilesAreRefused) {
  const TemporaryFolder folder;
  const Path prefix = folder.path() / "data";
  write_reference(prefix, {{1, 2, 3}, {4, 5}}, {0, 1, 2}, 4);
  const std::string good = read_file(Path(prefix) += ".idx").value();
  const auto refused = [&](std::size_t at, const std::string& bytes) {
    std::string bad = good;
    bad.replace(at, bytes.size(), bytes);
    put_file(Path(prefix) += ".idx", bad);
    const auto dataset = MegatronDataset::open(prefix);
    if (!dataset.ok()) return true;
    std::vector<std::int32_t> ids;
    for (std::uint64_t d = 0; d < dataset.value().documents(); ++d) {
      if (!dataset.value().read_document(d, ids).ok()) return true;
    }
    return false;
  };
  EXPECT_FALSE(refused(0, "M"));
  EXPECT_TRUE(refused(0, "X"));
  EXPECT_TRUE(refused(9, "\x02"));                   // version
  EXPECT_TRUE(refused(17, "\x07"));                  // floats
  EXPECT_TRUE(refused(18, "\x03"));                  // sequences
  EXPECT_TRUE(refused(18, std::string(8, '\xff')));  // so many
  EXPECT_TRUE(refused(26, "\x07"));                  // documents
  EXPECT_TRUE(refused(34, "\x30"));                  // a length
  EXPECT_TRUE(refused(34, std::string(4, '\xff')));  // a negative one
  EXPECT_TRUE(refused(34 + 8, "\x7f"));              // an offset
  EXPECT_TRUE(refused(34 + 8 + 16 + 8, "\x09"));     // a document's start
  // Sequences that no document has, and bytes that no sequence has.
  EXPECT_TRUE(refused(34 + 8 + 16, "\x01"));       // the first document's start
  EXPECT_TRUE(refused(34 + 8 + 16 + 16, "\x01"));  // the last one's end
  const std::string data = read_file(Path(prefix) += ".bin").value();
  put_file(Path(prefix) += ".bin", data + "more");
  EXPECT_TRUE(refused(0, "M"));
  put_file(Path(prefix) += ".bin", data);
  put_file(Path(prefix) += ".idx", good.substr(0, good.size() - 1));
  EXPECT_FALSE(MegatronDataset::open(prefix).ok());
  std::filesystem::remove(Path(prefix) += ".bin");
  put_file(Path(prefix) += ".idx", good);
  EXPECT_NE(MegatronDataset::open(prefix).error().message.find(".bin"), std::string::npos);
}

TEST(Megatron, SurvivesDamage) {
  const TemporaryFolder folder;
  const Path prefix = folder.path() / "data";
  write_reference(prefix, {{1, 2, 3}, {4, 5}, {}, {6}}, {0, 1, 3, 4}, 4);
  const std::string good = read_file(Path(prefix) += ".idx").value();
  PhiloxSequence random(2, 2);
  for (int i = 0; i < 3000; ++i) {
    put_file(Path(prefix) += ".idx", mutate(good, random));
    const auto dataset = MegatronDataset::open(prefix);
    if (!dataset.ok()) continue;
    std::vector<std::int32_t> ids;
    for (std::uint64_t d = 0; d < std::min<std::uint64_t>(dataset.value().documents(), 100); ++d) {
      (void)dataset.value().read_document(d, ids);
    }
  }
}

}  // namespace
}  // namespace quintet
