#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/jinja_builtins.h"

/// The syntax tree of a template: immutable once parsed, shared by all renderings.
namespace minisgl::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Block = std::vector<std::unique_ptr<Statement>>;

/// An index into Program::names.
using NameId = uint32_t;

enum class UnaryOperator : uint8_t { kNegate, kPlus, kNot };
enum class BinaryOperator : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOperator : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

/// The arguments of a call, filter or test as written.
struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;         ///< `*args`, or null
  ExpressionPtr double_star;  ///< `**kwargs`, or null
};

struct Literal {
  uint32_t index;  ///< in Program::literals
};
struct NameLoad {
  NameId name;
};
struct SequenceLiteral {
  bool tuple;
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct AttributeLoad {
  ExpressionPtr base;
  std::string name;
};
struct Subscript {
  ExpressionPtr base;
  ExpressionPtr index;
};
struct Slice {
  ExpressionPtr base;
  ExpressionPtr start, stop, step;  ///< null where left out
};
struct Unary {
  UnaryOperator operation;
  ExpressionPtr operand;
};
/// Operators of one precedence, from the left: a loop instead of a tree as deep as the chain is long.
struct BinaryChain {
  ExpressionPtr first;
  std::vector<std::pair<BinaryOperator, ExpressionPtr>> rest;
};
struct Concatenation {
  std::vector<ExpressionPtr> parts;
};
struct Logical {
  bool is_and;
  std::vector<ExpressionPtr> operands;
};
struct Comparison {
  ExpressionPtr first;
  std::vector<std::pair<CompareOperator, ExpressionPtr>> rest;
};
struct Conditional {
  ExpressionPtr value, condition;
  ExpressionPtr otherwise;  ///< null: undefined
};
struct Call {
  ExpressionPtr callee;
  ArgumentList arguments;
};
struct FilterCall {
  ExpressionPtr input;  ///< null in a filter block: the text of the block
  std::string name;
  Filter filter;  ///< null: unknown, in a branch that may never run
  ArgumentList arguments;
};
struct TestCall {
  ExpressionPtr input;
  std::string name;
  Test test;  ///< as FilterCall::filter
  ArgumentList arguments;
};

using ExpressionNode = std::variant<Literal, NameLoad, SequenceLiteral, DictLiteral, AttributeLoad, Subscript, Slice, Unary, BinaryChain,
                                    Concatenation, Logical, Comparison, Conditional, Call, FilterCall, TestCall>;

struct Expression {
  int line;
  int height;  ///< of this tree: bounds the recursion of evaluating and of deleting it
  ExpressionNode node;
};

/// An expression one higher than its highest operand.
ExpressionPtr make_expression(int line, ExpressionNode node);

/// What an assignment, a loop or a parameter binds.
struct Target {
  int line = 0;
  NameId name = 0;
  std::string attribute;  ///< of the namespace `name`, or empty
  bool unpacks = false;   ///< binds `elements` instead of `name`
  std::vector<Target> elements;
};

struct Text {
  std::string text;
};
struct Print {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  ///< null: every item
  bool recursive;
  Block body;
  Block otherwise;
};
struct Assign {
  Target target;
  ExpressionPtr value;
};
/// `{% set x %}...{% endset %}`, `{% filter f %}...{% endfilter %}`: the text of a block, filtered.
struct Capture {
  std::optional<Target> target;  ///< none: printed
  ExpressionPtr filter;          ///< a chain of FilterCall whose innermost input is null; or null
  Block body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> bindings;
  Block body;
};
/// Parameters and body of a macro or a call block.
struct MacroDefinition {
  std::string name;  ///< empty: the body of a call block
  std::vector<std::pair<NameId, ExpressionPtr>> parameters;
  std::vector<std::string> parameter_names;
  bool takes_varargs = false, takes_kwargs = false, takes_caller = false;
  Block body;
};
struct Macro {
  NameId name;
  MacroDefinition definition;
};
struct CallBlock {
  ExpressionPtr call;  ///< always a Call
  MacroDefinition caller;
};
/// `{% generation %}`: a scope of its own.
struct Scoped {
  Block body;
};
struct Break {};
struct Continue {};

struct Statement {
  int line;
  std::variant<Text, Print, If, For, Assign, Capture, With, Macro, CallBlock, Scoped, Break, Continue> node;
};

using LiteralValue = std::variant<std::monostate, bool, int64_t, double, std::string>;

/// A parsed template.
struct Program {
  std::string source;
  std::vector<std::string> names;
  std::vector<LiteralValue> literals;
  Block body;
  // The names that the language itself binds.
  NameId loop = 0, caller = 0, varargs = 0, kwargs = 0;
};

}  // namespace minisgl::jinja
