#include "data/loader/stretches.h"

#include <algorithm>

#include "base/check.h"
#include "data/loader/apportion.h"
#include "data/loader/permutation.h"
#include "data/loader/random_streams.h"

namespace quintet {
namespace {

constexpr std::uint64_t kTableRows = 1 << 10;  // where there are several kinds

}  // namespace

DenoiserTable::DenoiserTable(const Objective& objective, std::uint64_t seed) {
  std::vector<double> weights;
  for (const Denoiser& denoiser : objective.denoisers()) weights.push_back(denoiser.weight);
  const std::uint64_t rows = weights.size() == 1 ? 1 : kTableRows;
  const std::vector<std::uint64_t> counts = apportion(rows, weights);
  for (std::size_t k = 0; k < counts.size(); ++k) {
    denoisers_.insert(denoisers_.end(), counts[k], static_cast<std::uint8_t>(k));
  }
  PhiloxSequence random(seed, stream_of("denoisers"));
  for (auto i = static_cast<std::uint32_t>(rows); i > 1; --i) {
    std::swap(denoisers_[i - 1], denoisers_[random.below(i)]);
  }
  std::uint64_t end = 0;
  for (const std::uint8_t k : denoisers_) {
    ends_.push_back(end += static_cast<std::uint64_t>(objective.denoisers()[k].tokens));
  }
}

std::size_t DenoiserTable::rows_in(std::uint64_t tokens) const {
  return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), tokens) -
                                  ends_.begin());
}

Stretches::Stretches(std::string name, std::uint64_t text_tokens, const DenoiserTable& table,
                     std::uint64_t seed)
    : name_(std::move(name)), text_tokens_(text_tokens), table_(&table), seed_(seed) {
  rows_ = text_tokens / table.tokens() * table.rows() + table.rows_in(text_tokens % table.tokens());
  rows_ = std::max<std::uint64_t>(rows_, 1);
}

Stretches::Stretch Stretches::at(std::uint64_t number) const {
  Stretch stretch;
  stretch.epoch = number / rows_;
  const Permutation order(rows_, seed_, random_stream("stretches", name_, stretch.epoch));
  const std::uint64_t place = order(number % rows_);
  const std::size_t row = place % table_->rows();
  stretch.denoiser = table_->denoiser(row);
  stretch.tokens = std::min(text_tokens_, table_->end(row) - table_->begin(row));
  // Cuts fall elsewhere in every epoch, and so do the tokens left over: fewer than a row's.
  const auto words = philox(seed_, random_stream("shift", name_, stretch.epoch), 0);
  const std::uint64_t shift = (std::uint64_t{words[0]} << 32 | words[1]) % text_tokens_;
  const std::uint64_t begin = place / table_->rows() * table_->tokens() + table_->begin(row);
  stretch.begin = (shift + begin) % text_tokens_;
  return stretch;
}

}  // namespace quintet
