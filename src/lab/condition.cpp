#include "lab/condition.h"

#include <charconv>
#include <cmath>
#include <vector>

#include "base/text.h"

namespace quintet {

using ConditionValue = std::variant<bool, double, std::string>;

struct RowCondition::Node {
  std::string op;        // "value", "name", "neg", "not", or a binary operator
  ConditionValue value;  // of "value"; of "name": the setting's key
  std::vector<std::shared_ptr<const Node>> parts;
};

namespace {

using ConditionNode = std::shared_ptr<const RowCondition::Node>;

constexpr int kDeepest = 50;

ConditionNode make_node(std::string op, std::vector<ConditionNode> parts,
                        ConditionValue value = false) {
  return std::make_shared<const RowCondition::Node>(
      RowCondition::Node{std::move(op), std::move(value), std::move(parts)});
}

class ConditionParser {
 public:
  ConditionParser(const std::string& text, const Settings& known, const std::string& origin)
      : text_(text), known_(known), origin_(origin) {}

  Result<ConditionNode> all() {
    QT_ASSIGN(ConditionNode root, either(0));
    skip_spaces();
    if (at_ < text_.size()) return fail(fmt::format("nothing is expected at \"{}\"", rest()));
    return root;
  }

 private:
  Error fail(const std::string& why) const {
    return usage_error("{}: condition \"{}\": {}", origin_, text_, why);
  }
  std::string rest() const { return text_.substr(at_, 20); }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  }
  // A symbol, or a whole word.
  bool take(const std::string& token) {
    skip_spaces();
    if (text_.compare(at_, token.size(), token) != 0) return false;
    const std::size_t end = at_ + token.size();
    if (is_word(token[0]) && end < text_.size() && is_word(text_[end])) return false;
    at_ = end;
    return true;
  }

  Result<ConditionNode> chain(const std::vector<std::string>& operators,
                              Result<ConditionNode> (ConditionParser::*next)(int), int depth) {
    QT_ASSIGN(ConditionNode left, (this->*next)(depth));
    // Long chains are as deep a tree as nested parentheses.
    for (int links = depth; links < kDeepest * 4; ++links) {
      std::string found;
      for (const std::string& op : operators) {
        if (found.empty() && take(op)) found = op;
      }
      if (found.empty()) return left;
      QT_ASSIGN(ConditionNode right, (this->*next)(depth));
      left = make_node(found, {left, right});
    }
    return fail("too long");
  }
  Result<ConditionNode> either(int depth) {
    if (depth > kDeepest) return fail("too many parentheses");
    return chain({"or"}, &ConditionParser::both, depth + 1);
  }
  Result<ConditionNode> both(int depth) {
    return chain({"and"}, &ConditionParser::negation, depth);
  }
  Result<ConditionNode> negation(int depth) {
    if (depth > kDeepest) return fail("too many parentheses");
    if (!take("not")) return comparison(depth);
    QT_ASSIGN(ConditionNode inner, negation(depth + 1));
    return make_node("not", {inner});
  }
  Result<ConditionNode> comparison(int depth) {
    QT_ASSIGN(ConditionNode left, sum(depth));
    for (const char* op : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (!take(op)) continue;
      QT_ASSIGN(ConditionNode right, sum(depth));
      return make_node(op, {left, right});
    }
    return left;
  }
  Result<ConditionNode> sum(int depth) {
    return chain({"+", "-"}, &ConditionParser::product, depth);
  }
  Result<ConditionNode> product(int depth) {
    return chain({"*", "/", "%"}, &ConditionParser::primary, depth);
  }
  Result<ConditionNode> primary(int depth) {
    if (depth > kDeepest) return fail("too many parentheses");
    if (take("-")) {
      QT_ASSIGN(ConditionNode inner, primary(depth + 1));
      return make_node("neg", {inner});
    }
    if (take("(")) {
      QT_ASSIGN(ConditionNode inner, either(depth + 1));
      if (!take(")")) return fail("a ) is missing");
      return inner;
    }
    skip_spaces();
    if (at_ >= text_.size()) return fail("it ends where a value is expected");
    const char c = text_[at_];
    if (c == '\'' || c == '"') {
      const std::size_t end = text_.find(c, at_ + 1);
      if (end == std::string::npos) return fail("a string does not end");
      const std::string word = text_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
      return make_node("value", {}, word);
    }
    if (c >= '0' && c <= '9') {
      double number = 0;
      const char* begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), number);
      if (error != std::errc()) return fail(fmt::format("\"{}\" is no number", rest()));
      at_ += static_cast<std::size_t>(end - begin);
      return make_node("value", {}, number);
    }
    if (take("true")) return make_node("value", {}, true);
    if (take("false")) return make_node("value", {}, false);
    std::string name;
    while (at_ < text_.size() && is_word(text_[at_])) name += text_[at_++];
    if (name.empty()) return fail(fmt::format("a value is expected at \"{}\"", rest()));
    QT_ASSIGN(const std::string key, key_of(name));
    return make_node("name", {}, key);
  }

  Result<std::string> key_of(const std::string& name) {
    if (known_.count(name) != 0) return name;
    std::vector<std::string> meant, all;
    for (const auto& [key, value] : known_) {
      all.push_back(key);
      if (key.size() > name.size() && key.ends_with("." + name)) meant.push_back(key);
    }
    if (meant.size() == 1) return meant[0];
    return fail(fmt::format("{} is {}; it may name {}", name,
                            meant.empty() ? "no factor and nothing that is fixed" : "ambiguous",
                            join(all, ", ")));
  }

  const std::string& text_;
  const Settings& known_;
  const std::string& origin_;
  std::size_t at_ = 0;
};

ConditionValue condition_value(const TomlScalar& scalar) {
  struct Visitor {
    ConditionValue operator()(bool v) const { return v; }
    ConditionValue operator()(std::int64_t v) const { return static_cast<double>(v); }
    ConditionValue operator()(double v) const { return v; }
    ConditionValue operator()(const std::string& v) const { return v; }
  };
  return std::visit(Visitor{}, scalar);
}

Result<ConditionValue> evaluate_condition(const RowCondition::Node& node,
                                          const Settings& settings) {
  if (node.op == "value") return node.value;
  if (node.op == "name") {
    const auto found = settings.find(std::get<std::string>(node.value));
    QT_CHECK(found != settings.end(), "no setting {}", std::get<std::string>(node.value));
    return condition_value(found->second);
  }
  QT_ASSIGN(const ConditionValue left, evaluate_condition(*node.parts[0], settings));
  const auto wrong = [&](const char* wanted) {
    return usage_error("{} wants {}", node.op == "neg" ? "-" : node.op, wanted);
  };
  if (node.op == "not" || node.op == "and" || node.op == "or") {
    if (!std::holds_alternative<bool>(left)) return wrong("something that is true or false");
    if (node.op == "not") return ConditionValue(!std::get<bool>(left));
    QT_ASSIGN(const ConditionValue right, evaluate_condition(*node.parts[1], settings));
    if (!std::holds_alternative<bool>(right)) return wrong("something that is true or false");
    const bool a = std::get<bool>(left), b = std::get<bool>(right);
    return ConditionValue(node.op == "and" ? a && b : a || b);
  }
  if (node.op == "neg") {
    if (!std::holds_alternative<double>(left)) return wrong("a number");
    return ConditionValue(-std::get<double>(left));
  }
  QT_ASSIGN(const ConditionValue right, evaluate_condition(*node.parts[1], settings));
  if (node.op == "==" || node.op == "!=") {
    if (left.index() != right.index()) return wrong("two values of the same kind");
    return ConditionValue((left == right) == (node.op == "=="));
  }
  if (!std::holds_alternative<double>(left) || !std::holds_alternative<double>(right)) {
    return wrong("numbers");
  }
  const double a = std::get<double>(left), b = std::get<double>(right);
  if (node.op == "<") return ConditionValue(a < b);
  if (node.op == "<=") return ConditionValue(a <= b);
  if (node.op == ">") return ConditionValue(a > b);
  if (node.op == ">=") return ConditionValue(a >= b);
  if (node.op == "+") return ConditionValue(a + b);
  if (node.op == "-") return ConditionValue(a - b);
  if (node.op == "*") return ConditionValue(a * b);
  return ConditionValue(node.op == "/" ? a / b : std::fmod(a, b));
}

void collect_names(const RowCondition::Node& node, std::set<std::string>& names) {
  if (node.op == "name") names.insert(std::get<std::string>(node.value));
  for (const ConditionNode& part : node.parts) collect_names(*part, names);
}

}  // namespace

std::set<std::string> RowCondition::names() const {
  std::set<std::string> names;
  collect_names(*root_, names);
  return names;
}

Result<RowCondition> RowCondition::parse(const std::string& text, const Settings& known,
                                         const std::string& origin) {
  RowCondition condition;
  condition.text_ = text;
  condition.origin_ = origin;
  QT_ASSIGN(condition.root_, ConditionParser(text, known, origin).all());
  QT_TRY(condition.holds(known));
  return condition;
}

Result<bool> RowCondition::holds(const Settings& settings) const {
  const auto value = evaluate_condition(*root_, settings);
  if (!value.ok()) {
    return usage_error("{}: condition \"{}\": {}", origin_, text_, value.error().message);
  }
  if (!std::holds_alternative<bool>(value.value())) {
    return usage_error("{}: condition \"{}\" is neither true nor false", origin_, text_);
  }
  return std::get<bool>(value.value());
}

}  // namespace quintet
