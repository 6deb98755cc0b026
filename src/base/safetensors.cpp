#include "base/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace quintet {
namespace {

// A header may have very many keys, which Json would search one by one.
using SortedJson = nlohmann::json;

// A header longer than this describes no model; the format's own limit is the same.
constexpr std::uint64_t kMaxHeader = 100'000'000;

struct FileDType {
  const char* name;
  std::int64_t bits;
};
constexpr FileDType kFileDTypes[] = {{"BOOL", 8},    {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8},
                                     {"F8_E4M3", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16},
                                     {"BF16", 16},   {"I32", 32}, {"U32", 32}, {"F32", 32},
                                     {"F64", 64},    {"I64", 64}, {"U64", 64}};

std::int64_t size_of_file_dtype(const std::string& name) {
  for (const FileDType& dtype : kFileDTypes) {
    if (name == dtype.name) return dtype.bits / 8;
  }
  return 0;
}

// Parses JSON and notes any key that an object has twice: nlohmann keeps the last one silently.
SortedJson parse_strict(std::string_view text, std::string& duplicate) {
  std::vector<std::set<std::string>> seen;
  const auto watch = [&](int, SortedJson::parse_event_t event, SortedJson& value) {
    if (event == SortedJson::parse_event_t::object_start) seen.emplace_back();
    if (event == SortedJson::parse_event_t::object_end && !seen.empty()) seen.pop_back();
    if (event == SortedJson::parse_event_t::key && !seen.empty() && duplicate.empty()) {
      const auto key = value.get<std::string>();
      if (!seen.back().insert(key).second) duplicate = key;
    }
    return true;
  };
  return SortedJson::parse(text, watch, /*allow_exceptions=*/false);
}

bool as_size(const SortedJson& value, std::int64_t& out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned()) {
    if (value.get<std::uint64_t>() > (1ull << 60)) return false;
  } else if (value.get<std::int64_t>() < 0) {
    return false;
  }
  out = value.get<std::int64_t>();
  return true;
}

struct Range {
  std::int64_t begin, end;
  const std::string* name;
};

}  // namespace

Result<std::int64_t> SafetensorsHeader::length(std::span<const std::byte> begin,
                                               std::int64_t file_size, const std::string& origin) {
  if (file_size < 8 || begin.size() < 8) {
    return bad_input("{}: {} bytes are too few for a safetensors file; truncated?", origin,
                     file_size);
  }
  std::uint64_t size = 0;
  std::memcpy(&size, begin.data(), 8);
  const auto there = static_cast<std::uint64_t>(file_size - 8);
  if (size > kMaxHeader || size > there) {
    return bad_input(
        "{}: header of {} bytes announced, {} bytes are there; truncated or not safetensors",
        origin, size, there);
  }
  return static_cast<std::int64_t>(size);
}

Result<SafetensorsHeader> SafetensorsHeader::parse(std::string_view text, std::int64_t data_size,
                                                   const std::string& origin) {
  // Deep nesting would exhaust the parser's stack on destruction; a header has depth three.
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > 8) return bad_input("{}: header is nested too deeply", origin);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  std::string duplicate;
  const SortedJson header = parse_strict(text, duplicate);
  if (header.is_discarded() || !header.is_object()) {
    return bad_input("{}: header is not a JSON object", origin);
  }
  if (!duplicate.empty())
    return bad_input("{}: \"{}\" appears twice in the header", origin, duplicate);

  SafetensorsHeader result;
  std::vector<Range> ranges;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) return bad_input("{}: __metadata__ is not an object", origin);
      for (const auto& [key, entry] : value.items()) {
        if (!entry.is_string())
          return bad_input("{}: __metadata__.{} is not a string", origin, key);
        result.metadata[key] = entry.get<std::string>();
      }
      continue;
    }
    const auto fail = [&, name = name](const std::string& why) {
      return bad_input("{}: tensor \"{}\": {}", origin, name, why);
    };
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets") || value.size() != 3) {
      return fail("expected dtype, shape and data_offsets");
    }
    Tensor entry;
    if (!value["dtype"].is_string()) return fail("dtype is not a string");
    entry.dtype = value["dtype"].get<std::string>();
    std::int64_t bytes = size_of_file_dtype(entry.dtype);
    if (bytes == 0) return fail(fmt::format("unknown dtype \"{}\"", entry.dtype));
    if (!value["shape"].is_array()) return fail("shape is not a list");
    for (const SortedJson& dim : value["shape"]) {
      std::int64_t size = 0;
      if (!as_size(dim, size)) return fail("a dim of the shape is not a sensible size");
      if (size != 0 && bytes > (std::int64_t{1} << 60) / size) return fail("shape is too large");
      bytes *= size;
      entry.shape.push_back(size);
    }
    const SortedJson& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !as_size(offsets[0], entry.begin) ||
        !as_size(offsets[1], entry.end)) {
      return fail("data_offsets is not a pair of sizes");
    }
    if (entry.begin > entry.end || entry.end > data_size) {
      return fail(fmt::format("bytes [{}, {}) lie outside the {} bytes of data; truncated?",
                              entry.begin, entry.end, data_size));
    }
    if (entry.end - entry.begin != bytes) {
      return fail(fmt::format("{} bytes given, its shape and dtype need {}",
                              entry.end - entry.begin, bytes));
    }
    const auto at = result.tensors.emplace(name, std::move(entry)).first;
    ranges.push_back({at->second.begin, at->second.end, &at->first});
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::int64_t covered = 0;
  for (const Range& range : ranges) {
    if (range.begin != covered) {
      return bad_input("{}: tensor \"{}\" {}", origin, *range.name,
                       range.begin < covered ? "overlaps another one"
                                             : fmt::format("leaves a gap of {} bytes before it",
                                                           range.begin - covered));
    }
    covered = range.end;
  }
  if (covered != data_size) {
    return bad_input("{}: {} bytes follow the last tensor", origin, data_size - covered);
  }
  return result;
}

Result<Safetensors> Safetensors::open(const Path& path) {
  QT_ASSIGN(MappedFile file, MappedFile::open(path));
  QT_ASSIGN(Safetensors result, parse(file.bytes(), path.string()));
  result.file_.push_back(std::move(file));
  return result;
}

Result<Safetensors> Safetensors::parse(std::span<const std::byte> file, const std::string& origin) {
  QT_ASSIGN(const std::int64_t header_size,
            SafetensorsHeader::length(file, static_cast<std::int64_t>(file.size()), origin));
  const auto header_bytes = static_cast<std::size_t>(header_size);
  const std::span<const std::byte> data = file.subspan(8 + header_bytes);
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, header_bytes);
  QT_ASSIGN(SafetensorsHeader header,
            SafetensorsHeader::parse(text, static_cast<std::int64_t>(data.size()), origin));
  Safetensors result;
  result.origin_ = origin;
  result.metadata_ = std::move(header.metadata);
  for (auto& [name, tensor] : header.tensors) {
    result.entries_.emplace(
        name, SafetensorsEntry{tensor.dtype, std::move(tensor.shape),
                               data.subspan(static_cast<std::size_t>(tensor.begin),
                                            static_cast<std::size_t>(tensor.end - tensor.begin))});
  }
  return result;
}

Status Safetensors::check_float(const std::string& name,
                                const std::vector<std::int64_t>& shape) const {
  const auto at = entries_.find(name);
  if (at == entries_.end()) return bad_input("{}: tensor \"{}\" is missing", origin_, name);
  if (at->second.shape != shape) {
    return bad_input("{}: tensor \"{}\" has shape [{}], the model needs [{}]", origin_, name,
                     fmt::join(at->second.shape, ", "), fmt::join(shape, ", "));
  }
  if (at->second.dtype != "F32" && at->second.dtype != "BF16") {
    return bad_input("{}: tensor \"{}\" is {}; F32 and BF16 can be read", origin_, name,
                     at->second.dtype);
  }
  return {};
}

Result<std::vector<float>> Safetensors::read_float(const std::string& name,
                                                   const std::vector<std::int64_t>& shape) const {
  QT_TRY(check_float(name, shape));
  const SafetensorsEntry& entry = entries_.at(name);
  std::vector<float> values(entry.bytes.size() /
                            (entry.dtype == "F32" ? sizeof(float) : sizeof(bf16)));
  copy_floats(name, 0, values);
  return values;
}

void Safetensors::copy_floats(const std::string& name, std::int64_t first,
                              std::span<float> values) const {
  if (values.empty()) return;
  const SafetensorsEntry& entry = entries_.at(name);
  const bool wide = entry.dtype == "F32";
  const std::size_t element = wide ? sizeof(float) : sizeof(bf16);
  const std::size_t begin = static_cast<std::size_t>(first) * element;
  QT_CHECK(begin + values.size() * element <= entry.bytes.size(), "elements [{}, +{}) of {}", first,
           values.size(), name);
  // The bytes need not be aligned: they are copied before they are looked at.
  const std::byte* from = entry.bytes.data() + begin;
  if (wide) {
    std::memcpy(values.data(), from, values.size() * sizeof(float));
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    bf16 value;
    std::memcpy(&value, from + i * sizeof(bf16), sizeof(bf16));
    values[i] = value;
  }
}

std::string safetensors_header(const std::vector<SafetensorsItem>& items,
                               const std::map<std::string, std::string>& metadata,
                               std::size_t alignment) {
  SortedJson header = SortedJson::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t offset = 0;
  for (const SafetensorsItem& item : items) {
    const char* dtype = item.spelled != nullptr      ? item.spelled
                        : item.dtype == DType::kF32  ? "F32"
                        : item.dtype == DType::kBF16 ? "BF16"
                        : item.dtype == DType::kI32  ? "I32"
                                                     : "I64";
    header[item.name] = {
        {"dtype", dtype}, {"shape", item.shape}, {"data_offsets", {offset, offset + item.bytes()}}};
    offset += item.bytes();
  }
  std::string text = header.dump();
  text.resize((8 + text.size() + alignment - 1) / alignment * alignment - 8, ' ');
  const std::uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + text;
}

Result<SafetensorsWriter> SafetensorsWriter::create(
    const Path& path, const std::vector<SafetensorsItem>& items,
    const std::map<std::string, std::string>& metadata) {
  std::int64_t bytes = 0;
  for (const SafetensorsItem& item : items) bytes += item.bytes();
  QT_ASSIGN(AtomicFile file, AtomicFile::create(path));
  QT_TRY(file.write(safetensors_header(items, metadata)));
  return SafetensorsWriter(std::move(file), bytes);
}

Status SafetensorsWriter::append(std::span<const std::byte> bytes) {
  appended_ += static_cast<std::int64_t>(bytes.size());
  return file_.write(bytes);
}

Status SafetensorsWriter::commit() {
  QT_CHECK(appended_ == expected_, "{} bytes appended, {} declared", appended_, expected_);
  return file_.commit();
}

}  // namespace quintet
