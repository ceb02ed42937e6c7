#include "tokenizer/jinja_ast.h"

#include <algorithm>

namespace minisgl::jinja {

namespace {

/// The largest height of an operation's operands.
class HeightOfChildren {
 public:
  template <typename Node>
  int operator()(const Node& node) {
    children(node);
    return height_;
  }

 private:
  void add(const ExpressionPtr& child) {
    if (child) height_ = std::max(height_, child->height);
  }
  template <typename... Pointers>
  void add(const ExpressionPtr& first, const Pointers&... rest) {
    add(first);
    add(rest...);
  }
  void add(const std::vector<ExpressionPtr>& list) {
    for (const auto& child : list) add(child);
  }
  template <typename First>
  void add(const std::vector<std::pair<First, ExpressionPtr>>& list) {
    for (const auto& [first, child] : list) add(child);
  }
  void add(const ArgumentList& list) {
    add(list.positional);
    add(list.named);
    add(list.star, list.double_star);
  }

  void children(const Literal&) {}
  void children(const NameLoad&) {}
  void children(const SequenceLiteral& node) { add(node.items); }
  void children(const DictLiteral& node) {
    for (const auto& [key, value] : node.entries) add(key, value);
  }
  void children(const AttributeLoad& node) { add(node.base); }
  void children(const Subscript& node) { add(node.base, node.index); }
  void children(const Slice& node) { add(node.base, node.start, node.stop, node.step); }
  void children(const Unary& node) { add(node.operand); }
  void children(const BinaryChain& node) {
    add(node.first);
    add(node.rest);
  }
  void children(const Concatenation& node) { add(node.parts); }
  void children(const Logical& node) { add(node.operands); }
  void children(const Comparison& node) {
    add(node.first);
    add(node.rest);
  }
  void children(const Conditional& node) { add(node.value, node.condition, node.otherwise); }
  void children(const Call& node) {
    add(node.callee);
    add(node.arguments);
  }
  void children(const FilterCall& node) {
    add(node.input);
    add(node.arguments);
  }
  void children(const TestCall& node) {
    add(node.input);
    add(node.arguments);
  }

  int height_ = 0;
};

}  // namespace

ExpressionPtr make_expression(int line, ExpressionNode node) {
  int height = 1 + std::visit(HeightOfChildren(), node);
  return std::make_unique<Expression>(Expression{line, height, std::move(node)});
}

}  // namespace minisgl::jinja
