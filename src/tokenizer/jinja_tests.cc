#include <unordered_map>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_print.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {

namespace {

template <Kind... kKinds>
bool is_kind(Heap&, const Value& value, const Arguments& arguments) {
  Bound("test", arguments, {});
  return (value.is(kKinds) || ...);
}

template <bool kExpected>
bool is_boolean_value(Heap&, const Value& value, const Arguments& arguments) {
  Bound("test", arguments, {});
  return value.is(Kind::kBool) && value.boolean() == kExpected;
}

bool is_defined(Heap&, const Value& value, const Arguments& arguments) {
  Bound("defined", arguments, {});
  return !value.is_undefined();
}

bool is_sequence(Heap&, const Value& value, const Arguments& arguments) {
  Bound("sequence", arguments, {});
  return value.is_undefined() || value.is_string() || value.is(Kind::kDict) || (value.is_sequence() && !value.is(Kind::kDictView));
}

bool is_iterable_value(Heap&, const Value& value, const Arguments& arguments) {
  Bound("iterable", arguments, {});
  return is_iterable(value);
}

bool is_callable(Heap&, const Value& value, const Arguments& arguments) {
  Bound("callable", arguments, {});
  return value.is_undefined() || value.is(Kind::kCallable) || value.is(Kind::kLoop);
}

/// Whether value % divisor is `expected`.
bool leaves(Heap& heap, const Value& value, const Value& divisor, int64_t expected) {
  return equals(apply_binary(heap, BinaryOperator::kModulo, value, divisor), Value(expected));
}

bool is_odd(Heap& heap, const Value& value, const Arguments& arguments) {
  Bound("odd", arguments, {});
  return leaves(heap, value, Value(int64_t{2}), 1);
}

bool is_even(Heap& heap, const Value& value, const Arguments& arguments) {
  Bound("even", arguments, {});
  return leaves(heap, value, Value(int64_t{2}), 0);
}

bool is_divisible(Heap& heap, const Value& value, const Arguments& arguments) {
  Bound bound("divisibleby", arguments, {"num"}, 1);
  return leaves(heap, value, bound[0], 0);
}

template <CompareOperator kOperation>
bool compares(Heap&, const Value& value, const Arguments& arguments) {
  Bound bound("comparison", arguments, {"other"}, 1);
  return apply_comparison(kOperation, value, bound[0]);
}

/// Scalars that are equal and of one type count as the same object.
bool is_same(Heap&, const Value& value, const Arguments& arguments) {
  Bound bound("sameas", arguments, {"other"}, 1);
  const Value& other = bound[0];
  if (value.kind() != other.kind()) return false;
  return value.is_number() || value.is_string() || value.is_none() ? equals(value, other) : value.object() == other.object();
}

/// isupper() / islower() of the printed value.
template <std::string (*kSame)(std::string_view), std::string (*kOther)(std::string_view)>
bool has_case(Heap& heap, const Value& value, const Arguments& arguments) {
  Bound("case", arguments, {});
  std::string printed = to_text(heap, value);
  heap.spend_characters(2 * printed.size());
  return kSame(printed) == printed && kOther(printed) != printed;
}

bool is_escaped(Heap&, const Value& value, const Arguments& arguments) {
  Bound("escaped", arguments, {});
  return value.is_string() && value.string().safe;
}

bool names_filter(Heap&, const Value& value, const Arguments& arguments) {
  Bound("filter", arguments, {});
  return value.is_string() && find_filter(value.text());
}

bool names_test(Heap&, const Value& value, const Arguments& arguments) {
  Bound("test", arguments, {});
  return value.is_string() && find_test(value.text());
}

}  // namespace

Test find_test(std::string_view name) {
  using enum CompareOperator;
  static const std::unordered_map<std::string_view, Test> table = {
      {"defined", is_defined},
      {"undefined", is_kind<Kind::kUndefined>},
      {"none", is_kind<Kind::kNone>},
      {"boolean", is_kind<Kind::kBool>},
      {"true", is_boolean_value<true>},
      {"false", is_boolean_value<false>},
      {"integer", is_kind<Kind::kInt>},
      {"float", is_kind<Kind::kFloat>},
      {"number", is_kind<Kind::kInt, Kind::kFloat, Kind::kBool>},
      {"string", is_kind<Kind::kString>},
      {"mapping", is_kind<Kind::kDict>},
      {"sequence", is_sequence},
      {"iterable", is_iterable_value},
      {"callable", is_callable},
      {"odd", is_odd},
      {"even", is_even},
      {"divisibleby", is_divisible},
      {"sameas", is_same},
      {"lower", has_case<text::lower, text::upper>},
      {"upper", has_case<text::upper, text::lower>},
      {"escaped", is_escaped},
      {"filter", names_filter},
      {"test", names_test},
      {"in", compares<kIn>},
      {"==", compares<kEqual>},
      {"eq", compares<kEqual>},
      {"equalto", compares<kEqual>},
      {"!=", compares<kNotEqual>},
      {"ne", compares<kNotEqual>},
      {">", compares<kGreater>},
      {"gt", compares<kGreater>},
      {"greaterthan", compares<kGreater>},
      {">=", compares<kGreaterEqual>},
      {"ge", compares<kGreaterEqual>},
      {"<", compares<kLess>},
      {"lt", compares<kLess>},
      {"lessthan", compares<kLess>},
      {"<=", compares<kLessEqual>},
      {"le", compares<kLessEqual>},
  };
  auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace minisgl::jinja
