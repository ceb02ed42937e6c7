#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_lexer.h"

namespace minisgl::jinja {

/// Levels of nesting: of tags and brackets while parsing, and of operations in the tree of one expression.
inline constexpr int kMaxNesting = 200;

/// Recursive descent through the expressions of a template, and the tokens that it shares with the statements around them. The parser of
/// statements is built on it (jinja_parser.cc). Every rule starts at the current token and leaves the one behind what it has read.
class ExpressionParser {
 protected:
  explicit ExpressionParser(std::string source);

  /// Counts one level for as long as it lives.
  class Level {
   public:
    explicit Level(ExpressionParser* parser);
    ~Level() { parser_->nesting_ -= 1; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser* parser_;
  };

  const Token& current() const { return tokens_[position_]; }
  int line() const { return current().line; }
  const Token& next() { return tokens_[current().kind == TokenKind::kEnd ? position_ : position_++]; }
  bool is_operator(std::string_view op) const { return current().kind == TokenKind::kOperator && current().text == op; }
  bool is_name(std::string_view name) const { return current().kind == TokenKind::kName && current().text == name; }
  bool accept_operator(std::string_view op) { return is_operator(op) && (next(), true); }
  bool accept_name(std::string_view name) { return is_name(name) && (next(), true); }
  void expect_operator(std::string_view op);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_identifier();
  /// A token for a message.
  static std::string describe(const Token& token);

  NameId intern(const std::string& name);
  template <typename Node>
  static ExpressionPtr make(int line, Node node) {
    auto expression = make_expression(line, std::move(node));
    if (expression->height > kMaxNesting) fail_too_deep(line);
    return expression;
  }

  ExpressionPtr expression();
  /// Expressions with commas between them: a tuple, or the one expression without a comma. `end`: a word that ends it.
  ExpressionPtr tuple_expression(bool with_conditional, std::string_view end = {}, bool in_parentheses = false);
  bool ends_tuple(std::string_view word) const;
  /// `|name(...)` as often as it stands there; `inline_start`: the first without its bar.
  ExpressionPtr filters(ExpressionPtr input, bool inline_start);

  std::shared_ptr<Program> program_;
  int branches_ = 0;                                  ///< branches around the current expression: what stands there may never run
  std::vector<std::pair<int, std::string>> unknown_;  ///< filters and tests outside of branches that do not exist, with their lines
  std::vector<MacroDefinition*> macros_;              ///< around the current expression

 private:
  using Rule = ExpressionPtr (ExpressionParser::*)();

  [[noreturn]] static void fail_too_deep(int line);
  const Token& ahead() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  ExpressionPtr literal(int line, LiteralValue value);

  // From the weakest to the strongest operator.
  ExpressionPtr or_expression();
  ExpressionPtr logical(bool is_and);
  ExpressionPtr not_expression();
  std::optional<CompareOperator> compare_operator();
  ExpressionPtr comparison();
  ExpressionPtr binary_chain(Rule operand, std::initializer_list<std::pair<std::string_view, BinaryOperator>> operators);
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  /// Left associative, as in jinja2; in Python it is not.
  ExpressionPtr power();
  ExpressionPtr filtered_unary();
  ExpressionPtr unary(bool with_filters);

  ExpressionPtr primary();
  /// A macro takes `caller`, `varargs` or `kwargs` if its body names them.
  void note_special_name(std::string_view name);
  ExpressionPtr list(int at);
  ExpressionPtr dict(int at);

  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr subscript(ExpressionPtr base, int at);
  ArgumentList arguments();
  ExpressionPtr filters_and_tests(ExpressionPtr node);
  std::string dotted_name();
  ExpressionPtr test(ExpressionPtr input);
  bool starts_test_argument() const;

  std::vector<Token> tokens_;
  size_t position_ = 0;
  int nesting_ = 0;
  std::unordered_map<std::string, NameId> name_ids_;
};

}  // namespace minisgl::jinja
