#include "base/toml.h"

#include <cmath>

#include <gtest/gtest.h>

namespace quintet {
namespace {

TomlValue value_of(const std::string& text) {
  const auto result = parse_toml_value(text);
  EXPECT_TRUE(result.ok()) << text << ": " << result.error().message;
  return result.value();
}

TEST(Toml, Values) {
  EXPECT_EQ(value_of("true"), TomlValue(true));
  EXPECT_EQ(value_of("false"), TomlValue(false));
  EXPECT_EQ(value_of("-17"), TomlValue(std::int64_t{-17}));
  EXPECT_EQ(value_of("+1_000_000"), TomlValue(std::int64_t{1000000}));
  EXPECT_EQ(value_of("9223372036854775807"), TomlValue(INT64_MAX));
  EXPECT_EQ(value_of("-9223372036854775808"), TomlValue(INT64_MIN));
  EXPECT_EQ(value_of("1.5"), TomlValue(1.5));
  EXPECT_EQ(value_of("1e-4"), TomlValue(1e-4));
  EXPECT_EQ(value_of("-inf"), TomlValue(-INFINITY));
  EXPECT_TRUE(std::isnan(std::get<double>(value_of("nan"))));
  EXPECT_EQ(value_of(R"("a\tb\"c\\d\u00e9\U0001F600")"),
            TomlValue(std::string("a\tb\"c\\d\u00e9\U0001F600")));
  EXPECT_EQ(value_of(R"('C:\no\escapes')"), TomlValue(std::string("C:\\no\\escapes")));
  EXPECT_EQ(value_of("[ \"a\", 'b',\n # c\n ]"), TomlValue(std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(value_of("[1, 2.5, true, \"x\",]"),
            TomlValue(std::vector<TomlScalar>{std::int64_t{1}, 2.5, true, std::string("x")}));
  EXPECT_EQ(to_toml(value_of("[ 1,2.0 ]")), "[1, 2.0]");
  EXPECT_EQ(value_of("[]"), TomlValue(std::vector<std::string>{}));
}

TEST(Toml, AMarkOfUtf8ComesBeforeTheFirstLine) {
  const auto entries = parse_toml("\xEF\xBB\xBF[a]\nb = 1\n", "f");
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  EXPECT_EQ(entries.value().front().section, "a");
}

TEST(Toml, BadValues) {
  for (const char* text : {"",
                           "tru",
                           "truex",
                           "1.2.3",
                           "--1",
                           "1__0",
                           "_1",
                           "1_",
                           "9223372036854775808",
                           "1e999",
                           "\"open",
                           "\"a\nb\"",
                           "\"\\q\"",
                           "\"\\ud800\"",
                           "\"\\u12\"",
                           "[[1]]",
                           "[1,,2]",
                           "[1 2]",
                           "[\"a\" \"b\"]",
                           "[",
                           "\"\"\"a\"\"\"",
                           "word",
                           "1 2",
                           "0x10",
                           "{}",
                           "."}) {
    EXPECT_FALSE(parse_toml_value(text).ok()) << text;
  }
}

TEST(Toml, Documents) {
  const auto entries =
      parse_toml("# caf\u00e9\r\n\r\n[ a ] # one\r\nx = 1\r\n y=\"#\"# c\n[b-2]\nx = [\n'p',\n]",
                 "f")
          .value();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].section, "a");
  EXPECT_EQ(entries[0].line, 4);
  EXPECT_EQ(entries[1].value, TomlValue(std::string("#")));
  EXPECT_EQ(entries[2].section, "b-2");
  EXPECT_EQ(parse_toml("[s]\na.b = 1", "f").value()[0].key, "a.b");
  EXPECT_TRUE(parse_toml("", "f").value().empty());
}

TEST(Toml, TablesOnOneLineAreDottedKeys) {
  const auto entries =
      parse_toml(
          "[s]\na.b = {log = [1, 2], when = \"x == '}'\"} # c\nc = { d = {e=true} , f.g = 2 }", "f")
          .value();
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0].key, "a.b.log");
  EXPECT_EQ(entries[0].value, TomlValue(std::vector<TomlScalar>{std::int64_t{1}, std::int64_t{2}}));
  EXPECT_EQ(entries[1].key, "a.b.when");
  EXPECT_EQ(entries[1].value, TomlValue(std::string("x == '}'")));
  EXPECT_EQ(entries[1].line, 2);
  EXPECT_EQ(entries[2].key, "c.d.e");
  EXPECT_EQ(entries[3].key, "c.f.g");
  EXPECT_EQ(entries[3].line, 3);
  std::string deep = "x = ";
  for (int i = 0; i < 100000; ++i) deep += "{x = ";
  for (const std::string& bad :
       {std::string("x = {}"), std::string("x = {a = 1"), std::string("x = {a = 1,}"),
        std::string("x = {a = 1 b = 2}"), std::string("x = {a}"), std::string("x = {a = 1} 2"),
        std::string("x = {a = 1, a = 2}"), std::string("x = {a = 1}\nx.a = 2"),
        std::string("x = [{a = 1}]"), std::string("x = {a = 1,\nb = 2}"), deep}) {
    EXPECT_FALSE(parse_toml("[s]\n" + bad, "f").ok()) << bad.substr(0, 40);
  }
}

TEST(Toml, BadDocuments) {
  for (const char* text :
       {"[a", "[]", "[a]\n[a]", "[a]\nx=1\nx=2", "[[a]]", "[a.b]", "[=", "x", "x =", "x = 1 y = 2",
        "= 1", "a. = 1", ".a = 1", "a..b = 1", "\"x\" = 1", "[a] x", "\xff = 1"}) {
    const auto result = parse_toml(text, "f");
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.error().message.rfind("f:", 0), 0u) << result.error().message;
  }
}

TEST(Toml, WhatIsWrittenIsRead) {
  for (const TomlValue& value :
       {TomlValue(true), TomlValue(std::int64_t{-5}), TomlValue(0.1), TomlValue(1e300),
        TomlValue(3.0), TomlValue(-INFINITY), TomlValue(std::string("\x01\"\\ caf\u00e9\n")),
        TomlValue(std::vector<std::string>{"", "a,b"})}) {
    EXPECT_EQ(value_of(to_toml(value)), value) << to_toml(value);
  }
}

}  // namespace
}  // namespace quintet
