#include "base/json.h"

#include <gtest/gtest.h>

namespace quintet {
namespace {

TEST(Json, KeepsTheOrderOfKeys) {
  const std::string text = R"({"z":1,"a":[true,null,"\u00e9"],"m":{}})";
  const auto json = parse_json(text, "x.json");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(to_text(json.value()), "{\"z\":1,\"a\":[true,null,\"\u00e9\"],\"m\":{}}");
  EXPECT_EQ(to_text(json.value()["z"], 1), "1");
  EXPECT_EQ(to_text(parse_json("[1]", "x.json").value(), 1), "[\n 1\n]");
}

TEST(Json, WritesBytesThatAreNoUtf8AsTheReplacementCharacter) {
  const Json json = "caf\xe9!";
  EXPECT_EQ(to_text(json), "\"caf\uFFFD!\"");
}

TEST(Json, ErrorsSayWhichFileAndWhere) {
  const auto cut = parse_json("{\"a\": 1,\n \"b\"", "cut.json");
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().code, ErrorCode::kBadInput);
  EXPECT_NE(cut.error().message.find("cut.json: not valid JSON: parse error at line 2, column"),
            std::string::npos)
      << cut.error().message;
  for (const char* text : {"", "nul", "1e999", "[1,]", "\"\xff\"", "{} {}"}) {
    const auto json = parse_json(text, "bad.json");
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_EQ(json.error().message.rfind("bad.json: not valid JSON: ", 0), 0u)
        << json.error().message;
  }
}

}  // namespace
}  // namespace quintet
