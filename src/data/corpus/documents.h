// The documents in a block of text.
#pragma once

#include <cstdint>
#include <functional>
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

struct DocumentOptions {
  std::string text_field = "text";
  std::string language_field;     // empty: the files say
  bool normalize_spaces = false;  // every run of white space and control characters becomes a space
};

// For one thread.
class DocumentReader {
 public:
  DocumentReader(std::span<const InputFile> files, DocumentOptions options);
  DocumentReader(DocumentReader&&) noexcept;
  ~DocumentReader();

  // Calls body(document) for each. Lines that hold none are appended to `bad`; lines that are
  // longer than allowed are counted in `too_long`. Empty lines are nothing.
  using Body = std::function<Status(const Document&)>;
  Status read(const TextBlock& block, std::vector<BadLine>& bad, std::int64_t& too_long,
              const Body& body);
  // Gives back the working memory that an unusually long line took.
  void trim_memory();

 private:
  struct Json;
  Status read_json(const TextBlock& block, const TextBlock::Part& part, std::string_view line,
                   Document& document, std::vector<BadLine>& bad, const Body& body);
  Status deliver(Document& document, const Body& body);

  std::span<const InputFile> files_;
  DocumentOptions options_;
  std::unique_ptr<Json> json_;
  std::string clean_;
};

}  // namespace quintet
