// A tensor's shape: up to four dims, row-major, the last one contiguous.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include <fmt/format.h>

#include "base/check.h"

namespace quintet {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) {
    for (const std::int64_t dim : dims) append(dim);
  }

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const {
    QT_CHECK(i >= 0 && i < rank_, "dim {} of a rank-{} shape", i, rank_);
    return dims_[static_cast<std::size_t>(i)];
  }
  void append(std::int64_t dim) {
    QT_CHECK(rank_ < kMaxRank && dim >= 0, "dim {} appended to {}", dim, str());
    dims_[static_cast<std::size_t>(rank_++)] = dim;
  }

  std::int64_t numel() const {
    std::int64_t count = 1;
    for (int i = 0; i < rank_; ++i) count *= dims_[static_cast<std::size_t>(i)];
    return count;
  }
  // The shape seen as a matrix: [rows(), cols()].
  std::int64_t cols() const { return rank_ == 0 ? 1 : (*this)[rank_ - 1]; }
  std::int64_t rows() const {
    std::int64_t count = 1;
    for (int i = 0; i + 1 < rank_; ++i) count *= dims_[static_cast<std::size_t>(i)];
    return count;
  }
  // The same shape with another last dim.
  Shape with_cols(std::int64_t cols) const {
    Shape out = *this;
    out.dims_[static_cast<std::size_t>(rank_ - 1)] = cols;
    return out;
  }
  // All dims but the last.
  Shape leading() const {
    Shape out = *this;
    out.dims_[static_cast<std::size_t>(--out.rank_)] = 0;
    return out;
  }

  bool operator==(const Shape&) const = default;

  std::string str() const {
    std::string out = "[";
    for (int i = 0; i < rank_; ++i) {
      out += fmt::format("{}{}", i ? "," : "", dims_[static_cast<std::size_t>(i)]);
    }
    return out + "]";
  }

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace quintet
