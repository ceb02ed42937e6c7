#pragma once

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_value.h"

/// Python's operators. Integers that leave 64 bits are refused (Python's do not end).
namespace minisgl::jinja {

Value apply_unary(UnaryOperator operation, const Value& operand);
Value apply_binary(Heap& heap, BinaryOperator operation, const Value& left, const Value& right);
bool apply_comparison(CompareOperator operation, const Value& left, const Value& right);
/// `item in container`; consumes an iterator up to the item.
bool contains(const Value& container, const Value& item);

}  // namespace minisgl::jinja
