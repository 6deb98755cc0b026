#include "base/tensor_files.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/ranges.h>

#include "base/bf16.h"
#include "base/checksum.h"
#include "base/fp16.h"
#include "base/index.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "base/text.h"

namespace quintet {
namespace {

bool can_be_read(const std::string& dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

template <class T>
void widen(const std::byte* from, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    values[i] = static_cast<float>(value);
  }
}

// "a, b, c and 7 more".
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  const std::size_t shown = std::min(kShown, names.size());
  std::string text = join(std::span(names).first(shown), ", ");
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace

Result<std::vector<std::string>> files_of_index(const std::string& text,
                                                const std::string& origin) {
  QT_ASSIGN(const Json json, parse_json(text, origin));
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return bad_input("{}: not an index: \"weight_map\" is missing", origin);
  }
  std::set<std::string> names;
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string()) return bad_input("{}: the file of \"{}\" is not a name", origin, name);
    const auto value = file.get<std::string>();
    if (value.empty() || value == "." || value == ".." ||
        value.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
      return bad_input(
          "{}: the file of \"{}\" is \"{}\"; only names of files beside the index can "
          "be read",
          origin, name, value);
    }
    names.insert(value);
  }
  if (names.empty()) return bad_input("{}: lists no tensors", origin);
  return std::vector<std::string>(names.begin(), names.end());
}

Result<TensorFiles> TensorFiles::open(const Path& folder, const std::string& stem) {
  TensorFiles result;
  result.folder_ = folder;
  const Path one = folder / (stem + ".safetensors");
  const Path index = folder / (stem + ".safetensors.index.json");
  std::error_code failure;
  if (std::filesystem::exists(one, failure) || !std::filesystem::exists(index, failure)) {
    QT_TRY(result.add_file(one));
    return result;
  }
  QT_ASSIGN(const std::string text, read_file(index));
  QT_ASSIGN(const auto names, files_of_index(text, index.string()));
  for (const std::string& name : names) {
    if (!std::filesystem::exists(folder / name, failure))
      return bad_input("{}: lists the file {}, which is not there", index.string(), name);
    QT_TRY(result.add_file(folder / name));
  }
  return result;
}

Status TensorFiles::add_file(const Path& path) {
  const std::string origin = path.string();
  QT_ASSIGN(ReadableFile file, ReadableFile::open(path));
  std::byte begin[8] = {};
  QT_TRY(file.read_at(0, std::span(begin).first(index(std::min<std::int64_t>(8, file.size())))));
  QT_ASSIGN(const std::int64_t length,
            SafetensorsHeader::length(std::span(begin), file.size(), origin));
  std::string text(index(length), '\0');
  QT_TRY(file.read_at(8, std::as_writable_bytes(std::span(text))));
  QT_ASSIGN(SafetensorsHeader header,
            SafetensorsHeader::parse(text, file.size() - 8 - length, origin));
  for (auto& [name, tensor] : header.tensors) {
    Tensor stored{tensor.dtype,
                  std::move(tensor.shape),
                  files_.size(),
                  8 + length + tensor.begin,
                  tensor.end - tensor.begin,
                  {}};
    if (!tensors_.emplace(name, std::move(stored)).second) {
      return bad_input("{}: tensor \"{}\" is in another file of {}, too", origin, name,
                       folder_.string());
    }
  }
  files_.push_back(std::move(file));
  return {};
}

Status TensorFiles::expect(const std::vector<Wanted>& wanted) const {
  std::vector<std::string> missing, wrong, extra;
  std::set<std::string> known;
  for (const Wanted& w : wanted) {
    known.insert(w.name);
    const auto at = tensors_.find(w.name);
    if (at == tensors_.end()) {
      missing.push_back(fmt::format("\"{}\"", w.name));
    } else if (at->second.shape != w.shape) {
      wrong.push_back(fmt::format("\"{}\" has shape [{}], the model needs [{}]", w.name,
                                  fmt::join(at->second.shape, ", "), fmt::join(w.shape, ", ")));
    } else if (!can_be_read(at->second.dtype)) {
      wrong.push_back(
          fmt::format("\"{}\" is {}; F32, BF16 and F16 can be read", w.name, at->second.dtype));
    }
  }
  for (const auto& [name, tensor] : tensors_)
    if (!known.contains(name)) extra.push_back(fmt::format("\"{}\"", name));
  std::vector<std::string> found;
  if (!wrong.empty()) found.push_back("tensor " + some_of(wrong));
  if (!missing.empty()) found.push_back("missing: tensor " + some_of(missing));
  if (!extra.empty()) found.push_back("not part of this model: tensor " + some_of(extra));
  if (found.empty()) return {};
  return bad_input("{}: {}", files_.size() == 1 ? files_.front().path().string() : folder_.string(),
                   join(found, "; "));
}

Status TensorFiles::check_readable(const std::string& name) const {
  const Tensor& tensor = tensors_.at(name);
  if (can_be_read(tensor.dtype)) return {};
  return bad_input("{}: tensor \"{}\" is {}; F32, BF16 and F16 can be read",
                   files_[tensor.file].path().string(), name, tensor.dtype);
}

void TensorFiles::rename(const std::string& from, const std::string& to) {
  auto tensor = tensors_.extract(from);
  QT_CHECK(!tensor.empty() && !tensors_.contains(to), "{} as {}", from, to);
  tensor.key() = to;
  tensors_.insert(std::move(tensor));
}

void TensorFiles::leave_out(const std::string& name) {
  tensors_.erase(name);
  at_hand_ = nullptr;
}

Status TensorFiles::check_blocks(
    std::int64_t block_bytes, const std::map<std::string, std::vector<std::uint64_t>>& checksums) {
  QT_CHECK(block_bytes > 0 && block_bytes % 8 == 0, "blocks of {} bytes", block_bytes);
  for (auto& [name, tensor] : tensors_) {
    const auto at = checksums.find(name);
    const std::int64_t blocks = (tensor.bytes + block_bytes - 1) / block_bytes;
    if (at == checksums.end() || static_cast<std::int64_t>(at->second.size()) != blocks) {
      return bad_input("{}: tensor \"{}\" has {} blocks, there are {} checksums",
                       files_[tensor.file].path().string(), name, blocks,
                       at == checksums.end() ? 0 : at->second.size());
    }
    tensor.checksums = at->second;
  }
  block_bytes_ = block_bytes;
  at_hand_ = nullptr;
  return {};
}

Status TensorFiles::fetch(const std::string& name, const Tensor& tensor, std::int64_t block) {
  if (at_hand_ == &tensor && block_ == block) return {};
  at_hand_ = nullptr;
  const std::int64_t begin = block * block_bytes_;
  bytes_.resize(index(std::min(block_bytes_, tensor.bytes - begin)));
  const ReadableFile& file = files_[tensor.file];
  QT_TRY(file.read_at(tensor.offset + begin, bytes_));
  bytes_read_ += static_cast<std::int64_t>(bytes_.size());
  if (!tensor.checksums.empty()) {
    const std::uint64_t expected = tensor.checksums[index(block)], found = checksum(bytes_);
    if (found != expected) {
      return bad_input(
          "{}: tensor \"{}\" is damaged: bytes [{}, +{}) of the file have checksum {}, written was "
          "{}",
          file.path().string(), name, tensor.offset + begin, bytes_.size(), checksum_text(found),
          checksum_text(expected));
    }
  }
  at_hand_ = &tensor;
  block_ = block;
  return {};
}

Status TensorFiles::read(const std::string& name, std::int64_t first, std::span<float> values) {
  const Tensor& tensor = tensors_.at(name);
  const std::int64_t element = tensor.dtype == "F32" ? 4 : 2;
  QT_CHECK(
      first >= 0 && (first + static_cast<std::int64_t>(values.size())) * element <= tensor.bytes,
      "elements [{}, +{}) of {}", first, values.size(), name);
  const std::int64_t per_block = block_bytes_ / element;
  while (!values.empty()) {
    const std::int64_t block = first / per_block, inside = first % per_block;
    QT_TRY(fetch(name, tensor, block));
    const std::size_t count = std::min(values.size(), index(per_block - inside));
    const std::byte* from = bytes_.data() + inside * element;
    if (tensor.dtype == "F32") {
      std::memcpy(values.data(), from, count * sizeof(float));
    } else if (tensor.dtype == "BF16") {
      widen<bf16>(from, values.first(count));
    } else {
      widen<fp16>(from, values.first(count));
    }
    values = values.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
  return {};
}

Status TensorFiles::verify(const std::string& name) {
  const Tensor& tensor = tensors_.at(name);
  for (std::int64_t block = 0; block * block_bytes_ < tensor.bytes; ++block)
    QT_TRY(fetch(name, tensor, block));
  return {};
}

}  // namespace quintet
