// A fixed array for random access by the million: on large pages where the system has them, because
// with small ones most accesses miss the TLB as well. Zero-filled.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include <sys/mman.h>

namespace quintet {

template <class T>
class LargeArray {
  static_assert(std::is_trivially_destructible_v<T> && std::is_trivially_copyable_v<T>);

 public:
  LargeArray() = default;
  // Throws std::bad_alloc when the system has no memory.
  explicit LargeArray(std::size_t size) : size_(size) {
    if (size == 0) return;
    // One page more than needed, so that the array can begin at a page's beginning.
    mapped_ = size * sizeof(T) + kLargePage;
    map_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map_ == MAP_FAILED) throw std::bad_alloc();
    const auto address = reinterpret_cast<std::uintptr_t>(map_);
    data_ = reinterpret_cast<T*>((address + kLargePage - 1) / kLargePage * kLargePage);
    ::madvise(map_, mapped_, MADV_HUGEPAGE);  // a wish: nothing is wrong if it is not granted
  }
  LargeArray(LargeArray&& other) noexcept { swap(other); }
  LargeArray& operator=(LargeArray&& other) noexcept {
    swap(other);
    return *this;
  }
  ~LargeArray() {
    if (mapped_ > 0) ::munmap(map_, mapped_);
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }

 private:
  static constexpr std::size_t kLargePage = std::size_t{2} << 20;
  void swap(LargeArray& other) noexcept {
    std::swap(map_, other.map_);
    std::swap(mapped_, other.mapped_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  void* map_ = nullptr;
  std::size_t mapped_ = 0;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace quintet
