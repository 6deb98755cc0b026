#include "base/safetensors.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "base/fp16.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

// A file from its header text and data size.
std::vector<std::byte> make_file(const std::string& header, std::size_t data_size,
                                 std::uint64_t announced = ~0ull) {
  const std::uint64_t size = announced == ~0ull ? header.size() : announced;
  std::vector<std::byte> file(8 + header.size() + data_size, std::byte{0});
  std::memcpy(file.data(), &size, 8);
  std::memcpy(file.data() + 8, header.data(), header.size());
  return file;
}

TEST(Fp16, EveryValueComesBackAndHalfwayGoesToEven) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    fp16 half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto wide = static_cast<float>(half);
    const bool finite = (bits & 0x7c00) != 0x7c00;
    EXPECT_EQ(half.is_finite(), finite);
    EXPECT_EQ(std::isfinite(wide), finite);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(fp16(wide))));
      continue;
    }
    ASSERT_EQ(fp16(wide).bits, bits);
    if (!finite || (bits & 0x7fff) == 0x7bff) continue;
    // Between two neighbours, which are exact in double.
    fp16 next;
    next.bits = static_cast<std::uint16_t>(bits + 1);
    const float middle = (wide + static_cast<float>(next)) / 2;
    ASSERT_EQ(fp16(middle).bits, (bits & 1) != 0 ? bits + 1 : bits) << bits;
    ASSERT_EQ(fp16(std::nextafter(middle, wide)).bits, bits) << bits;
    ASSERT_EQ(fp16(std::nextafter(middle, static_cast<float>(next))).bits, bits + 1) << bits;
  }
  EXPECT_EQ(fp16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(fp16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(fp16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(fp16(1e-30f).bits, 0);
  EXPECT_EQ(fp16(-0.0f).bits, 0x8000);
  EXPECT_EQ(static_cast<float>(fp16(0.333251953125f)), 0.333251953125f);
}

TEST(Safetensors, ReadsWhatItWrites) {
  const TemporaryFolder folder;
  const Path path = folder.path() / "model.safetensors";
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<bf16> b = {bf16(0.5f), bf16(-2.0f)};
  auto writer = SafetensorsWriter::create(
      path, {{"a", DType::kF32, {2, 3}}, {"b", DType::kBF16, {2}}, {"none", DType::kF32, {0}}},
      {{"format", "pt"}});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer.value().append(std::as_bytes(std::span(a))).ok());
  ASSERT_TRUE(writer.value().append(std::as_bytes(std::span(b))).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(writer.value().commit().ok());
  const auto file = Safetensors::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file.value().read_float("a", {2, 3}).value(), a);
  EXPECT_EQ(file.value().read_float("b", {2}).value(), (std::vector<float>{0.5f, -2.0f}));
  EXPECT_TRUE(file.value().read_float("none", {0}).value().empty());
  EXPECT_EQ(file.value().metadata().at("format"), "pt");
}

TEST(Safetensors, AskingForTheWrongThingIsExplained) {
  const auto bytes = make_file(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                               R"("i":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}})",
                               16);
  const auto file = Safetensors::parse(bytes, "f");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_NE(file.value().read_float("v", {2}).error().message.find("missing"), std::string::npos);
  EXPECT_NE(file.value().read_float("w", {3}).error().message.find("[2], the model needs [3]"),
            std::string::npos);
  EXPECT_NE(file.value().read_float("i", {1}).error().message.find("is I64"), std::string::npos);
}

struct Hostile {
  const char* header;
  std::size_t data_size;
  const char* says;
};
class HostileFile : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileFile, IsRefused) {
  const auto bytes = make_file(GetParam().header, GetParam().data_size);
  const auto file = Safetensors::parse(bytes, "f");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, ErrorCode::kBadInput);
  EXPECT_NE(file.error().message.find(GetParam().says), std::string::npos) << file.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileFile,
    ::testing::Values(
        Hostile{"[]", 0, "not a JSON object"}, Hostile{"{", 0, "not a JSON object"},
        Hostile{R"({"a":1})", 0, "expected dtype, shape and data_offsets"},
        Hostile{R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype"},
        Hostile{R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "sensible size"},
        Hostile{R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "sensible size"},
        Hostile{R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4,
                "too large"},
        Hostile{R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4,
                "sensible size"},
        Hostile{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "need 8"},
        Hostile{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "outside"},
        Hostile{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "truncated"},
        Hostile{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "follow the last"},
        Hostile{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "pair of sizes"},
        Hostile{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                4, "overlaps"},
        Hostile{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "gap of 4"},
        Hostile{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                8, "twice"},
        Hostile{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":[[[[[[[[[]]]]]]]]]}})",
                4, "nested"},
        Hostile{R"({"__metadata__":{"a":1}})", 0, "not a string"}));

TEST(Safetensors, TheHeaderLengthIsNotTrusted) {
  for (const std::uint64_t announced :
       std::vector<std::uint64_t>{3, 1ull << 40, ~0ull - 1, ~0ull - 8}) {
    const auto bytes = make_file("{}", 0, announced);
    EXPECT_FALSE(Safetensors::parse(bytes, "f").ok()) << announced;
  }
  for (std::size_t size = 0; size < 8; ++size) {
    const std::vector<std::byte> bytes(size, std::byte{0});
    EXPECT_FALSE(Safetensors::parse(bytes, "f").ok()) << size;
  }
}

}  // namespace
}  // namespace quintet
