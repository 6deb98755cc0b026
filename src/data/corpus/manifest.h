// What a corpus consists of: `manifest.json` in its folder, written last, so that a folder with one
// is complete.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/file_store.h"
#include "base/files.h"
#include "base/result.h"
#include "data/corpus/shard.h"

namespace quintet {

// Values are part of file names.
enum class Split : std::uint8_t { kTrain, kHeldOut };
inline constexpr Split kSplits[] = {Split::kTrain, Split::kHeldOut};
const char* name_of(Split split);  // "train", "held_out"

struct CorpusCounts {
  std::int64_t documents = 0, bytes = 0, characters = 0, tokens = 0, unknown_characters = 0;

  void add(const CorpusCounts& other);
};

struct ShardEntry {
  Split split = Split::kTrain;
  std::string language;
  std::string name;  // relative to the folder, without an extension
  std::uint64_t tokens = 0, documents = 0;
};

// The ids that objectives need.
struct SpecialTokens {
  std::int32_t pad = 0, eos = 1, unknown = 2;
  std::int32_t first_sentinel = 0;  // the highest; they count down from it
  std::int32_t sentinels = 0;

  bool operator==(const SpecialTokens&) const = default;
};

struct Manifest {
  TokenLayout layout;
  SpecialTokens special;
  std::string plan_digest;                        // of everything that the contents follow from
  std::map<std::string, std::string> options;     // for people
  std::map<std::string, std::int64_t> left_out;   // documents, by reason
  std::map<std::string, std::int64_t> not_taken;  // files, by reason
  std::map<std::string, std::map<Split, CorpusCounts>> languages;
  std::vector<ShardEntry> shards;  // by split, language and number

  CorpusCounts total(Split split) const;
};

inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kTokenizerFile = "tokenizer.model";

// Ends with a checksum of the rest.
std::string to_json(const Manifest& manifest);
// `name` is how errors call it.
Result<Manifest> parse_manifest(const std::string& json, const std::string& name);
Result<Manifest> load_manifest(const Path& folder);

}  // namespace quintet
