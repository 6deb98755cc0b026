#include "data/loader/example_text.h"

#include <algorithm>

#include <fmt/format.h>

namespace quintet {

std::string ExampleText::readable(std::span<const std::int32_t> ids) const {
  constexpr std::string_view kSpaceMark = "\u2581";
  std::string out;
  for (const std::int32_t id : ids) {
    if (is_sentinel(id)) {
      out += fmt::format(" <extra_id_{}>", number_of(id));
      continue;
    }
    if (id < 0 || id >= vocabulary_.size()) {
      out += fmt::format(" <no piece {}>", id);
      continue;
    }
    const Piece& piece = vocabulary_.piece(id);
    if (piece.type == PieceType::kByte) {
      if (const auto byte = byte_of_piece(piece.text)) out += static_cast<char>(*byte);
      continue;
    }
    for (std::string_view rest = piece.text; !rest.empty();) {
      const std::size_t mark = std::min(rest.find(kSpaceMark), rest.size());
      out += rest.substr(0, mark);
      if (mark < rest.size()) out += ' ';
      rest.remove_prefix(std::min(mark + kSpaceMark.size(), rest.size()));
    }
  }
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7F) c = ' ';
  }
  return out;
}

std::span<const std::int32_t> ExampleText::without_end(std::span<const std::int32_t> ids) const {
  return !ids.empty() && ids.back() == special_.eos ? ids.first(ids.size() - 1) : ids;
}

std::string ExampleText::with_spans(std::span<const std::int32_t> source,
                                    std::span<const std::int32_t> labels) const {
  source = without_end(source);
  labels = without_end(labels);
  const auto sentinel_in = [&](std::span<const std::int32_t> ids) {
    return static_cast<std::size_t>(
        std::find_if(ids.begin(), ids.end(), [&](std::int32_t id) { return is_sentinel(id); }) -
        ids.begin());
  };
  std::string out;
  bool spans = false;
  while (!source.empty()) {
    const std::size_t kept = sentinel_in(source);
    out += readable(source.first(kept));
    source = source.subspan(kept);
    if (source.empty()) break;
    spans = true;
    // The labels stand at the sentinel that this one is.
    if (!labels.empty()) labels = labels.subspan(1);
    const std::size_t cut = sentinel_in(labels);
    out += "[" + readable(labels.first(cut)) + "]";
    labels = labels.subspan(cut);
    source = source.subspan(1);
  }
  if (!spans) out += "[" + readable(labels) + "]";  // a prefix that is continued
  return out;
}

}  // namespace quintet
