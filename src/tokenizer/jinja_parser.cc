#include "tokenizer/jinja_parser.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "tokenizer/jinja_lexer.h"

namespace minisgl::jinja {

namespace {

/// Levels of nesting: of tags and brackets while parsing, and of operations in the tree of one expression.
constexpr int kMaxNesting = 200;

class Parser {
 public:
  explicit Parser(std::string source) : program_(std::make_shared<Program>()) {
    tokens_ = tokenize(source);
    program_->source = std::move(source);
    program_->loop = intern("loop");
    program_->caller = intern("caller");
    program_->varargs = intern("varargs");
    program_->kwargs = intern("kwargs");
  }

  std::shared_ptr<const Program> run() {
    program_->body = block({});
    if (!unknown_.empty()) fail_syntax(unknown_[0].first, unknown_[0].second);
    return program_;
  }

 private:
  /// Counts one level for as long as it lives.
  class Level {
   public:
    explicit Level(Parser* parser) : parser_(parser) {
      if (++parser_->nesting_ > kMaxNesting) fail_syntax(parser_->line(), fmt::format("nested deeper than {} levels", kMaxNesting));
    }
    ~Level() { parser_->nesting_ -= 1; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser* parser_;
  };

  // ------------------------------------------------------------------------------------------------------------- tokens

  const Token& current() const { return tokens_[position_]; }
  const Token& ahead() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  int line() const { return current().line; }
  const Token& next() { return tokens_[current().kind == TokenKind::kEnd ? position_ : position_++]; }
  bool is_operator(std::string_view op) const { return current().kind == TokenKind::kOperator && current().text == op; }
  bool is_name(std::string_view name) const { return current().kind == TokenKind::kName && current().text == name; }
  bool accept_operator(std::string_view op) { return is_operator(op) && (next(), true); }
  bool accept_name(std::string_view name) { return is_name(name) && (next(), true); }

  static std::string describe(const Token& token) {
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
  void expect_operator(std::string_view op) {
    if (!accept_operator(op)) fail_syntax(line(), fmt::format("expected '{}', got {}", op, describe(current())));
  }
  void expect(TokenKind kind, std::string_view what) {
    if (current().kind != kind) fail_syntax(line(), fmt::format("expected {}, got {}", what, describe(current())));
    next();
  }
  std::string expect_identifier() {
    if (current().kind != TokenKind::kName) fail_syntax(line(), fmt::format("expected a name, got {}", describe(current())));
    return next().text;
  }

  NameId intern(const std::string& name) {
    auto [entry, inserted] = name_ids_.emplace(name, static_cast<NameId>(program_->names.size()));
    if (inserted) program_->names.push_back(name);
    return entry->second;
  }

  template <typename Node>
  static ExpressionPtr make(int line, Node node) {
    auto expression = make_expression(line, std::move(node));
    if (expression->height > kMaxNesting) fail_syntax(line, fmt::format("nested deeper than {} levels", kMaxNesting));
    return expression;
  }
  ExpressionPtr literal(int line, LiteralValue value) {
    program_->literals.push_back(std::move(value));
    return make(line, Literal{static_cast<uint32_t>(program_->literals.size() - 1)});
  }

  // --------------------------------------------------------------------------------------------------------- statements

  /// Statements up to a tag with one of the names `ends`, which is left as the current token; with none, up to the end.
  Block block(std::initializer_list<std::string_view> ends) {
    Level level(this);
    Block statements;
    auto add = [&](int line, auto node) { statements.push_back(std::make_unique<Statement>(Statement{line, std::move(node)})); };
    for (;;) {
      int at = line();
      switch (current().kind) {
        case TokenKind::kText:
          add(at, Text{next().text});
          break;
        case TokenKind::kPrintBegin: {
          next();
          auto value = tuple_expression(true);
          expect(TokenKind::kPrintEnd, "end of print statement");
          add(at, Print{std::move(value)});
          break;
        }
        case TokenKind::kBlockBegin: {
          next();
          if (current().kind != TokenKind::kName) fail_syntax(line(), "tag name expected");
          if (std::find(ends.begin(), ends.end(), current().text) != ends.end()) return statements;
          if (auto parsed = statement()) statements.push_back(std::move(parsed));
          expect(TokenKind::kBlockEnd, "end of statement block");
          break;
        }
        default:
          if (ends.size() > 0) fail_syntax(at, fmt::format("unexpected end of template, expected '{}'", *(ends.end() - 1)));
          return statements;
      }
    }
  }

  /// The block of a tag whose head has just been parsed, through the name of its end tag.
  Block body_until(std::string_view end) {
    expect(TokenKind::kBlockEnd, "end of statement block");
    Block body = block({end});
    next();
    return body;
  }

  std::unique_ptr<Statement> statement() {
    int at = line();
    std::string tag = next().text;
    auto result = [&](auto node) { return std::make_unique<Statement>(Statement{at, std::move(node)}); };
    if (tag == "if") return result(if_statement());
    if (tag == "for") return result(for_statement());
    if (tag == "set") return result_of_set(at);
    if (tag == "macro") return result(macro(at));
    if (tag == "call") return result(call_block(at));
    if (tag == "print") return result(Print{printed_list(at)});
    if (tag == "filter") {
      Capture capture;
      capture.filter = filters(nullptr, true);
      capture.body = body_until("endfilter");
      return result(std::move(capture));
    }
    if (tag == "with") {
      With with;
      while (current().kind != TokenKind::kBlockEnd) {
        if (!with.bindings.empty()) expect_operator(",");
        Target target = assign_target({}, false);
        expect_operator("=");
        with.bindings.emplace_back(std::move(target), expression());
      }
      with.body = body_until("endwith");
      return result(std::move(with));
    }
    if (tag == "generation") return result(Scoped{body_until("endgeneration")});
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) fail_syntax(at, fmt::format("'{}' outside of a loop", tag));
      return tag == "break" ? result(Break{}) : result(Continue{});
    }
    for (std::string_view refused : {"extends", "block", "include", "import", "from", "autoescape", "do", "trans", "debug"}) {
      if (tag == refused) fail_syntax(at, fmt::format("the tag '{}' is not supported in chat templates", tag));
    }
    fail_syntax(at, fmt::format("unknown tag '{}'", tag));
  }

  /// The expressions of a print tag, which stand side by side in the output.
  ExpressionPtr printed_list(int at) {
    Concatenation list;
    do {
      list.parts.push_back(expression());
    } while (accept_operator(","));
    return make(at, std::move(list));
  }

  If if_statement() {
    If node;
    ++branches_;
    for (;;) {
      auto condition = tuple_expression(false);
      expect(TokenKind::kBlockEnd, "end of statement block");
      Block body = block({"elif", "else", "endif"});
      node.branches.emplace_back(std::move(condition), std::move(body));
      if (accept_name("elif")) continue;
      if (accept_name("else")) {
        node.otherwise = body_until("endif");
      } else {
        next();
      }
      break;
    }
    --branches_;
    return node;
  }

  For for_statement() {
    For node;
    node.target = assign_target("in", false);
    if (!accept_name("in")) fail_syntax(line(), fmt::format("expected 'in', got {}", describe(current())));
    node.iterable = tuple_expression(false, "recursive");
    if (accept_name("if")) node.condition = expression();
    node.recursive = accept_name("recursive");
    expect(TokenKind::kBlockEnd, "end of statement block");
    ++loops_;
    node.body = block({"else", "endfor"});
    --loops_;
    if (accept_name("else")) {
      node.otherwise = body_until("endfor");
    } else {
      next();
    }
    return node;
  }

  std::unique_ptr<Statement> result_of_set(int at) {
    Target target = assign_target({}, true);
    if (accept_operator("=")) return std::make_unique<Statement>(Statement{at, Assign{std::move(target), tuple_expression(true)}});
    Capture capture;
    capture.target = std::move(target);
    capture.filter = filters(nullptr, false);
    capture.body = body_until("endset");
    return std::make_unique<Statement>(Statement{at, std::move(capture)});
  }

  void parameters(MacroDefinition* definition) {
    expect_operator("(");
    while (!is_operator(")")) {
      if (!definition->parameters.empty()) expect_operator(",");
      int at = line();
      std::string name = expect_identifier();
      ExpressionPtr otherwise;
      if (accept_operator("=")) {
        otherwise = expression();
      } else if (!definition->parameters.empty() && definition->parameters.back().second) {
        fail_syntax(at, "a parameter without a default follows one with a default");
      }
      definition->parameters.emplace_back(intern(name), std::move(otherwise));
      definition->parameter_names.push_back(std::move(name));
    }
    expect_operator(")");
  }

  void macro_body(MacroDefinition* definition, std::string_view end) {
    macros_.push_back(definition);
    int loops = std::exchange(loops_, 0);
    definition->body = body_until(end);
    loops_ = loops;
    macros_.pop_back();
  }

  Macro macro(int at) {
    Macro node;
    node.definition.name = expect_identifier();
    if (is_constant_name(node.definition.name)) fail_syntax(at, fmt::format("cannot assign to '{}'", node.definition.name));
    node.name = intern(node.definition.name);
    parameters(&node.definition);
    macro_body(&node.definition, "endmacro");
    return node;
  }

  CallBlock call_block(int at) {
    CallBlock node;
    if (is_operator("(")) parameters(&node.caller);
    node.call = expression();
    if (!std::holds_alternative<Call>(node.call->node)) fail_syntax(at, "expected a call");
    macro_body(&node.caller, "endcall");
    return node;
  }

  static bool is_constant_name(std::string_view name) {
    return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" || name == "None";
  }

  /// A name, a tuple of targets, or `namespace.attribute`. `end`: a word that ends it.
  Target assign_target(std::string_view end, bool with_namespace) {
    Target tuple;
    tuple.line = line();
    tuple.unpacks = true;
    bool comma = false;
    while (!ends_tuple(end) && !is_operator("=")) {
      if (!tuple.elements.empty()) {
        if (!accept_operator(",")) break;
        comma = true;
        if (ends_tuple(end) || is_operator("=")) break;
      }
      tuple.elements.push_back(single_target(with_namespace));
    }
    if (tuple.elements.empty()) fail_syntax(line(), fmt::format("expected a name to assign to, got {}", describe(current())));
    return comma ? tuple : std::move(tuple.elements[0]);
  }

  Target single_target(bool with_namespace) {
    Level level(this);
    if (is_operator("(") || is_operator("[")) {
      std::string close = next().text == "(" ? ")" : "]";
      Target inner = assign_target({}, with_namespace);
      if (!accept_operator(close)) fail_syntax(line(), fmt::format("expected '{}', got {}", close, describe(current())));
      return inner;
    }
    Target target;
    target.line = line();
    std::string name = expect_identifier();
    if (is_constant_name(name)) fail_syntax(target.line, fmt::format("cannot assign to '{}'", name));
    if (name == "loop" && !with_namespace) fail_syntax(target.line, "cannot assign to the loop variable 'loop'");
    target.name = intern(name);
    if (with_namespace && accept_operator(".")) target.attribute = expect_identifier();
    return target;
  }

  // -------------------------------------------------------------------------------------------------------- expressions

  bool ends_tuple(std::string_view word) const {
    return current().kind == TokenKind::kBlockEnd || current().kind == TokenKind::kPrintEnd || current().kind == TokenKind::kEnd ||
           is_operator(")") || is_operator("]") || (!word.empty() && is_name(word));
  }

  /// Expressions with commas between them: a tuple, or the one expression without a comma.
  ExpressionPtr tuple_expression(bool with_conditional, std::string_view end = {}, bool in_parentheses = false) {
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

  ExpressionPtr expression() {
    Level level(this);
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

  ExpressionPtr or_expression() { return logical(false); }

  ExpressionPtr logical(bool is_and) {
    int at = line();
    Logical node{is_and, {}};
    do {
      node.operands.push_back(is_and ? not_expression() : logical(true));
    } while (accept_name(is_and ? "and" : "or"));
    return node.operands.size() == 1 ? std::move(node.operands[0]) : make(at, std::move(node));
  }

  ExpressionPtr not_expression() {
    int at = line();
    if (!accept_name("not")) return comparison();
    Level level(this);
    return make(at, Unary{UnaryOperator::kNot, not_expression()});
  }

  std::optional<CompareOperator> compare_operator() {
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

  ExpressionPtr comparison() {
    int at = line();
    Comparison node{sum(), {}};
    while (auto op = compare_operator()) node.rest.emplace_back(*op, sum());
    return node.rest.empty() ? std::move(node.first) : make(at, std::move(node));
  }

  using Rule = ExpressionPtr (Parser::*)();

  ExpressionPtr binary_chain(Rule operand, std::initializer_list<std::pair<std::string_view, BinaryOperator>> operators) {
    int at = line();
    BinaryChain node{(this->*operand)(), {}};
    for (;;) {
      auto found = std::find_if(operators.begin(), operators.end(), [&](const auto& op) { return accept_operator(op.first); });
      if (found == operators.end()) break;
      node.rest.emplace_back(found->second, (this->*operand)());
    }
    return node.rest.empty() ? std::move(node.first) : make(at, std::move(node));
  }

  ExpressionPtr sum() { return binary_chain(&Parser::concatenation, {{"+", BinaryOperator::kAdd}, {"-", BinaryOperator::kSubtract}}); }

  ExpressionPtr concatenation() {
    int at = line();
    Concatenation node;
    do {
      node.parts.push_back(product());
    } while (accept_operator("~"));
    return node.parts.size() == 1 ? std::move(node.parts[0]) : make(at, std::move(node));
  }

  ExpressionPtr product() {
    return binary_chain(&Parser::power, {{"*", BinaryOperator::kMultiply},
                                         {"/", BinaryOperator::kDivide},
                                         {"//", BinaryOperator::kFloorDivide},
                                         {"%", BinaryOperator::kModulo}});
  }

  /// Left associative, as in jinja2; in Python it is not.
  ExpressionPtr power() { return binary_chain(&Parser::filtered_unary, {{"**", BinaryOperator::kPower}}); }

  ExpressionPtr filtered_unary() { return unary(true); }

  ExpressionPtr unary(bool with_filters) {
    Level level(this);
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

  ExpressionPtr primary() {
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
          Level level(this);
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

  /// A macro takes `caller`, `varargs` or `kwargs` if its body names them.
  void note_special_name(std::string_view name) {
    for (MacroDefinition* definition : macros_) {
      definition->takes_caller |= name == "caller";
      definition->takes_varargs |= name == "varargs";
      definition->takes_kwargs |= name == "kwargs";
    }
  }

  ExpressionPtr list(int at) {
    SequenceLiteral node{false, {}};
    while (!is_operator("]")) {
      if (!node.items.empty()) expect_operator(",");
      if (is_operator("]")) break;
      node.items.push_back(expression());
    }
    expect_operator("]");
    return make(at, std::move(node));
  }

  ExpressionPtr dict(int at) {
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

  ExpressionPtr postfix(ExpressionPtr node) {
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

  ExpressionPtr subscript(ExpressionPtr base, int at) {
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

  ArgumentList arguments() {
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

  ExpressionPtr filters_and_tests(ExpressionPtr node) {
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

  std::string dotted_name() {
    std::string name = expect_identifier();
    while (accept_operator(".")) name.append(".").append(expect_identifier());
    return name;
  }

  /// `|name(...)` as often as it stands there; `inline_start`: the first without its bar.
  ExpressionPtr filters(ExpressionPtr input, bool inline_start) {
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

  ExpressionPtr test(ExpressionPtr input) {
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

  bool starts_test_argument() const {
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

  std::shared_ptr<Program> program_;
  std::vector<Token> tokens_;
  size_t position_ = 0;
  int nesting_ = 0;
  int loops_ = 0;                                     ///< loops around the current statement, within its macro
  int branches_ = 0;                                  ///< branches around the current expression: what stands there may never run
  std::vector<std::pair<int, std::string>> unknown_;  ///< filters and tests outside of branches that do not exist, with their lines
  std::vector<MacroDefinition*> macros_;
  std::unordered_map<std::string, NameId> name_ids_;
};

}  // namespace

std::shared_ptr<const Program> parse(std::string source) {
  return Parser(std::move(source)).run();
}

}  // namespace minisgl::jinja
