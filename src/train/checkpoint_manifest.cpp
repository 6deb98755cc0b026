#include "train/checkpoint_manifest.h"

#include "base/checksum.h"
#include "base/json.h"

namespace quintet {
namespace {

// The text begins with its own checksum, taken with zeros in its place.
constexpr std::string_view kBegin = "{\n \"checksum\": \"";
constexpr std::size_t kDigits = 16;

}  // namespace

std::string CheckpointManifest::to_text() const {
  Json json;
  json["checksum"] = std::string(kDigits, '0');
  json["format"] = "quintet-checkpoint";
  json["version"] = 1;
  json["step"] = step;
  json["ranks"] = ranks;
  json["block_bytes"] = block_bytes;
  json["files"] = Json::object();
  for (const auto& [name, file] : files) {
    json["files"][name] = {
        {"bytes", file.bytes}, {"head", file.head}, {"checksum", checksum_text(file.checksum)}};
  }
  Json::object_t sums;  // filled without looking for each name among those before
  for (const auto& [name, blocks] : tensors) {
    Json list = Json::array();
    for (const std::uint64_t sum : blocks) list.push_back(checksum_text(sum));
    sums.push_back({name, std::move(list)});
  }
  json["tensors"] = std::move(sums);
  std::string text = quintet::to_text(json, 1) + "\n";
  QT_CHECK(text.starts_with(kBegin), "the manifest begins with {}", text.substr(0, 20));
  text.replace(kBegin.size(), kDigits, checksum_text(checksum(text)));
  return text;
}

Result<CheckpointManifest> CheckpointManifest::parse(const std::string& text,
                                                     const std::string& origin) {
  const auto damaged = [&](const char* what) {
    return bad_input("{}: not a checkpoint's manifest: {}; damaged?", origin, what);
  };
  if (!text.starts_with(kBegin) || text.size() < kBegin.size() + kDigits)
    return damaged("it does not begin with its checksum");
  const auto expected = parse_checksum(std::string_view(text).substr(kBegin.size(), kDigits));
  std::string blank = text;
  blank.replace(kBegin.size(), kDigits, std::string(kDigits, '0'));
  if (!expected || *expected != checksum(blank)) return damaged("its checksum does not match");
  QT_ASSIGN(const Json json, parse_json(text, origin));
  if (!json.is_object() || !json.contains("files") || !json["files"].is_object() ||
      !json.contains("tensors") || !json["tensors"].is_object() || !json.contains("format") ||
      json["format"] != "quintet-checkpoint")
    return damaged("something is missing");
  if (const std::int64_t version = integer_in(json, "version", 0); version != 1) {
    return bad_input(
        "{}: written by a newer version of Quintet (manifest version {}, this one "
        "reads 1)",
        origin, version);
  }
  CheckpointManifest manifest;
  manifest.step = integer_in(json, "step", -1);
  manifest.ranks = integer_in(json, "ranks", 0);
  manifest.block_bytes = integer_in(json, "block_bytes", 0);
  constexpr std::int64_t kLargestBlock = std::int64_t{1} << 30;
  if (manifest.step < 0 || manifest.block_bytes < 8 || manifest.block_bytes > kLargestBlock ||
      manifest.block_bytes % 8 != 0)
    return damaged("an invalid step or size of blocks");
  const auto sum_in = [](const Json& value) {
    return value.is_string() ? parse_checksum(value.get_ref<const std::string&>()) : std::nullopt;
  };
  for (const auto& [name, entry] : json["files"].items()) {
    const File file{integer_in(entry, "bytes", -1), integer_in(entry, "head", -1), 0};
    const auto sum =
        entry.is_object() && entry.contains("checksum") ? sum_in(entry["checksum"]) : std::nullopt;
    if (file.head < 0 || file.bytes < file.head || !sum || name.empty() ||
        name.find('/') != std::string::npos)
      return damaged("an invalid entry of a file");
    manifest.files[name] = {file.bytes, file.head, *sum};
  }
  for (const auto& [name, list] : json["tensors"].items()) {
    std::vector<std::uint64_t>& sums = manifest.tensors[name];
    if (!list.is_array()) return damaged("an invalid entry of a tensor");
    for (const Json& value : list) {
      const auto sum = sum_in(value);
      if (!sum) return damaged("a checksum that is none");
      sums.push_back(*sum);
    }
  }
  return manifest;
}

}  // namespace quintet
