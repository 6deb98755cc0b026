// A growable array of plain values that does not clear what it allocates: for output whose bound is
// known before its contents. Memory is kept between uses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

namespace quintet {

template <class T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  bool empty() const { return size_ == 0; }
  std::span<T> span() { return {data(), size_}; }
  std::span<const T> span() const { return {data(), size_}; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }

  void clear() { size_ = 0; }
  // What lies beyond the old size, up to the capacity, may have been written through data().
  void set_size(std::size_t size) { size_ = size; }
  // Room for `capacity` values in all; keeps the first size() of them.
  void reserve(std::size_t capacity) {
    if (capacity <= capacity_) return;
    capacity = std::max(capacity, capacity_ + capacity_ / 2);
    auto grown = std::make_unique_for_overwrite<T[]>(capacity);
    if (size_ > 0) std::memcpy(grown.get(), data_.get(), size_ * sizeof(T));
    data_ = std::move(grown);
    capacity_ = capacity;
  }
  void reserve_more(std::size_t more) { reserve(size_ + more); }
  void push_back(T value) {
    if (size_ == capacity_) reserve_more(16);
    data_[size_++] = value;
  }
  void append(std::span<const T> values) {
    if (values.empty()) return;
    reserve_more(values.size());
    std::memcpy(data_.get() + size_, values.data(), values.size_bytes());
    size_ += values.size();
  }
  // Gives memory back after an unusually large use.
  void shrink(std::size_t most) {
    if (capacity_ > most && size_ == 0) {
      data_.reset();
      capacity_ = 0;
    }
  }

 private:
  std::unique_ptr<T[]> data_;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace quintet
