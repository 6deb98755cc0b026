#include "train/checkpoint_blocks.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <optional>

#include "base/checksum.h"
#include "base/index.h"

namespace quintet {
namespace {

constexpr std::size_t kBlockElements = kBlockBytes / sizeof(float);

// The first value that is infinite or no number.
std::optional<std::size_t> first_not_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t found = 0;
  for (const float v : values)
    found |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(v) & kExponent) == kExponent);
  if (found == 0) return std::nullopt;
  for (std::size_t i = 0;; ++i)
    if ((std::bit_cast<std::uint32_t>(values[i]) & kExponent) == kExponent) return i;
}

}  // namespace

BlockWriters::BlockWriters(FileStore& files, const CheckpointLayout& layout, const Path& folder,
                           std::span<float> memory, bool room_for_all, int threads)
    : store_(files),
      layout_(layout),
      folder_(folder),
      memory_(memory),
      room_for_all_(room_for_all),
      files_(layout.files.size()),
      running_(threads) {
  for (std::size_t at = 0; !room_for_all && at + kBlockElements <= memory.size();
       at += kBlockElements)
    free_.push_back(at);
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

BlockWriters::~BlockWriters() {
  {
    const std::lock_guard lock(mutex_);
    dropped_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::span<float> BlockWriters::acquire(std::int64_t count) {
  if (room_for_all_) {
    const std::size_t begin = next_;
    next_ += index(count);
    return memory_.subspan(begin, index(count));
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !free_.empty(); });
  const std::size_t begin = free_.back();
  free_.pop_back();
  return memory_.subspan(begin, index(count));
}

void BlockWriters::put(const BlockShare& share, std::span<const float> values) {
  {
    const std::lock_guard lock(mutex_);
    filled_.push_back({layout_.tensors[index(share.tensor)].file, &share, values});
  }
  changed_.notify_all();
}

void BlockWriters::put_header(std::int32_t file) {
  {
    const std::lock_guard lock(mutex_);
    filled_.push_back({file, nullptr, {}});
  }
  changed_.notify_all();
}

void BlockWriters::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

bool BlockWriters::done() const {
  const std::lock_guard lock(mutex_);
  return running_ == 0;
}

Status BlockWriters::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return running_ == 0; });
  return status_;
}

void BlockWriters::fail(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (status_.ok()) status_ = status;
}

Result<PlacedFile*> BlockWriters::open(std::int32_t file) {
  // Opening may take its time: writers wait for it, but nobody who hands over blocks.
  const std::lock_guard opening(opening_);
  OpenFile& open = files_[index(file)];
  if (!open.file) {
    QT_ASSIGN(open.file, store_.open(folder_ / layout_.files[index(file)].name));
  }
  const std::lock_guard lock(mutex_);
  open.used = true;
  return open.file.get();
}

Status BlockWriters::write(const Filled& block) {
  try {
    if (block.share != nullptr) return write_block(*block.share, block.values);
    QT_ASSIGN(PlacedFile* const file, open(block.file));
    return file->write_at(0, std::as_bytes(std::span(layout_.files[index(block.file)].header)));
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kInternal, "writing a checkpoint: {}", error.what());
  }
}

Status BlockWriters::write_block(const BlockShare& share, std::span<const float> values) {
  const CheckpointLayout::Tensor& tensor = layout_.tensors[index(share.tensor)];
  if (const auto bad = first_not_finite(values)) {
    return make_error(ErrorCode::kNonFinite,
                      "the checkpoint was not written: element {} of \"{}\" is {}, not finite; "
                      "older checkpoints are as they were",
                      share.first + static_cast<std::int64_t>(*bad), tensor.name, values[*bad]);
  }
  const auto bytes = std::as_bytes(values);
  const std::uint64_t sum = checksum(bytes);
  QT_ASSIGN(PlacedFile* const file, open(tensor.file));
  QT_TRY(file->write_at(tensor.offset + share.first * 4, bytes));
  const std::lock_guard lock(mutex_);
  sums_.emplace_back(share.block, sum);
  return {};
}

void BlockWriters::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !filled_.empty() || closed_ || dropped_; });
    if (dropped_ || filled_.empty()) break;
    // A file lets one thread write at a time: the next block whose file is free, if there is one.
    auto at = std::find_if(filled_.begin(), filled_.end(),
                           [&](const Filled& f) { return files_[index(f.file)].writing == 0; });
    if (at == filled_.end()) at = filled_.begin();
    const Filled block = *at;
    filled_.erase(at);
    int& writing = files_[index(block.file)].writing;
    ++writing;
    const bool failed = !status_.ok();  // what comes after a failure is let go
    lock.unlock();
    if (!failed) {
      if (const Status status = write(block); !status.ok()) fail(status);
    }
    lock.lock();
    --writing;
    if (!room_for_all_ && block.share != nullptr) {
      free_.push_back(static_cast<std::size_t>(block.values.data() - memory_.data()));
      changed_.notify_all();
    }
  }
  // Nothing is left to begin, but others may still be writing: a file is flushed by the last thread
  // that had to do with it.
  for (std::size_t f = 0; f < files_.size(); ++f) {
    OpenFile& open = files_[f];
    if (!open.used || open.flushed || open.writing > 0 || dropped_ || !status_.ok()) continue;
    open.flushed = true;
    lock.unlock();
    const Status status = open.file->sync();
    lock.lock();
    if (!status.ok() && status_.ok()) status_ = status;
  }
  if (--running_ == 0) {
    for (OpenFile& open : files_) open.file.reset();
  }
  changed_.notify_all();
}

}  // namespace quintet
