#include "data/tokenizer/charsmap.h"

#include <cstring>

namespace quintet {
namespace {

// The fields of a unit, as darts-clone packs them.
bool has_leaf(std::uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
std::uint32_t leaf_value(std::uint32_t unit) {
  return unit & 0x7FFFFFFF;
}
std::uint32_t label(std::uint32_t unit) {
  return unit & 0x800000FF;  // a leaf's top bit makes it match no byte
}
std::uint32_t offset(std::uint32_t unit) {
  return (unit >> 10) << ((unit & 0x200) >> 6);
}

}  // namespace

Result<CharsMap> CharsMap::parse(std::string_view blob, const std::string& name) {
  CharsMap map;
  if (blob.empty()) return map;
  std::uint32_t trie_bytes = 0;
  if (blob.size() >= sizeof(trie_bytes)) std::memcpy(&trie_bytes, blob.data(), sizeof(trie_bytes));
  const std::size_t begin = sizeof(trie_bytes);
  if (blob.size() <= begin || trie_bytes < 4 || trie_bytes >= blob.size() - begin ||
      blob.back() != '\0') {
    return bad_input(
        "{}: its normalization rules are damaged ({} bytes that announce a trie of {})", name,
        blob.size(), trie_bytes);
  }
  map.units_.resize(trie_bytes / sizeof(std::uint32_t));
  std::memcpy(map.units_.data(), blob.data() + begin, map.units_.size() * sizeof(std::uint32_t));
  map.replacements_ = blob.substr(begin + trie_bytes);
  return map;
}

CharsMap::Cursor CharsMap::root() const {
  return {units_.empty() ? 0 : offset(units_[0]), false, 0};
}

bool CharsMap::step(Cursor& cursor, std::uint8_t byte) const {
  const std::size_t position = cursor.position ^ byte;
  if (position >= units_.size()) return false;
  const std::uint32_t unit = units_[position];
  if (label(unit) != byte) return false;
  cursor.position = static_cast<std::uint32_t>(position) ^ offset(unit);
  cursor.rule = false;
  if (has_leaf(unit) && cursor.position < units_.size()) {
    cursor.value = leaf_value(units_[cursor.position]);
    cursor.rule = cursor.value < replacements_.size();
  }
  return true;
}

CharsMap::Match CharsMap::longest(const char* at, const char* end) const {
  Match match;
  std::uint32_t value = 0;
  Cursor cursor = root();
  for (const char* p = at; p < end && step(cursor, static_cast<std::uint8_t>(*p)); ++p) {
    if (!cursor.rule) continue;
    match.length = static_cast<std::size_t>(p - at) + 1;
    value = cursor.value;
  }
  if (match.length > 0) match.replacement = replacements_.data() + value;
  return match;
}

}  // namespace quintet
