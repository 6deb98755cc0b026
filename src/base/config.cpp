#include "base/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.h"

// toml++ 3.3 asserts on some malformed documents (a table header that begins with '=', for one), and with
// NDEBUG turns the assertion into undefined behaviour. Here it throws, and becomes an error like any other.
#undef NDEBUG
[[noreturn]] static void refuse_document() { throw std::runtime_error("malformed document"); }
#define TOML_ASSERT(condition) ((condition) ? static_cast<void>(0) : refuse_document())
#define TOML_EXCEPTIONS 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace quintet {
namespace {

std::string describe(const ConfigScalar& value) {
  struct Visitor {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const {
      if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
      std::string text = fmt::format("{}", v);
      // TOML tells a float from an integer by its point or exponent.
      if (text.find_first_of(".en") == std::string::npos) text += ".0";
      return text;
    }
    std::string operator()(const std::string& v) const {
      std::string out = "\"";
      for (const char c : v) {
        if (c == '"' || c == '\\') {
          out += '\\';
          out += c;
        } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
      }
      return out + "\"";
    }
    std::string operator()(const std::vector<std::string>& v) const {
      std::vector<std::string> parts;
      for (const std::string& part : v) parts.push_back((*this)(part));
      return fmt::format("[{}]", fmt::join(parts, ", "));
    }
  };
  return std::visit(Visitor{}, value);
}

std::optional<ConfigScalar> scalar_of(const toml::node& node) {
  if (const auto* v = node.as_boolean()) return v->get();
  if (const auto* v = node.as_integer()) return v->get();
  if (const auto* v = node.as_floating_point()) return v->get();
  if (const auto* v = node.as_string()) return v->get();
  if (const auto* array = node.as_array()) {
    std::vector<std::string> parts;
    for (const toml::node& element : *array) {
      const auto* part = element.as_string();
      if (part == nullptr) return std::nullopt;
      parts.push_back(part->get());
    }
    return parts;
  }
  return std::nullopt;
}

struct ParseFailure {
  std::string what;
  std::int64_t line = 1;
};

// The only call of the library's parser: all its ways of failing end here.
std::variant<toml::table, ParseFailure> parse_toml(std::string_view text) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    return ParseFailure{std::string(error.description()), error.source().begin.line};
  } catch (const std::exception& error) {
    return ParseFailure{error.what()};
  }
}

std::string position(const std::string& origin, const toml::source_region& source) {
  return fmt::format("{}:{}", origin, source.begin.line);
}

Error wrong_type(const Field& field, const ConfigValue& value, std::string_view expected) {
  return usage_error("{}: {} = {} is not {} ({})", value.origin, field.key, describe(value.value),
                     expected, field.doc);
}

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
  return usage_error("{}: {} = {}: expected {} ({})", value.origin, field.key,
                     describe(value.value), range, field.doc);
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
    const auto* v = std::get_if<std::string>(&given.value);
    if (v == nullptr) return wrong_type(field, given, "a string");
    const auto& choices = field.limits.choices;
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

Error unknown_key(const std::string& key, const ConfigValue& value, const FieldList& fields) {
  std::vector<std::string> known, names;
  for (const Field& field : fields.fields()) known.push_back(field.key);
  std::string near = nearest(key, known);
  if (near.empty()) {
    // The name may be right and the section wrong.
    const std::string name = key.substr(key.find('.') + 1);
    for (const std::string& candidate : known) {
      if (candidate.substr(candidate.find('.') + 1) == name) near = candidate;
    }
  }
  return usage_error("{}: unknown key {}{}; `quintet config --help-all` lists them all",
                     value.origin, key,
                     near.empty() ? "" : fmt::format(", did you mean {}?", near));
}

}  // namespace

Result<ConfigValues> parse_config(std::string_view text, const std::string& origin) {
  const auto parsed = parse_toml(text);
  if (const auto* failure = std::get_if<ParseFailure>(&parsed)) {
    return usage_error("{}:{}: not valid TOML: {}", origin, failure->line, failure->what);
  }
  ConfigValues values;
  for (const auto& [section, node] : std::get<toml::table>(parsed)) {
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      return usage_error("{}: {} is outside a section; write it under [section]",
                         position(origin, node.source()), section.str());
    }
    for (const auto& [name, value] : *table) {
      const std::string key = fmt::format("{}.{}", section.str(), name.str());
      const std::string where = position(origin, value.source());
      auto scalar = scalar_of(value);
      if (!scalar) {
        return usage_error("{}: {} must be a boolean, a number, a string or a list of strings",
                           where, key);
      }
      values[key] = {std::move(*scalar), where};
    }
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
  ConfigScalar scalar = std::string(given);
  const auto parsed = parse_toml(fmt::format("v = {}", given));
  if (const auto* table = std::get_if<toml::table>(&parsed); table != nullptr && table->size() == 1) {
    if (auto typed = scalar_of(*table->get("v"))) scalar = std::move(*typed);
  }
  values[std::string(key)] = {std::move(scalar), "--set"};
  return {};
}

Status apply_config(const ConfigValues& values, const FieldList& fields) {
  for (const auto& [key, value] : values) {
    const auto list = fields.fields();
    const auto field =
        std::find_if(list.begin(), list.end(), [&](const Field& f) { return f.key == key; });
    if (field == list.end()) return unknown_key(key, value, fields);
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
    const ConfigScalar value =
        std::visit([](const auto* target) { return ConfigScalar(*target); }, field.target);
    out += fmt::format("{} = {}\n", field.key.substr(dot + 1), describe(value));
  }
  return out;
}

}  // namespace quintet
