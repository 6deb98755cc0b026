#include "data/loader/text_bytes.h"

#include "base/index.h"
#include "data/corpus/manifest.h"
#include "data/tokenizer/vocabulary.h"

namespace quintet {

Result<std::vector<std::int32_t>> text_bytes(const Path& corpus) {
  const Path path = corpus / kTokenizerFile;
  std::error_code failure;
  if (!std::filesystem::exists(path, failure)) return std::vector<std::int32_t>();
  QT_ASSIGN(const std::string file, read_file(path));
  QT_ASSIGN(ModelProto model, parse_model(file, path.string()));
  QT_ASSIGN(const Vocabulary vocabulary, Vocabulary::create(std::move(model), path.string()));
  constexpr std::string_view kSpace = "\xE2\x96\x81";
  std::vector<std::int32_t> bytes(index(vocabulary.size()), 0);
  const std::int32_t first_sentinel = vocabulary.size() - vocabulary.sentinels();
  for (std::int32_t id = 0; id < first_sentinel; ++id) {
    const Piece& piece = vocabulary.piece(id);
    if (piece.type == PieceType::kByte) bytes[index(id)] = 1;
    if (piece.type != PieceType::kNormal && piece.type != PieceType::kUserDefined) continue;
    std::size_t count = piece.text.size();
    for (std::size_t at = piece.text.find(kSpace); at != std::string::npos;
         at = piece.text.find(kSpace, at + kSpace.size()))
      count -= kSpace.size() - 1;
    bytes[index(id)] = static_cast<std::int32_t>(count);
  }
  return bytes;
}

}  // namespace quintet
