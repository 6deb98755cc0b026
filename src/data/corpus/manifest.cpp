#include "data/corpus/manifest.h"

#include <xxhash.h>

#include "base/json.h"
#include "data/corpus/inputs.h"

namespace quintet {
namespace {

constexpr const char* kManifestFormat = "quintet-corpus";
constexpr int kManifestVersion = 1;

Json json_of(const CorpusCounts& counts) {
  return {{"documents", counts.documents},
          {"bytes", counts.bytes},
          {"characters", counts.characters},
          {"tokens", counts.tokens},
          {"unknown_characters", counts.unknown_characters}};
}

// Reads fields that must be there and be what they should; remembers the first that is not.
class Reader {
 public:
  Reader(const Json& json, std::string where, std::string& failure)
      : json_(json), where_(std::move(where)), failure_(failure) {}

  Reader child(const std::string& key) { return {at(key), where_ + "." + key, failure_}; }
  std::int64_t number(const std::string& key, std::int64_t least, std::int64_t most) {
    const Json& value = at(key);
    if (value.is_number_integer()) {
      const auto number = value.get<std::int64_t>();
      const bool huge = value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX;
      if (!huge && number >= least && number <= most) return number;
    }
    fail(key);
    return least;
  }
  std::int64_t count(const std::string& key) { return number(key, 0, INT64_MAX); }
  std::int32_t id(const std::string& key) {
    return static_cast<std::int32_t>(number(key, -1, INT32_MAX));
  }
  std::string text(const std::string& key) {
    const Json& value = at(key);
    if (value.is_string()) return value.get<std::string>();
    fail(key);
    return {};
  }
  Split split(const std::string& key) {
    const std::string name = text(key);
    for (const Split split : kSplits) {
      if (name == name_of(split)) return split;
    }
    fail(key);
    return Split::kTrain;
  }
  CorpusCounts counts() {
    return {count("documents"), count("bytes"), count("characters"), count("tokens"),
            count("unknown_characters")};
  }
  // The elements of an array or the members of an object.
  template <class Body>
  void each(const Body& body) {
    if (!json_.is_structured()) return fail("");
    for (const auto& [key, value] : json_.items()) {
      body(key, Reader(value, where_ + "." + key, failure_));
    }
  }
  void fail(const std::string& key) {
    if (failure_.empty()) failure_ = key.empty() ? where_ : where_ + "." + key;
  }
  const Json& json() const { return json_; }

 private:
  const Json& at(const std::string& key) {
    static const Json kNothing;
    if (json_.is_object()) {
      if (const auto it = json_.find(key); it != json_.end()) return *it;
    }
    fail(key);
    return kNothing;
  }

  const Json& json_;
  std::string where_;
  std::string& failure_;
};

std::string checksum_of(const Json& json) {
  const std::string text = to_text(json);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

// A shard's name stays inside the folder, whatever the file says.
bool is_safe_name(const std::string& name) {
  const Path path(name);
  if (name.empty() || path.is_absolute()) return false;
  for (const Path& part : path) {
    if (part == "..") return false;
  }
  return true;
}

}  // namespace

const char* name_of(Split split) {
  return split == Split::kTrain ? "train" : "held_out";
}

void CorpusCounts::add(const CorpusCounts& other) {
  documents += other.documents;
  bytes += other.bytes;
  characters += other.characters;
  tokens += other.tokens;
  unknown_characters += other.unknown_characters;
}

CorpusCounts Manifest::total(Split split) const {
  CorpusCounts sum;
  for (const auto& [language, splits] : languages) {
    if (const auto it = splits.find(split); it != splits.end()) sum.add(it->second);
  }
  return sum;
}

std::string to_json(const Manifest& manifest) {
  Json json = {{"format", kManifestFormat},
               {"version", kManifestVersion},
               {"plan", manifest.plan_digest},
               {"tokenizer",
                {{"file", kTokenizerFile},
                 {"digest", manifest.layout.tokenizer_digest},
                 {"vocabulary", manifest.layout.vocabulary},
                 {"pad", manifest.special.pad},
                 {"eos", manifest.special.eos},
                 {"unknown", manifest.special.unknown},
                 {"first_sentinel", manifest.special.first_sentinel},
                 {"sentinels", manifest.special.sentinels}}},
               {"token_bytes", manifest.layout.token_bytes},
               {"options", manifest.options},
               {"left_out", manifest.left_out},
               {"not_taken", manifest.not_taken},
               {"languages", Json::object()},
               {"shards", Json::array()}};
  for (const auto& [language, splits] : manifest.languages) {
    for (const auto& [split, counts] : splits) {
      json["languages"][language][name_of(split)] = json_of(counts);
    }
  }
  for (const ShardEntry& shard : manifest.shards) {
    json["shards"].push_back({{"split", name_of(shard.split)},
                              {"language", shard.language},
                              {"name", shard.name},
                              {"tokens", shard.tokens},
                              {"documents", shard.documents}});
  }
  json["checksum"] = checksum_of(json);
  return to_text(json, 1) + "\n";
}

Result<Manifest> parse_manifest(const std::string& text, const std::string& name) {
  QT_ASSIGN(const Json json, parse_json(text, name));
  if (!json.is_object() || json.value("format", Json()) != kManifestFormat) {
    return bad_input("{}: not the manifest of a corpus; `quintet data build` makes one", name);
  }
  if (json.value("version", Json()) != kManifestVersion) {
    return bad_input("{}: version {}; this program reads version {}", name,
                     to_text(json.value("version", Json())), kManifestVersion);
  }
  // Corpora of before there were checksums have none.
  if (json.contains("checksum")) {
    Json rest = json;
    rest.erase("checksum");
    if (json.at("checksum") != checksum_of(rest)) {
      return bad_input(
          "{}: its checksum does not match: it is damaged, or was changed by hand; build again",
          name);
    }
  }
  Manifest manifest;
  std::string failure;
  Reader root(json, "", failure);
  manifest.plan_digest = root.text("plan");
  Reader tokenizer = root.child("tokenizer");
  manifest.layout.tokenizer_digest = tokenizer.text("digest");
  manifest.layout.vocabulary =
      static_cast<std::uint32_t>(tokenizer.number("vocabulary", 1, INT32_MAX));
  manifest.special = {tokenizer.id("pad"), tokenizer.id("eos"), tokenizer.id("unknown"),
                      tokenizer.id("first_sentinel"), tokenizer.id("sentinels")};
  manifest.layout.token_bytes = static_cast<std::uint32_t>(root.number("token_bytes", 2, 4));
  root.child("options").each([&](const std::string& key, const Reader& value) {
    if (value.json().is_string()) manifest.options[key] = value.json().get<std::string>();
  });
  Reader left_out = root.child("left_out");
  left_out.each(
      [&](const std::string& key, const Reader&) { manifest.left_out[key] = left_out.count(key); });
  if (json.contains("not_taken")) {
    Reader not_taken = root.child("not_taken");
    not_taken.each([&](const std::string& key, const Reader&) {
      manifest.not_taken[key] = not_taken.count(key);
    });
  }
  root.child("languages").each([&](const std::string& language, Reader splits) {
    if (!is_language_name(language)) splits.fail("");
    for (const Split split : kSplits) {
      if (!splits.json().is_object() || !splits.json().contains(name_of(split))) continue;
      manifest.languages[language][split] = splits.child(name_of(split)).counts();
    }
  });
  root.child("shards").each([&](const std::string&, Reader entry) {
    ShardEntry shard{entry.split("split"), entry.text("language"), entry.text("name"),
                     static_cast<std::uint64_t>(entry.count("tokens")),
                     static_cast<std::uint64_t>(entry.count("documents"))};
    if (!is_safe_name(shard.name)) entry.fail("name");
    if (!manifest.languages.contains(shard.language)) entry.fail("language");
    manifest.shards.push_back(std::move(shard));
  });
  if (!failure.empty()) {
    return bad_input("{}: {} is missing or not what it should be; the file is damaged", name,
                     failure.substr(1));
  }
  return manifest;
}

Result<Manifest> load_manifest(const Path& folder) {
  const Path path = folder / kManifestFile;
  if (!std::filesystem::exists(path)) {
    return bad_input(
        "{}: no {} in it: not a corpus, or one whose building was interrupted (`quintet data "
        "build` with the same options continues it)",
        folder.string(), kManifestFile);
  }
  QT_ASSIGN(const std::string text, read_file(path));
  return parse_manifest(text, path.string());
}

}  // namespace quintet
