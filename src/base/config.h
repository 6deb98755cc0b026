// Configuration as data. A section is a plain struct that lists its fields once, with the
// documentation and the limits of each; from that one list values are read (TOML file, then --set),
// checked, printed back and documented. Nothing is accepted that no field claims.
//
//   struct OptimizerConfig {
//     double beta1 = 0.9;
//     void list(FieldList& fields) { fields.add("beta1", beta1, "decay of the first moment",
//     between(0, 1)); }
//   };
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/toml.h"

namespace quintet {

// What a field accepts beyond its type.
struct Limits {
  double min = -1e300, max = 1e300;
  std::vector<std::string> choices;
};
inline Limits at_least(double min) {
  return {.min = min, .choices = {}};
}
inline Limits between(double min, double max) {
  return {min, max, {}};
}
inline Limits one_of(std::vector<std::string> choices) {
  return {.choices = std::move(choices)};
}

struct Field {
  std::string key;  // "section.name"
  std::string doc;
  Limits limits;
  std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::string>*> target;
};

class FieldList {
 public:
  // Adds every field of a section under its name.
  template <class Section>
  void add_section(const std::string& name, const std::string& doc, Section& section) {
    section_ = name;
    section_docs_[name] = doc;
    section.list(*this);
  }
  // A section with keys of its own kind, which others read; errors name it where it is meant.
  void know_section(const std::string& name) { section_docs_.try_emplace(name); }
  template <class T>
  void add(const std::string& name, T& target, std::string doc, Limits limits = {}) {
    fields_.push_back({section_ + "." + name, std::move(doc), std::move(limits), &target});
  }

  std::span<const Field> fields() const { return fields_; }
  const std::string& section_doc(const std::string& section) const {
    return section_docs_.at(section);
  }
  std::vector<std::string> sections() const;

 private:
  std::string section_;
  std::map<std::string, std::string> section_docs_;
  std::vector<Field> fields_;
};

struct ConfigValue {
  TomlValue value;
  std::string origin;  // "run.toml:12" or "--set", for error messages
};
using ConfigValues = std::map<std::string, ConfigValue>;  // by "section.name"

// Reads a TOML document (toml.h). `origin` names it in errors.
Result<ConfigValues> parse_config(std::string_view text, const std::string& origin);
// Reads "section.name=value" into `values`, replacing what is there. A bare word is a string.
Status parse_assignment(std::string_view text, ConfigValues& values);
// Sets every named field, or explains the first value that cannot be set. `see`: where all keys are
// listed.
Status apply_config(const ConfigValues& values, const FieldList& fields,
                    std::string_view see = "`quintet config --help-all`");

// The fields' present values as a TOML document; with_docs puts each one's documentation above it.
std::string config_to_toml(const FieldList& fields, bool with_docs);

}  // namespace quintet
