#include "data/tokenizer/unigram.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <map>

#include "data/tokenizer/utf8.h"
#include "data/tokenizer/vocabulary.h"

namespace quintet {
namespace {

constexpr float kUnknownPenalty = 10.0f;
constexpr std::size_t kBlock = 64;  // bytes looked over for ends of stretches at one time
constexpr std::size_t kAhead = 16;  // stretches whose cache lines are on their way
static_assert(kBlock < Normalizer::kPadding && WordKey::kMaxLength < Normalizer::kPadding);

// A piece in the representation of the normalizer: one byte for the space mark. Empty for a piece
// that no normalized text contains.
std::string internal_text(std::string_view piece) {
  if (piece.find(kSpaceMark) != std::string_view::npos || !is_valid_utf8(piece)) return {};
  std::string out;
  while (!piece.empty()) {
    if (piece.starts_with(kSpaceMarkText)) {
      out.push_back(kSpaceMark);
      piece.remove_prefix(kSpaceMarkText.size());
    } else {
      out.push_back(piece.front());
      piece.remove_prefix(1);
    }
  }
  return out;
}

template <class Body>
void for_each_character(std::string_view text, const Body& body) {
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const Utf8Char c = decode_utf8(at, end);
    body(c.code);
    at += c.length;
  }
}

}  // namespace

bool UnigramModel::supports(const ModelProto& model) {
  if (model.model_type != ModelType::kUnigram || model.treat_whitespace_as_suffix ||
      !model.escape_whitespaces) {
    return false;
  }
  const auto charsmap = CharsMap::parse(model.charsmap, "");
  if (charsmap.ok() && !is_valid_utf8(charsmap.value().replacements())) return false;
  return std::all_of(model.pieces.begin(), model.pieces.end(), [](const Piece& piece) {
    return piece.type != PieceType::kUserDefined || is_valid_utf8(piece.text);
  });
}

Result<UnigramModel> UnigramModel::create(const ModelProto& proto, const std::string& name) {
  UnigramModel model;
  QT_ASSIGN(model.normalizer_, Normalizer::create(proto, name));
  model.byte_fallback_ = proto.byte_fallback;

  // 1. Scores. The odd start of the maximum is SentencePiece's.
  float min_score = FLT_MAX, max_score = FLT_MIN;
  for (const Piece& piece : proto.pieces) {
    if (piece.type != PieceType::kNormal) continue;
    min_score = std::min(min_score, piece.score);
    max_score = std::max(max_score, piece.score);
  }
  model.unknown_score_ = min_score - kUnknownPenalty;

  // 2. The pieces that can occur, and their characters with the probability of each.
  struct Candidate {
    std::string text;
    TrieKey key;
  };
  std::vector<Candidate> candidates;
  std::map<char32_t, double> weights;
  model.scores_ = LargeArray<float>(proto.pieces.size());
  model.cut_.assign(0x10000, 1);
  for (unsigned second = 0x80; second < 0xC0; ++second) {  // never inside a character
    for (unsigned first = 0; first < 0x100; ++first) model.cut_[second << 8 | first] = 0;
  }
  for (std::size_t i = 0; i < proto.pieces.size(); ++i) {
    const Piece& piece = proto.pieces[i];
    const auto id = static_cast<std::int32_t>(i);
    model.scores_[i] = piece.score;
    if (piece.type == PieceType::kUnknown) model.unknown_id_ = id;
    if (piece.type == PieceType::kByte) model.byte_ids_[*byte_of_piece(piece.text)] = id;
    const bool user_defined = piece.type == PieceType::kUserDefined;
    if (piece.type != PieceType::kNormal && !user_defined) continue;
    std::string text = internal_text(piece.text);
    if (text.empty()) continue;
    float score = piece.score;
    if (user_defined) {
      // A float product, then a double difference, as SentencePiece has it.
      const double exact = static_cast<float>(piece.text.size()) * max_score - 0.1;
      model.user_defined_[id] = exact;
      model.max_cost_ = std::max(model.max_cost_, std::abs(exact));
      score = std::numeric_limits<float>::quiet_NaN();
    } else {
      model.max_cost_ = std::max(model.max_cost_, std::abs(static_cast<double>(score)));
    }
    for (std::size_t k = 1; k < text.size(); ++k) {
      const auto byte = [&](std::size_t at) { return static_cast<std::uint8_t>(text[at]); };
      model.cut_[static_cast<std::size_t>(byte(k)) << 8 | byte(k - 1)] = 0;
    }
    for_each_character(text, [&](char32_t code) {
      weights[code] += std::exp(std::clamp(static_cast<double>(piece.score), -700.0, 0.0));
    });
    candidates.push_back({std::move(text), {{}, score, id}});
  }
  model.max_cost_ = std::max(model.max_cost_, std::abs(static_cast<double>(model.unknown_score_)));

  // 3. The trie over the characters' numbers.
  model.codes_ = CharCodes(weights);
  std::vector<TrieKey> keys;
  keys.reserve(candidates.size());
  for (Candidate& candidate : candidates) {
    for_each_character(candidate.text, [&](char32_t code) {
      candidate.key.labels.push_back(model.codes_.of(code));
    });
    keys.push_back(std::move(candidate.key));
  }
  model.trie_ = Trie(std::move(keys), model.codes_.count());
  return model;
}

// Bit i of the result: a stretch ends with byte i of the block. Reads one byte more than a block.
std::uint64_t UnigramModel::find_ends(const char* block) const {
  std::uint64_t ends = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    std::uint16_t pair = 0;
    std::memcpy(&pair, block + i, sizeof(pair));
    ends |= static_cast<std::uint64_t>(cut_[pair]) << i;
  }
  return ends;
}

// A stretch on its way through the cache: found and prefetched first, looked up a little later.
struct UnigramEncoder::Stretch {
  const char* text = nullptr;
  std::size_t length = 0;
  WordKey key;  // if it is short enough to have one
};

UnigramEncoder::UnigramEncoder(std::shared_ptr<const UnigramModel> model, std::size_t cache_entries)
    : model_(std::move(model)), cache_(cache_entries) {}

void UnigramEncoder::encode(std::string_view text, Buffer<std::int32_t>& out) {
  model_->normalizer_.normalize(text, normalized_);
  score_ = 0;
  after_unknown_ = false;
  const std::size_t size = normalized_.size();
  std::array<Stretch, kAhead> stretches;
  std::size_t count = 0;
  const char* begin = normalized_.data();
  for (std::size_t block = 0; block < size; block += kBlock) {
    std::uint64_t ends = model_->find_ends(normalized_.data() + block);
    if (size - block <= kBlock) {
      const std::uint64_t last = std::uint64_t{1} << (size - block - 1);
      ends = (ends & (last - 1)) | last;
    }
    for (; ends != 0; ends &= ends - 1) {
      const char* end = normalized_.data() + block + std::countr_zero(ends) + 1;
      Stretch& stretch = stretches[count++];
      stretch.text = begin;
      stretch.length = static_cast<std::size_t>(end - begin);
      if (stretch.length <= WordKey::kMaxLength) {
        stretch.key = WordKey(begin, stretch.length);
        cache_.prefetch(stretch.key.hash);
      }
      begin = end;
      if (count == kAhead) {
        encode_stretches(stretches, out);
        count = 0;
      }
    }
  }
  encode_stretches(std::span(stretches).first(count), out);
}

void UnigramEncoder::trim_memory() {
  constexpr std::size_t kKept = std::size_t{1} << 16;
  normalized_ = {};
  codes_.shrink(kKept);
  offsets_.shrink(kKept);
  positions_.shrink(kKept);
  if (tokens_.capacity() > kKept) tokens_ = {};
}

void UnigramEncoder::encode_stretches(std::span<const Stretch> stretches,
                                      Buffer<std::int32_t>& out) {
  const float* const scores = model_->scores_.data();
  for (const Stretch& stretch : stretches) {
    if (stretch.length > WordKey::kMaxLength) {
      encode_exactly(stretch.text, stretch.length, out);
      continue;
    }
    const WordCache::Entry* entry = cache_.find(stretch.key, stretch.length);
    if (entry == nullptr) {
      encode_new(stretch, out);
      continue;
    }
    if (!(std::abs(score_) < entry->limit)) {
      encode_exactly(stretch.text, stretch.length, out);
      continue;
    }
    out.reserve_more(WordCache::kMaxIds);
    std::memcpy(out.data() + out.size(), entry->ids.data(), sizeof(entry->ids));
    out.set_size(out.size() + entry->count);
    // Adding in float rounds as adding in double and then rounding to float does: a double has more
    // than twice the digits.
    float score = score_;
    for (std::size_t i = 0; i < entry->count; ++i) {
      score += scores[static_cast<std::size_t>(entry->ids[i])];
    }
    score_ = score;
    after_unknown_ = false;
  }
}

// Runs the programme once for any score so far, and remembers what it found.
void UnigramEncoder::encode_new(const Stretch& stretch, Buffer<std::int32_t>& out) {
  read_characters(stretch.text, stretch.length);
  run_programme<true>(0);
  backtrack();
  const float limit = safe_limit();
  const bool plain = std::all_of(tokens_.begin(), tokens_.end(), [&](const Token& token) {
    return token.node != 0 && !std::isnan(model_->trie_.nodes()[token.node].score);
  });
  if (plain && tokens_.size() <= WordCache::kMaxIds) {
    WordCache::Entry& entry = cache_.insert(stretch.key, stretch.length);
    entry.limit = limit;
    entry.count = static_cast<std::uint8_t>(tokens_.size());
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      entry.ids[i] = model_->trie_.value(tokens_[i].node);
    }
  }
  if (std::abs(score_) < limit) {
    emit(stretch.text, tokens_, out);
  } else {
    encode_exactly(stretch.text, stretch.length, out);
  }
}

void UnigramEncoder::encode_exactly(const char* text, std::size_t length,
                                    Buffer<std::int32_t>& out) {
  read_characters(text, length);
  run_programme<false>(score_);
  backtrack();
  emit(text, tokens_, out);
}

void UnigramEncoder::read_characters(const char* text, std::size_t length) {
  codes_.reserve(length);
  offsets_.reserve(length + 1);
  characters_ = 0;
  for (const char *at = text, *end = text + length; at < end;) {
    const Utf8Char c = decode_utf8(at, end);
    codes_[characters_] = model_->codes_.of(c.code);
    offsets_[characters_++] = static_cast<std::uint32_t>(at - text);
    at += c.length;
  }
  offsets_[characters_] = static_cast<std::uint32_t>(length);
}

// What a piece adds to a score.
double UnigramModel::score_of(std::uint32_t node) const {
  const float score = trie_.nodes()[node].score;
  return std::isnan(score) ? user_defined_.at(trie_.value(node)) : static_cast<double>(score);
}

template <bool kMargins>
void UnigramEncoder::run_programme(float start) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  const std::size_t count = characters_;
  positions_.reserve(count + 1);
  Position* const positions = positions_.data();
  const std::uint32_t* const codes = codes_.data();
  const Trie::Node* const nodes = model_->trie_.nodes().data();
  for (std::size_t i = 0; i <= count; ++i) positions[i] = {kNever, kNever, 0, 0};
  positions[0].score = static_cast<double>(start);
  // The second step of every walk is known beforehand; its nodes arrive together.
  for (std::size_t i = 0; i + 1 < count; ++i) {
    __builtin_prefetch(&nodes[nodes[codes[i]].base + codes[i + 1]]);
  }

  const auto relax = [&](std::size_t from, std::size_t to, double score, std::uint32_t node) {
    Position& position = positions[to];
    if (kMargins) {
      position.second = std::max(position.second, std::min(score, position.score));
    }
    if (score > position.score) {
      position.score = static_cast<double>(static_cast<float>(score));
      position.from = static_cast<std::uint32_t>(from);
      position.node = node;
    }
  };
  for (std::size_t i = 0; i < count; ++i) {
    const double here = positions[i].score;
    std::uint32_t index = codes[i];  // a child of the root, whose base is 0
    bool covered = false;            // a piece of this one character exists
    if (nodes[index].label == codes[i]) {
      covered = nodes[index].score != Trie::kNoKey;
      for (std::size_t to = i + 1;; ++to) {
        // Where no piece ends the score is -infinity, which never wins.
        double score = here + static_cast<double>(nodes[index].score);
        if (std::isnan(score)) [[unlikely]]
          score = here + model_->score_of(index);
        relax(i, to, score, index);
        if (to == count || !nodes[index].may_have(codes[to])) break;
        index = nodes[index].base + codes[to];
        if (nodes[index].label != codes[to]) break;
      }
    }
    if (!covered) {
      // Float plus float: here SentencePiece does not go through double.
      const float score = static_cast<float>(here) + model_->unknown_score_;
      relax(i, i + 1, static_cast<double>(score), 0);
    }
  }
}

void UnigramEncoder::backtrack() {
  tokens_.clear();
  for (std::size_t at = characters_; at > 0; at = positions_[at].from) {
    tokens_.push_back({positions_[at].node, positions_[at].from});
  }
  std::reverse(tokens_.begin(), tokens_.end());
}

// After a run from 0 with margins: the magnitude of a score so far below which the same path wins.
float UnigramEncoder::safe_limit() const {
  double lead = std::numeric_limits<double>::infinity();
  for (std::size_t at = characters_; at > 0; at = positions_[at].from) {
    lead = std::min(lead, positions_[at].score - positions_[at].second);
  }
  const auto c = static_cast<double>(characters_);
  const double range = c * model_->max_cost_;
  lead -= 2 * c * (range * 0x1p-24);  // this run rounded, too
  if (!(lead > 0)) return 0;
  // 2 * c * (limit + range) * 2^-24 < lead, with something to spare for rounding in this line.
  return static_cast<float>(0.999 * lead * 0x1p23 / c - range);
}

void UnigramEncoder::emit(const char* text, const std::vector<Token>& tokens,
                          Buffer<std::int32_t>& out) {
  for (const Token& token : tokens) {
    if (token.node == 0) {
      score_ += model_->unknown_score_;
      const std::uint32_t begin = offsets_[token.begin];
      emit_unknown(text + begin, offsets_[token.begin + 1] - begin, out);
      continue;
    }
    score_ = static_cast<float>(static_cast<double>(score_) + model_->score_of(token.node));
    out.push_back(model_->trie_.value(token.node));
    after_unknown_ = false;
  }
}

void UnigramEncoder::emit_unknown(const char* text, std::size_t length, Buffer<std::int32_t>& out) {
  ++unknown_characters_;
  if (model_->byte_fallback_) {
    const std::string_view bytes =
        *text == kSpaceMark ? kSpaceMarkText : std::string_view(text, length);
    for (const char byte : bytes) out.push_back(model_->byte_ids_[static_cast<std::uint8_t>(byte)]);
  } else if (!after_unknown_) {
    out.push_back(model_->unknown_id_);
  }
  after_unknown_ = true;
}

}  // namespace quintet
