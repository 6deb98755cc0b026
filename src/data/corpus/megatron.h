// Megatron-LM's indexed datasets, PREFIX.bin and PREFIX.idx, read and written, so that corpora
// tokenized for it can be used here and the other way round. fairseq's files of the same kind are
// read, too. docs/formats.md describes both.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "data/corpus/corpus.h"

namespace quintet {

// Mapped; tokens are not read before they are asked for. Safe to share between threads.
class MegatronDataset {
 public:
  // Checks the header and the sizes, and that all tokens are of sequences and all sequences of
  // documents; not what else is in the tables.
  static Result<MegatronDataset> open(const Path& prefix);

  std::uint64_t sequences() const { return sequences_; }
  std::uint64_t documents() const { return documents_; }
  // The ids of a document, all of its sequences. Fails where the tables point outside the data, or
  // an id does not fit into 31 bits.
  Status read_document(std::uint64_t document, std::vector<std::int32_t>& ids) const;

 private:
  MegatronDataset(Path prefix, MappedFile index, MappedFile data)
      : prefix_(std::move(prefix)), index_(std::move(index)), data_(std::move(data)) {}
  Status parse();
  Status check_all_is_in_documents() const;
  Status read_sequence(std::uint64_t sequence, std::vector<std::int32_t>& ids) const;
  template <class T>
  T entry(std::uint64_t table, std::uint64_t i) const;
  std::string path(const char* extension) const { return prefix_.string() + extension; }

  Path prefix_;
  MappedFile index_, data_;
  std::uint8_t type_ = 0;  // of the tokens, as the file numbers them
  std::uint64_t sequences_ = 0, documents_ = 0;
  std::uint64_t lengths_ = 0, offsets_ = 0;  // where the tables begin in the index
  std::uint64_t starts_ = 0;                 // 0: there is no such table, a sequence is a document
};

// Writes one language and split of a corpus as PREFIX.bin and PREFIX.idx; every document is one
// sequence.
Status export_megatron(const Corpus& corpus, Split split, const std::string& language,
                       const Path& prefix);

}  // namespace quintet
