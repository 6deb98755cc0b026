#include "base/config.h"

#include <gtest/gtest.h>

namespace quintet {
namespace {

struct Section {
  bool flag = false;
  std::int64_t count = 3;
  double rate = 0.5;
  std::string kind = "a";
  std::vector<std::string> names;
  void list(FieldList& fields) {
    fields.add("flag", flag, "a flag");
    fields.add("count", count, "a count", between(0, 10));
    fields.add("rate", rate, "a rate", at_least(0));
    fields.add("kind", kind, "a kind", one_of({"alpha", "beta", "a"}));
    fields.add("names", names, "some names");
  }
};

struct Config {
  Section main;
  FieldList fields() {
    FieldList list;
    list.add_section("main", "The section.", main);
    list.know_section("other");
    return list;
  }
};

Status read_into(Config& config, const std::string& toml,
                 const std::vector<std::string>& sets = {}) {
  QT_ASSIGN(ConfigValues values, parse_config(toml, "run.toml"));
  for (const std::string& set : sets) QT_TRY(parse_assignment(set, values));
  return apply_config(values, config.fields());
}

TEST(Config, ReadsEveryType) {
  Config config;
  ASSERT_TRUE(
      read_into(
          config,
          "[main]\nflag = true\ncount = 7\nrate = 2\nkind = \"beta\"\nnames = [\"x\", \"y\"]\n")
          .ok());
  EXPECT_TRUE(config.main.flag);
  EXPECT_EQ(config.main.count, 7);
  EXPECT_EQ(config.main.rate, 2.0);
  EXPECT_EQ(config.main.kind, "beta");
  EXPECT_EQ(config.main.names, (std::vector<std::string>{"x", "y"}));
}

TEST(Config, AssignmentsOverrideTheFile) {
  Config config;
  ASSERT_TRUE(
      read_into(config, "[main]\ncount = 7\n", {"main.count=9", "main.kind=beta", "main.rate=1e-3"})
          .ok());
  EXPECT_EQ(config.main.count, 9);
  EXPECT_EQ(config.main.kind, "beta");
  EXPECT_EQ(config.main.rate, 1e-3);
}

TEST(Config, WhatItPrintsItReads) {
  Config config, again;
  config.main = {true, 5, 0.1, "alpha", {"quote \" and \\", "tab\t"}};
  for (const bool docs : {false, true}) {
    const Status status = read_into(again, config_to_toml(config.fields(), docs));
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(config_to_toml(again.fields(), docs), config_to_toml(config.fields(), docs));
  }
}

// Each bad document names the place, the key and what would be right.
struct Bad {
  const char* toml;
  std::vector<std::string> sets;
  std::vector<const char*> says;
};
class BadConfig : public ::testing::TestWithParam<Bad> {};

TEST_P(BadConfig, IsRefusedWithTheReason) {
  Config config;
  const Status status = read_into(config, GetParam().toml, GetParam().sets);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kUsage);
  for (const char* text : GetParam().says) {
    EXPECT_NE(status.error().message.find(text), std::string::npos) << status.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BadConfig,
    ::testing::Values(
        Bad{"[main]\n\ncuont = 1\n", {}, {"run.toml:3", "main.cuont", "did you mean main.count"}},
        Bad{"[mian]\ncount = 1\n", {}, {"mian.count", "did you mean main.count"}},
        Bad{"[mian]\ncuont = 1\n", {}, {"mian.cuont", "did you mean main.count"}},
        Bad{"[mian]\nx.y = 1\n", {}, {"mian.x.y", "did you mean the section [main]"}},
        Bad{"[othr]\nx.y = 1\n", {}, {"othr.x.y", "did you mean the section [other]"}},
        Bad{"[elsewhere]\nkind = 1\n", {}, {"elsewhere.kind", "did you mean main.kind"}},
        Bad{"[main]\ncount = 11\n", {}, {"run.toml:2", "main.count = 11", "between 0 and 10"}},
        Bad{"[main]\ncount = 1.5\n", {}, {"main.count = 1.5", "an integer"}},
        Bad{"[main]\nrate = nan\n", {}, {"main.rate", "at least 0"}},
        Bad{"[main]\nrate = inf\n", {}, {"main.rate", "a finite number, at least 0"}},
        Bad{"[main]\nflag = 1\n", {}, {"true or false"}},
        Bad{"[main]\nkind = \"alpa\"\n", {}, {"expected one of", "did you mean \"alpha\""}},
        Bad{"[main]\nnames = [1]\n", {}, {"main.names = [1]", "a list of strings"}},
        Bad{"count = 1\n", {}, {"outside a section"}},
        Bad{"[main\n", {}, {"run.toml:1", "not valid"}},
        Bad{"[main]\na = { b = 1 }\n", {}, {"run.toml:2"}},
        Bad{"", {"main.count"}, {"--set", "section.key=value"}},
        Bad{"", {"count=3"}, {"--set", "section.key=value"}},
        Bad{"", {"main.count=many"}, {"--set", "an integer"}}));

}  // namespace
}  // namespace quintet
