#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// Cuts a template into tokens, with the white space rules of jinja2 under trim_blocks and lstrip_blocks.
namespace minisgl::jinja {

enum class TokenKind {
  kText,        ///< template text between tags
  kBlockBegin,  ///< `{%`
  kBlockEnd,
  kPrintBegin,  ///< `{{`
  kPrintEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  ///< `text` is the operator
  kEnd,
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;  ///< unescaped for a string
  std::variant<int64_t, double> number{};
};

/// Throws Error(kBadModel) with the line at fault. The last token is kEnd.
std::vector<Token> tokenize(std::string_view source);

/// Throws Error(kBadModel): "chat template, line N: message".
[[noreturn]] void fail_syntax(int line, const std::string& message);

}  // namespace minisgl::jinja
