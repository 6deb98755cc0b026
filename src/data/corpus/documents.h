// The documents in a block of text.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/corpus/inputs.h"
#include "data/corpus/text_blocks.h"

namespace quintet {

struct Document {
  std::string_view text;  // valid until the next one
  std::string_view language;
  std::uint32_t file = 0;
  std::int64_t line = 0;
};

// A line that could not be used, and why.
struct BadLine {
  std::uint32_t file = 0;
  std::int64_t line = 0;
  std::string reason;
};

// What a block holds besides documents.
struct BlockNotes {
  std::vector<BadLine> bad;                      // lines that should hold one
  std::vector<BadLine> too_long;                 // documents that are
  std::map<std::string, std::int64_t> left_out;  // records that are none, by reason

  void clear() {
    bad.clear();
    too_long.clear();
    left_out.clear();
  }
};

struct DocumentOptions {
  std::string text_field = "text";
  std::string language_field;                 // empty: the files say
  std::size_t max_bytes = kMaxDocumentBytes;  // longer documents are left out
  bool normalize_spaces = false;  // every run of white space and control characters becomes a space
};

// For one thread.
class DocumentReader {
 public:
  DocumentReader(std::span<const InputFile> files, DocumentOptions options);
  DocumentReader(DocumentReader&&) noexcept;
  ~DocumentReader();

  // Calls body(document) for each; whatever else there is is added to `notes`. Empty lines are
  // nothing.
  using Body = std::function<Status(const Document&)>;
  Status read(const TextBlock& block, BlockNotes& notes, const Body& body);
  // Gives back the working memory that an unusually long line took.
  void trim_memory();

 private:
  struct Json;
  Status read_json(const TextBlock& block, const TextBlock::Part& part, std::string_view line,
                   Document& document, BlockNotes& notes, const Body& body);
  Status deliver(Document& document, BlockNotes& notes, const Body& body);

  std::span<const InputFile> files_;
  DocumentOptions options_;
  std::unique_ptr<Json> json_;
  std::string clean_;
};

}  // namespace quintet
