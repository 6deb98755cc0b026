#include <cstring>

#include "base/check.h"
#include "base/safetensors.h"
#include "tests/fuzz/fuzz.h"

using quintet::Safetensors;

namespace {

void check(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto parsed = Safetensors::parse(file, "fuzz");
  if (!parsed.ok()) {
    QT_CHECK(
        parsed.error().code == quintet::ErrorCode::kBadInput && !parsed.error().message.empty(),
        "a refusal without a reason");
    return;
  }
  // Whatever was accepted lies inside the file and adds up to its data.
  std::size_t total = 0;
  for (const auto& [name, entry] : parsed.value().entries()) {
    if (!entry.bytes.empty()) {
      QT_CHECK(entry.bytes.data() >= file.data() &&
                   entry.bytes.data() + entry.bytes.size() <= file.data() + file.size(),
               "{} lies outside the file", name);
    }
    total += entry.bytes.size();
    const auto values = parsed.value().read_float(name, entry.shape);
    if (values.ok()) {
      float sum = 0;
      for (const float v : values.value()) sum += v;
      static_cast<void>(sum);
    }
  }
  std::uint64_t header = 0;
  std::memcpy(&header, data, 8);
  QT_CHECK(8 + header + total == size, "bytes are unaccounted for");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check(data, size);
  // Most edits change the header's length and would be refused for that alone: look again with it
  // put right.
  if (size < 8) return 0;
  std::string repaired(reinterpret_cast<const char*>(data), size);
  const std::size_t end = repaired.rfind('}');
  if (end == std::string::npos || end < 8) return 0;
  const std::uint64_t header = end + 1 - 8;
  std::memcpy(repaired.data(), &header, 8);
  check(reinterpret_cast<const std::uint8_t*>(repaired.data()), repaired.size());
  return 0;
}

std::vector<std::string> seeds() {
  const auto file = [](const std::string& header, std::size_t bytes) {
    const std::uint64_t size = header.size();
    std::string text(8, '\0');
    std::memcpy(text.data(), &size, 8);
    return text + header + std::string(bytes, '\x3f');
  };
  return {
      file("{}", 0), file(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24),
      file(
          R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},)"
          R"("b":{"dtype":"F32","shape":[],"data_offsets":[8,12]}})",
          12),
      file(R"({"x":{"dtype":"I64","shape":[0],"data_offsets":[0,0]},)"
           R"("y":{"dtype":"U8","shape":[1,1,1,1,7],"data_offsets":[0,7]}})",
           7)};
}
