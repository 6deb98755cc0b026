#include "data/corpus/duplicates.h"

#include <algorithm>
#include <bit>
#include <set>

#include <xxhash.h>

#include "base/check.h"

namespace quintet {
namespace {

constexpr std::uint64_t kMaxPartitions = 4096;
// Input, compressed perhaps to a sixth, of documents of 50 bytes fills a partition of 128 MiB.
constexpr std::uint64_t kInputPerPartition = std::uint64_t{43} << 20;
constexpr std::size_t kBufferedRecords = 256;  // of each: 6 KiB
constexpr unsigned kIndexBits = 24;
constexpr std::uint64_t kBlocksPerList = 512;

std::uint64_t pack(const DocumentPlace& place) {
  QT_CHECK(place.index >> kIndexBits == 0, "document {} of a block", place.index);
  return place.block << kIndexBits | place.index;
}

Path list_path(const Path& folder, std::uint64_t list) {
  return folder / fmt::format("left-out-{:08}", list);
}

// A file of plain records.
template <class T>
Result<std::vector<T>> read_records(const Path& path) {
  QT_ASSIGN(const std::string bytes, read_file(path));
  if (bytes.size() % sizeof(T) != 0) {
    return bad_input("{}: {} bytes are no whole number of records", path.string(), bytes.size());
  }
  std::vector<T> records(bytes.size() / sizeof(T));
  if (!records.empty()) std::memcpy(records.data(), bytes.data(), bytes.size());
  return records;
}

}  // namespace

Fingerprint fingerprint_of(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return {hash.high64, hash.low64};
}

DuplicateFinder::DuplicateFinder(FileStore& files, Path folder, std::size_t partitions)
    : files_(&files),
      folder_(std::move(folder)),
      partitions_(partitions),
      sizes_(partitions, 0),
      unsynced_(partitions, false) {}

std::size_t DuplicateFinder::partitions_for(std::uint64_t input_bytes) {
  return std::clamp<std::uint64_t>(std::bit_ceil(input_bytes / kInputPerPartition), 1,
                                   kMaxPartitions);
}

Path DuplicateFinder::partition_path(std::size_t partition) const {
  return folder_ / fmt::format("fingerprints-{:04}", partition);
}

Status DuplicateFinder::resume(const std::vector<std::uint64_t>& sizes) {
  QT_CHECK(sizes.size() == sizes_.size(), "{} sizes of {} files", sizes.size(), sizes_.size());
  sizes_ = sizes;
  for (std::size_t i = 0; i < partitions_.size(); ++i) {
    partitions_[i].clear();
    QT_TRY(files_->truncate(partition_path(i), sizes_[i]));
  }
  return {};
}

Status DuplicateFinder::add(const Fingerprint& fingerprint, const DocumentPlace& place) {
  const std::size_t partition = fingerprint.high % partitions_.size();
  Buffer<Record>& records = partitions_[partition];
  records.push_back({fingerprint, pack(place)});
  if (records.size() < kBufferedRecords) return {};
  const auto bytes = std::as_bytes(records.span());
  QT_TRY(files_->append(partition_path(partition), bytes));
  sizes_[partition] += bytes.size();
  records.clear();
  unsynced_[partition] = true;
  return {};
}

Result<std::vector<std::uint64_t>> DuplicateFinder::flush() {
  for (std::size_t i = 0; i < partitions_.size(); ++i) {
    if (partitions_[i].empty()) continue;
    const auto bytes = std::as_bytes(partitions_[i].span());
    QT_TRY(files_->append(partition_path(i), bytes));
    sizes_[i] += bytes.size();
    partitions_[i].clear();
    unsynced_[i] = true;
  }
  // Whoever notes these sizes may rely on them after a crash.
  for (std::size_t i = 0; i < partitions_.size(); ++i) {
    if (unsynced_[i]) QT_TRY(files_->sync(partition_path(i)));
    unsynced_[i] = false;
  }
  return sizes_;
}

Status DuplicateFinder::find() {
  QT_ASSIGN(const auto sizes, flush());
  // What an earlier attempt left must not be added to.
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().filename().string().starts_with("left-out-")) {
      QT_TRY(files_->remove(entry.path()));
    }
  }
  std::set<std::uint64_t> written;
  for (std::size_t i = 0; i < partitions_.size(); ++i) {
    if (sizes[i] == 0) continue;
    QT_ASSIGN(std::vector<Record> records, read_records<Record>(partition_path(i)));
    std::sort(records.begin(), records.end(), [](const Record& a, const Record& b) {
      return a.fingerprint != b.fingerprint ? a.fingerprint < b.fingerprint : a.place < b.place;
    });
    std::map<std::uint64_t, std::vector<std::uint64_t>> lists;
    for (std::size_t k = 1; k < records.size(); ++k) {
      if (records[k].fingerprint != records[k - 1].fingerprint) continue;
      lists[(records[k].place >> kIndexBits) / kBlocksPerList].push_back(records[k].place);
    }
    for (const auto& [list, places] : lists) {
      QT_TRY(files_->append(list_path(folder_, list), std::as_bytes(std::span(places))));
      written.insert(list);
    }
  }
  for (const std::uint64_t list : written) QT_TRY(files_->sync(list_path(folder_, list)));
  return {};
}

Status DuplicateFinder::clean() {
  std::error_code failure;
  std::filesystem::remove_all(folder_, failure);
  if (failure) return io_error("{}: cannot remove: {}", folder_.string(), failure.message());
  return {};
}

Result<std::vector<std::uint32_t>> DuplicateList::in_block(std::uint64_t block) {
  std::vector<std::uint32_t> found;
  if (folder_.empty()) return found;
  if (const std::uint64_t list = block / kBlocksPerList; list != loaded_) {
    loaded_ = list;
    places_.clear();
    const Path path = list_path(folder_, list);
    if (std::filesystem::exists(path)) {
      QT_ASSIGN(places_, read_records<std::uint64_t>(path));
      std::sort(places_.begin(), places_.end());
    }
  }
  for (auto it = std::lower_bound(places_.begin(), places_.end(), block << kIndexBits);
       it != places_.end() && *it >> kIndexBits == block; ++it) {
    found.push_back(static_cast<std::uint32_t>(*it & ((1u << kIndexBits) - 1)));
  }
  return found;
}

}  // namespace quintet
