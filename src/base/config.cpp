#include "base/config.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/text.h"

namespace quintet {
namespace {

Error wrong_type(const Field& field, const ConfigValue& value, std::string_view expected) {
  return usage_error("{}: {} = {} is not {} ({})", value.origin, field.key, to_toml(value.value),
                     expected, field.doc);
}

constexpr const char* kAssigned = "--set";  // where a value comes from

Status check_number(const Field& field, const ConfigValue& value, double number) {
  if (number >= field.limits.min && number <= field.limits.max) return {};
  std::string range;
  if (field.limits.max >= 1e300) {
    range = fmt::format("at least {}", field.limits.min);
  } else if (field.limits.min <= -1e300) {
    range = fmt::format("at most {}", field.limits.max);
  } else {
    range = fmt::format("between {} and {}", field.limits.min, field.limits.max);
  }
  if (!std::isfinite(number)) range = "a finite number, " + range;
  return usage_error("{}: {} = {}: expected {} ({})", value.origin, field.key, to_toml(value.value),
                     range, field.doc);
}

struct Setter {
  const Field& field;
  const ConfigValue& given;

  Status operator()(bool* target) const {
    const auto* v = std::get_if<bool>(&given.value);
    if (v == nullptr) return wrong_type(field, given, "true or false");
    *target = *v;
    return {};
  }
  Status operator()(std::int64_t* target) const {
    const auto* v = std::get_if<std::int64_t>(&given.value);
    if (v == nullptr) return wrong_type(field, given, "an integer");
    QT_TRY(check_number(field, given, static_cast<double>(*v)));
    *target = *v;
    return {};
  }
  Status operator()(double* target) const {
    double number = 0;
    if (const auto* integer = std::get_if<std::int64_t>(&given.value)) {
      number = static_cast<double>(*integer);
    } else if (const auto* real = std::get_if<double>(&given.value)) {
      number = *real;
    } else {
      return wrong_type(field, given, "a number");
    }
    QT_TRY(check_number(field, given, number));  // NaN is in no range
    *target = number;
    return {};
  }
  Status operator()(std::string* target) const {
    const auto& choices = field.limits.choices;
    // On a command line nobody quotes a number that is meant as text.
    if (const auto* number = std::get_if<std::int64_t>(&given.value);
        number != nullptr && given.origin == kAssigned && choices.empty()) {
      *target = std::to_string(*number);
      return {};
    }
    const auto* v = std::get_if<std::string>(&given.value);
    if (v == nullptr) return wrong_type(field, given, "a string");
    if (!choices.empty() && std::find(choices.begin(), choices.end(), *v) == choices.end()) {
      const std::string near = nearest(*v, choices);
      return usage_error("{}: {} = \"{}\": expected one of {}{} ({})", given.origin, field.key, *v,
                         join(choices, ", "),
                         near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near),
                         field.doc);
    }
    *target = *v;
    return {};
  }
  Status operator()(std::vector<std::string>* target) const {
    if (const auto* v = std::get_if<std::string>(&given.value)) {
      *target = {*v};  // one string where a list is expected is a list of one
      return {};
    }
    const auto* v = std::get_if<std::vector<std::string>>(&given.value);
    if (v == nullptr) return wrong_type(field, given, "a list of strings");
    *target = *v;
    return {};
  }
};

Error unknown_key(const std::string& key, const ConfigValue& value, const FieldList& fields,
                  std::string_view see) {
  std::vector<std::string> known;
  for (const Field& field : fields.fields()) known.push_back(field.key);
  const std::string given = key.substr(0, key.find('.')), name = key.substr(key.find('.') + 1);
  const std::vector<std::string> sections = fields.sections();
  std::string near;
  if (std::find(sections.begin(), sections.end(), given) == sections.end()) {
    const std::string section = nearest(given, sections);
    std::vector<std::string> names;
    for (const std::string& one : known) {
      if (one.starts_with(section + ".")) names.push_back(one.substr(section.size() + 1));
    }
    const std::string meant = nearest(name, names);
    if (!meant.empty()) {
      near = section + "." + meant;
    } else if (!section.empty()) {
      near = "the section [" + section + "]";
    }
  }
  if (near.empty()) near = nearest(key, known);
  if (near.empty()) {
    // The name may be right and the section wrong.
    for (const std::string& candidate : known) {
      if (candidate.substr(candidate.find('.') + 1) == name) near = candidate;
    }
  }
  return usage_error("{}: unknown key {}{}; {} lists them all", value.origin, key,
                     near.empty() ? "" : fmt::format(", did you mean {}?", near), see);
}

}  // namespace

std::vector<std::string> FieldList::sections() const {
  std::vector<std::string> names;
  for (const auto& [name, doc] : section_docs_) names.push_back(name);
  return names;
}

Result<ConfigValues> parse_config(std::string_view text, const std::string& origin) {
  QT_ASSIGN(std::vector<TomlEntry> entries, parse_toml(text, origin));
  ConfigValues values;
  for (TomlEntry& entry : entries) {
    const std::string where = fmt::format("{}:{}", origin, entry.line);
    if (entry.section.empty()) {
      return usage_error("{}: {} is outside a section; write it under [section]", where, entry.key);
    }
    values[entry.section + "." + entry.key] = {std::move(entry.value), where};
  }
  return values;
}

Status parse_assignment(std::string_view text, ConfigValues& values) {
  const std::size_t equals = text.find('=');
  const std::string_view key = text.substr(0, equals);
  if (equals == std::string_view::npos || key.find('.') == std::string_view::npos) {
    return usage_error("--set {}: expected section.key=value", text);
  }
  const std::string_view given = text.substr(equals + 1);
  auto parsed = parse_toml_value(given);
  TomlValue value = parsed.ok() ? std::move(parsed).value() : TomlValue(std::string(given));
  values[std::string(key)] = {std::move(value), kAssigned};
  return {};
}

Status apply_config(const ConfigValues& values, const FieldList& fields, std::string_view see) {
  for (const auto& [key, value] : values) {
    const auto list = fields.fields();
    const auto field = std::find_if(list.begin(), list.end(),
                                    [&name = key](const Field& f) { return f.key == name; });
    if (field == list.end()) return unknown_key(key, value, fields, see);
    QT_TRY(std::visit(Setter{*field, value}, field->target));
  }
  return {};
}

std::string config_to_toml(const FieldList& fields, bool with_docs) {
  std::string out, section;
  for (const Field& field : fields.fields()) {
    const std::size_t dot = field.key.find('.');
    if (field.key.substr(0, dot) != section) {
      section = field.key.substr(0, dot);
      if (with_docs) {
        out += fmt::format("{}# {}\n", out.empty() ? "" : "\n", fields.section_doc(section));
      } else if (!out.empty()) {
        out += '\n';
      }
      out += fmt::format("[{}]\n", section);
    }
    if (with_docs) {
      out += fmt::format("# {}", field.doc);
      const Limits& limits = field.limits;
      if (!limits.choices.empty()) out += fmt::format(" [{}]", join(limits.choices, " | "));
      if (limits.min > -1e300 && limits.max < 1e300) {
        out += fmt::format(" [{} to {}]", limits.min, limits.max);
      } else if (limits.min > -1e300) {
        out += fmt::format(" [at least {}]", limits.min);
      }
      out += '\n';
    }
    const TomlValue value =
        std::visit([](const auto* target) { return TomlValue(*target); }, field.target);
    out += fmt::format("{} = {}\n", field.key.substr(dot + 1), to_toml(value));
  }
  return out;
}

}  // namespace quintet
