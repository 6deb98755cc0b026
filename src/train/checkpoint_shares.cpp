#include "train/checkpoint_shares.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "base/check.h"
#include "base/index.h"

namespace quintet {
namespace {

// Equal pieces on several ranks.
struct Copies {
  const HeldPiece* piece = nullptr;
  std::vector<std::pair<std::int32_t, std::int32_t>> where;  // rank, its piece
  bool counted = false;
};

// What covers each weight once, with all copies of it. Of a kind of value.
std::vector<std::vector<Copies>> covers(const std::vector<std::vector<HeldPiece>>& pieces,
                                        bool per_element, std::size_t weights) {
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t>;
  std::vector<std::map<Key, Copies>> by_place(weights);
  for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
    for (std::size_t i = 0; i < pieces[rank].size(); ++i) {
      const HeldPiece& piece = pieces[rank][i];
      if ((piece.per_element != 0) != per_element) continue;
      Copies& copies = by_place[index(piece.weight)][{piece.row0, piece.rows, piece.col0,
                                                      piece.cols, piece.first, piece.count}];
      copies.piece = &piece;
      copies.where.emplace_back(static_cast<std::int32_t>(rank), static_cast<std::int32_t>(i));
      copies.counted = copies.counted || piece.counted != 0;
    }
  }
  std::vector<std::vector<Copies>> result(weights);
  for (std::size_t w = 0; w < weights; ++w) {
    for (auto& [key, copies] : by_place[w])
      if (copies.counted) result[w].push_back(std::move(copies));
  }
  return result;
}

// Shares out blocks so that no rank gets more than its limit.
class Balance {
 public:
  Balance(std::int64_t limit, std::size_t ranks) : limit_(limit), loads_(ranks, 0) {}

  // The rank with most of the block that has room for it; of equals, each in turn.
  std::int32_t choose(const std::vector<Contribution>& parts, std::int64_t block,
                      std::int64_t bytes) {
    std::map<std::int32_t, std::int64_t> have;
    for (const Contribution& part : parts) have[part.rank] += part.count;
    std::int64_t most = 0;
    std::vector<std::int32_t> best;
    for (const auto& [rank, count] : have) {
      if (count < most || loads_[index(rank)] + bytes > limit_) continue;
      if (count > most) best.clear();
      most = count;
      best.push_back(rank);
    }
    if (best.empty()) {
      best.push_back(static_cast<std::int32_t>(std::min_element(loads_.begin(), loads_.end()) -
                                               loads_.begin()));
    }
    const std::int32_t chosen = best[index(block) % best.size()];
    loads_[index(chosen)] += bytes;
    QT_CHECK(loads_[index(chosen)] <= limit_, "rank {} would write {} bytes, {} are planned",
             chosen, loads_[index(chosen)], limit_);
    return chosen;
  }

 private:
  const std::int64_t limit_;
  std::vector<std::int64_t> loads_;
};

}  // namespace

std::int64_t HeldPiece::before(std::int64_t element) const {
  const std::int64_t row = element / width - row0, col = element % width - col0;
  if (row < 0) return 0;
  if (row >= rows) return rows * cols;
  return row * cols + std::clamp<std::int64_t>(col, 0, cols);
}

std::string pieces_to_text(const std::vector<HeldPiece>& pieces) {
  return {reinterpret_cast<const char*>(pieces.data()), pieces.size() * sizeof(HeldPiece)};
}

std::vector<HeldPiece> pieces_from_text(const std::string& text) {
  std::vector<HeldPiece> pieces(text.size() / sizeof(HeldPiece));
  std::memcpy(pieces.data(), text.data(), pieces.size() * sizeof(HeldPiece));
  return pieces;
}

std::vector<BlockShare> share_blocks(const CheckpointLayout& layout,
                                     const std::vector<std::vector<HeldPiece>>& pieces,
                                     std::int32_t rank) {
  std::size_t weights = 0;
  for (const auto& tensor : layout.tensors) weights = std::max(weights, index(tensor.weight) + 1);
  const auto elements = covers(pieces, true, weights), whole = covers(pieces, false, weights);
  Balance balance(share_limit(layout, static_cast<std::int64_t>(pieces.size())), pieces.size());
  constexpr std::int64_t kBlockElements = kBlockBytes / 4;
  std::vector<BlockShare> mine;
  for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
    const CheckpointLayout::Tensor& tensor = layout.tensors[t];
    const auto& cover = (tensor.per_element ? elements : whole)[index(tensor.weight)];
    for (std::int64_t b = 0; b < tensor.blocks(); ++b) {
      BlockShare share;
      share.tensor = static_cast<std::int32_t>(t);
      share.block = tensor.first_block + b;
      share.first = b * kBlockElements;
      share.count = std::min(kBlockElements, tensor.elements - share.first);
      std::int64_t covered = 0;
      for (const Copies& copies : cover) {
        const HeldPiece& piece = *copies.piece;
        const std::int64_t begin = std::max(piece.before(share.first), piece.first);
        const std::int64_t end =
            std::min(piece.before(share.first + share.count), piece.first + piece.count);
        if (begin >= end) continue;
        const auto& [from, number] = copies.where[index(share.block) % copies.where.size()];
        share.parts.push_back({from, number, begin, end - begin});
        covered += end - begin;
      }
      QT_CHECK(covered == share.count, "{}: ranks have {} elements of {} from {} on", tensor.name,
               covered, share.count, share.first);
      share.writer = balance.choose(share.parts, share.block, share.count * 4);
      if (share.writer != rank)
        std::erase_if(share.parts, [&](const Contribution& part) { return part.rank != rank; });
      if (!share.parts.empty()) mine.push_back(std::move(share));
    }
  }
  return mine;
}

}  // namespace quintet
