#include "tokenizer/jinja_expression_parser.h"

#include <algorithm>

#include "base/error.h"

namespace minisgl::jinja {

ExpressionParser::ExpressionParser(std::string source) : program_(std::make_shared<Program>()) {
  tokens_ = tokenize(source);
  program_->source = std::move(source);
  program_->loop = intern("loop");
  program_->caller = intern("caller");
  program_->varargs = intern("varargs");
  program_->kwargs = intern("kwargs");
}

ExpressionParser::Level::Level(ExpressionParser* parser) : parser_(parser) {
  if (++parser_->nesting_ > kMaxNesting) fail_too_deep(parser_->line());
}

void ExpressionParser::fail_too_deep(int line) {
  fail_syntax(line, fmt::format("nested deeper than {} levels", kMaxNesting));
}

std::string ExpressionParser::describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kPrintEnd:
      return "end of print statement";
    case TokenKind::kEnd:
      return "end of template";
    case TokenKind::kString:
      return "a string";
    default:
      return fmt::format("'{}'", token.text);
  }
}

void ExpressionParser::expect_operator(std::string_view op) {
  if (!accept_operator(op)) fail_syntax(line(), fmt::format("expected '{}', got {}", op, describe(current())));
}

void ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) fail_syntax(line(), fmt::format("expected {}, got {}", what, describe(current())));
  next();
}

std::string ExpressionParser::expect_identifier() {
  if (current().kind != TokenKind::kName) fail_syntax(line(), fmt::format("expected a name, got {}", describe(current())));
  return next().text;
}

NameId ExpressionParser::intern(const std::string& name) {
  auto [entry, inserted] = name_ids_.emplace(name, static_cast<NameId>(program_->names.size()));
  if (inserted) program_->names.push_back(name);
  return entry->second;
}

ExpressionPtr ExpressionParser::literal(int line, LiteralValue value) {
  program_->literals.push_back(std::move(value));
  return make(line, Literal{static_cast<uint32_t>(program_->literals.size() - 1)});
}

bool ExpressionParser::ends_tuple(std::string_view word) const {
  return current().kind == TokenKind::kBlockEnd || current().kind == TokenKind::kPrintEnd || current().kind == TokenKind::kEnd ||
         is_operator(")") || is_operator("]") || (!word.empty() && is_name(word));
}

ExpressionPtr ExpressionParser::tuple_expression(bool with_conditional, std::string_view end, bool in_parentheses) {
  int at = line();
  SequenceLiteral tuple{true, {}};
  bool comma = false;
  while (!ends_tuple(end)) {
    if (!tuple.items.empty()) {
      if (!accept_operator(",")) break;
      comma = true;
      if (ends_tuple(end)) break;
    }
    tuple.items.push_back(with_conditional ? expression() : or_expression());
  }
  if (tuple.items.empty() && !in_parentheses) fail_syntax(at, fmt::format("expected an expression, got {}", describe(current())));
  if (tuple.items.size() == 1 && !comma) return std::move(tuple.items[0]);
  return make(at, std::move(tuple));
}

ExpressionPtr ExpressionParser::expression() {
  const Level level(this);
  int at = line();
  size_t unknown = unknown_.size();
  auto value = or_expression();
  while (accept_name("if")) {
    unknown_.resize(unknown);  // the value stood in a branch, as it turns out
    ++branches_;
    auto condition = or_expression();
    ExpressionPtr otherwise;
    if (accept_name("else")) otherwise = expression();
    --branches_;
    value = make(at, Conditional{std::move(value), std::move(condition), std::move(otherwise)});
  }
  return value;
}

ExpressionPtr ExpressionParser::or_expression() {
  return logical(false);
}

ExpressionPtr ExpressionParser::logical(bool is_and) {
  int at = line();
  Logical node{is_and, {}};
  do {
    node.operands.push_back(is_and ? not_expression() : logical(true));
  } while (accept_name(is_and ? "and" : "or"));
  return node.operands.size() == 1 ? std::move(node.operands[0]) : make(at, std::move(node));
}

ExpressionPtr ExpressionParser::not_expression() {
  int at = line();
  if (!accept_name("not")) return comparison();
  const Level level(this);
  return make(at, Unary{UnaryOperator::kNot, not_expression()});
}

std::optional<CompareOperator> ExpressionParser::compare_operator() {
  static constexpr std::pair<std::string_view, CompareOperator> kOperators[] = {
      {"==", CompareOperator::kEqual},     {"!=", CompareOperator::kNotEqual}, {"<", CompareOperator::kLess},
      {"<=", CompareOperator::kLessEqual}, {">", CompareOperator::kGreater},   {">=", CompareOperator::kGreaterEqual},
  };
  for (auto [text, op] : kOperators) {
    if (accept_operator(text)) return op;
  }
  if (accept_name("in")) return CompareOperator::kIn;
  if (is_name("not") && ahead().kind == TokenKind::kName && ahead().text == "in") {
    next();
    next();
    return CompareOperator::kNotIn;
  }
  return std::nullopt;
}

ExpressionPtr ExpressionParser::comparison() {
  int at = line();
  Comparison node{sum(), {}};
  while (auto op = compare_operator()) node.rest.emplace_back(*op, sum());
  return node.rest.empty() ? std::move(node.first) : make(at, std::move(node));
}

ExpressionPtr ExpressionParser::binary_chain(Rule operand, std::initializer_list<std::pair<std::string_view, BinaryOperator>> operators) {
  int at = line();
  BinaryChain node{(this->*operand)(), {}};
  for (;;) {
    auto found = std::find_if(operators.begin(), operators.end(), [&](const auto& op) { return accept_operator(op.first); });
    if (found == operators.end()) break;
    node.rest.emplace_back(found->second, (this->*operand)());
  }
  return node.rest.empty() ? std::move(node.first) : make(at, std::move(node));
}

ExpressionPtr ExpressionParser::sum() {
  return binary_chain(&ExpressionParser::concatenation, {{"+", BinaryOperator::kAdd}, {"-", BinaryOperator::kSubtract}});
}

ExpressionPtr ExpressionParser::concatenation() {
  int at = line();
  Concatenation node;
  do {
    node.parts.push_back(product());
  } while (accept_operator("~"));
  return node.parts.size() == 1 ? std::move(node.parts[0]) : make(at, std::move(node));
}

ExpressionPtr ExpressionParser::product() {
  return binary_chain(&ExpressionParser::power, {{"*", BinaryOperator::kMultiply},
                                                 {"/", BinaryOperator::kDivide},
                                                 {"//", BinaryOperator::kFloorDivide},
                                                 {"%", BinaryOperator::kModulo}});
}

ExpressionPtr ExpressionParser::power() {
  return binary_chain(&ExpressionParser::filtered_unary, {{"**", BinaryOperator::kPower}});
}

ExpressionPtr ExpressionParser::filtered_unary() {
  return unary(true);
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Level level(this);
  int at = line();
  ExpressionPtr node;
  if (accept_operator("-")) {
    node = make(at, Unary{UnaryOperator::kNegate, unary(false)});
  } else if (accept_operator("+")) {
    node = make(at, Unary{UnaryOperator::kPlus, unary(false)});
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  if (with_filters) node = filters_and_tests(std::move(node));
  return node;
}

ExpressionPtr ExpressionParser::primary() {
  int at = line();
  const Token& token = next();
  switch (token.kind) {
    case TokenKind::kName:
      if (token.text == "true" || token.text == "True") return literal(at, true);
      if (token.text == "false" || token.text == "False") return literal(at, false);
      if (token.text == "none" || token.text == "None") return literal(at, std::monostate());
      note_special_name(token.text);
      return make(at, NameLoad{intern(token.text)});
    case TokenKind::kString: {
      std::string text = token.text;
      while (current().kind == TokenKind::kString) text += next().text;
      return literal(at, std::move(text));
    }
    case TokenKind::kInteger:
      return literal(at, std::get<int64_t>(token.number));
    case TokenKind::kFloat:
      return literal(at, std::get<double>(token.number));
    case TokenKind::kOperator:
      if (token.text == "(") {
        const Level level(this);
        auto inner = tuple_expression(true, {}, true);
        expect_operator(")");
        return inner;
      }
      if (token.text == "[") return list(at);
      if (token.text == "{") return dict(at);
      [[fallthrough]];
    default:
      fail_syntax(at, fmt::format("unexpected {}", describe(token)));
  }
}

void ExpressionParser::note_special_name(std::string_view name) {
  for (MacroDefinition* definition : macros_) {
    definition->takes_caller |= name == "caller";
    definition->takes_varargs |= name == "varargs";
    definition->takes_kwargs |= name == "kwargs";
  }
}

ExpressionPtr ExpressionParser::list(int at) {
  SequenceLiteral node{false, {}};
  while (!is_operator("]")) {
    if (!node.items.empty()) expect_operator(",");
    if (is_operator("]")) break;
    node.items.push_back(expression());
  }
  expect_operator("]");
  return make(at, std::move(node));
}

ExpressionPtr ExpressionParser::dict(int at) {
  DictLiteral node;
  while (!is_operator("}")) {
    if (!node.entries.empty()) expect_operator(",");
    if (is_operator("}")) break;
    auto key = expression();
    expect_operator(":");
    node.entries.emplace_back(std::move(key), expression());
  }
  expect_operator("}");
  return make(at, std::move(node));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr node) {
  for (;;) {
    int at = line();
    if (accept_operator(".")) {
      if (current().kind == TokenKind::kInteger) {
        auto index = literal(at, std::get<int64_t>(next().number));
        node = make(at, Subscript{std::move(node), std::move(index)});
      } else {
        node = make(at, AttributeLoad{std::move(node), expect_identifier()});
      }
    } else if (accept_operator("[")) {
      node = subscript(std::move(node), at);
    } else if (is_operator("(")) {
      node = make(at, Call{std::move(node), arguments()});
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr base, int at) {
  ExpressionPtr first;
  if (!is_operator(":")) first = expression();
  if (is_operator(":")) {
    ExpressionPtr bounds[2];
    for (int i = 0; i < 2 && accept_operator(":"); ++i) {
      if (!is_operator(":") && !is_operator("]")) bounds[i] = expression();
    }
    expect_operator("]");
    return make(at, Slice{std::move(base), std::move(first), std::move(bounds[0]), std::move(bounds[1])});
  }
  if (is_operator(",")) {
    SequenceLiteral tuple{true, {}};
    tuple.items.push_back(std::move(first));
    while (accept_operator(",")) {
      if (is_operator("]")) break;
      tuple.items.push_back(expression());
    }
    first = make(at, std::move(tuple));
  }
  expect_operator("]");
  return make(at, Subscript{std::move(base), std::move(first)});
}

ArgumentList ExpressionParser::arguments() {
  ArgumentList list;
  expect_operator("(");
  bool first = true;
  while (!is_operator(")")) {
    if (!first) expect_operator(",");
    if (is_operator(")")) break;
    first = false;
    int at = line();
    if (accept_operator("*")) {
      if (list.star || list.double_star) fail_syntax(at, "invalid syntax for function call expression");
      list.star = expression();
    } else if (accept_operator("**")) {
      if (list.double_star) fail_syntax(at, "invalid syntax for function call expression");
      list.double_star = expression();
    } else if (current().kind == TokenKind::kName && ahead().kind == TokenKind::kOperator && ahead().text == "=") {
      if (list.double_star) fail_syntax(at, "invalid syntax for function call expression");
      std::string name = next().text;
      next();
      if (std::any_of(list.named.begin(), list.named.end(), [&](const auto& argument) { return argument.first == name; })) {
        fail_syntax(at, fmt::format("keyword argument '{}' is repeated", name));
      }
      list.named.emplace_back(std::move(name), expression());
    } else {
      if (list.star || list.double_star || !list.named.empty()) fail_syntax(at, "a positional argument follows a keyword argument");
      list.positional.push_back(expression());
    }
  }
  expect_operator(")");
  return list;
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr node) {
  for (;;) {
    if (is_operator("|")) {
      node = filters(std::move(node), false);
    } else if (is_name("is")) {
      node = test(std::move(node));
    } else if (is_operator("(")) {
      int at = line();
      node = make(at, Call{std::move(node), arguments()});
    } else {
      return node;
    }
  }
}

std::string ExpressionParser::dotted_name() {
  std::string name = expect_identifier();
  while (accept_operator(".")) name.append(".").append(expect_identifier());
  return name;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr input, bool inline_start) {
  while (inline_start || accept_operator("|")) {
    inline_start = false;
    int at = line();
    std::string name = dotted_name();
    Filter filter = find_filter(name);
    if (!filter && !filter_refusal(name).empty()) {
      fail_syntax(at, fmt::format("the filter '{}' is not supported: {}", name, filter_refusal(name)));
    }
    if (!filter && branches_ == 0) unknown_.emplace_back(at, fmt::format("unknown filter '{}'", name));
    ArgumentList list;
    if (is_operator("(")) list = arguments();
    input = make(at, FilterCall{std::move(input), std::move(name), filter, std::move(list)});
  }
  return input;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr input) {
  int at = line();
  next();
  bool negated = accept_name("not");
  std::string name = dotted_name();
  Test found = find_test(name);
  if (!found && branches_ == 0) unknown_.emplace_back(at, fmt::format("unknown test '{}'", name));
  ArgumentList list;
  if (is_operator("(")) {
    list = arguments();
  } else if (starts_test_argument()) {
    if (is_name("is")) fail_syntax(line(), "tests cannot be chained with 'is'");
    list.positional.push_back(postfix(primary()));
  }
  auto node = make(at, TestCall{std::move(input), std::move(name), found, std::move(list)});
  return negated ? make(at, Unary{UnaryOperator::kNot, std::move(node)}) : std::move(node);
}

bool ExpressionParser::starts_test_argument() const {
  switch (current().kind) {
    case TokenKind::kName:
      return !is_name("else") && !is_name("or") && !is_name("and");
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    default:
      return is_operator("[") || is_operator("{");
  }
}

}  // namespace minisgl::jinja
