#include "tokenizer/jinja_parser.h"

#include <algorithm>

#include "base/error.h"
#include "tokenizer/jinja_expression_parser.h"

namespace minisgl::jinja {

namespace {

/// The statements of a template.
class Parser : private ExpressionParser {
 public:
  explicit Parser(std::string source) : ExpressionParser(std::move(source)) {}

  std::shared_ptr<const Program> run() {
    program_->body = block({});
    if (!unknown_.empty()) fail_syntax(unknown_[0].first, unknown_[0].second);
    return program_;
  }

 private:
  /// Statements up to a tag with one of the names `ends`, which is left as the current token; with none, up to the end.
  Block block(std::initializer_list<std::string_view> ends) {
    const Level level(this);
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
    const Level level(this);
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

  int loops_ = 0;  ///< loops around the current statement, within its macro
};

}  // namespace

std::shared_ptr<const Program> parse(std::string source) {
  return Parser(std::move(source)).run();
}

}  // namespace minisgl::jinja
