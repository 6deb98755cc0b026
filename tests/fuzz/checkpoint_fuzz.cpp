// What a checkpoint's folder is described by: its manifest, and an index of files.
#include "base/check.h"
#include "base/checksum.h"
#include "base/tensor_files.h"
#include "tests/fuzz/fuzz.h"
#include "train/checkpoint_manifest.h"

using quintet::CheckpointManifest;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto check = [](const std::string& manifest) {
    const auto parsed = CheckpointManifest::parse(manifest, "fuzz");
    if (!parsed.ok()) {
      QT_CHECK(!parsed.error().message.empty(), "a refusal without a reason");
      return;
    }
    for (const auto& [name, file] : parsed.value().files) {
      QT_CHECK(name.find('/') == std::string::npos && file.head <= file.bytes,
               "a file that cannot be: {}", name);
    }
  };
  check(text);
  // Nearly all changes are refused for the checksum alone: look again with it put right.
  constexpr std::size_t kAt = 16, kDigits = 16;
  if (size > kAt + kDigits) {
    std::string repaired = text;
    repaired.replace(kAt, kDigits, std::string(kDigits, '0'));
    repaired.replace(kAt, kDigits, quintet::checksum_text(quintet::checksum(repaired)));
    check(repaired);
  }
  const auto files = quintet::files_of_index(text, "fuzz");
  if (files.ok()) {
    for (const std::string& name : files.value()) {
      QT_CHECK(name.find('/') == std::string::npos && name != "..", "a file elsewhere: {}", name);
    }
  }
  return 0;
}

std::vector<std::string> seeds() {
  CheckpointManifest manifest;
  manifest.step = 12;
  manifest.block_bytes = 4096;
  manifest.files["state.json"] = {40, 40, 1};
  manifest.files["model.safetensors"] = {4000, 40, 2};
  manifest.tensors["shared.weight"] = {3, 4};
  return {manifest.to_text(), R"({"weight_map":{"a":"model-00001-of-00002.safetensors"}})",
          R"({"metadata":{"total_size":8},"weight_map":{"a":"x","b":"../y"}})"};
}
