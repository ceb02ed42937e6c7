#include "tokenizer/jinja_operators.h"

#include <cmath>

#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {

namespace {

constexpr std::string_view kBinaryNames[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void refuse_operands(BinaryOperator operation, const Value& left, const Value& right) {
  if (operation == BinaryOperator::kAdd && left.is_string()) {
    refuse("can only concatenate str (not \"{}\") to str", type_name(right));
  }
  refuse("unsupported operand type(s) for {}: '{}' and '{}'", kBinaryNames[static_cast<int>(operation)], type_name(left), type_name(right));
}

int64_t checked(bool overflow, int64_t value) {
  if (overflow) refuse("an integer leaves the range of 64 bits");
  return value;
}

int64_t floor_divide(int64_t a, int64_t b) {
  checked(a == INT64_MIN && b == -1, 0);
  int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t floor_modulo(int64_t a, int64_t b) {
  if (b == -1) return 0;
  int64_t remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

double floor_modulo(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder == 0) return std::copysign(0.0, b);
  return (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

double floor_divide(double a, double b) {
  double quotient = (a - floor_modulo(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) refuse("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent & 1) checked(__builtin_mul_overflow(result, base, &result), 0);
    exponent >>= 1;
    if (exponent > 0) checked(__builtin_mul_overflow(base, base, &base), 0);
  }
  return Value(result);
}

Value float_power(double base, double exponent) {
  if (base == 0 && exponent < 0) refuse("0.0 cannot be raised to a negative power");
  if (base < 0 && std::isfinite(base) && exponent != std::floor(exponent)) refuse("complex numbers are not supported");
  double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) refuse("(34, 'Numerical result out of range')");
  return Value(result);
}

Value integer_arithmetic(BinaryOperator operation, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (operation) {
    case BinaryOperator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      return Value(checked(overflow, result));
    case BinaryOperator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      return Value(checked(overflow, result));
    case BinaryOperator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      return Value(checked(overflow, result));
    case BinaryOperator::kPower:
      return integer_power(a, b);
    default:
      break;
  }
  if (b == 0) refuse("{}", operation == BinaryOperator::kDivide ? "division by zero" : "integer division or modulo by zero");
  if (operation == BinaryOperator::kDivide) return Value(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
  return Value(operation == BinaryOperator::kModulo ? floor_modulo(a, b) : floor_divide(a, b));
}

Value float_arithmetic(BinaryOperator operation, double a, double b) {
  switch (operation) {
    case BinaryOperator::kAdd:
      return Value(a + b);
    case BinaryOperator::kSubtract:
      return Value(a - b);
    case BinaryOperator::kMultiply:
      return Value(a * b);
    case BinaryOperator::kPower:
      return float_power(a, b);
    default:
      break;
  }
  if (b == 0) refuse("float division by zero");
  if (operation == BinaryOperator::kDivide) return Value(a / b);
  return Value(operation == BinaryOperator::kModulo ? floor_modulo(a, b) : floor_divide(a, b));
}

/// How often a repetition of `bytes` may be made; 0 for a negative count.
size_t checked_repeats(Heap& heap, size_t bytes, int64_t count) {
  if (count <= 0 || bytes == 0) return 0;
  size_t total = 0;
  bool overflow = __builtin_mul_overflow(bytes, static_cast<size_t>(count), &total);
  heap.check_bytes(overflow ? SIZE_MAX : total);
  heap.spend_bytes(total);
  return static_cast<size_t>(count);
}

Value repeat(Heap& heap, const Value& value, int64_t count) {
  if (value.is_string()) {
    size_t repeats = checked_repeats(heap, value.text().size(), count);
    std::string out;
    out.reserve(repeats * value.text().size());
    for (size_t i = 0; i < repeats; ++i) out += value.text();
    return heap.string(std::move(out), value.string().safe);
  }
  const auto& items = value.sequence().items;
  size_t repeats = checked_repeats(heap, items.size() * sizeof(Value), count);
  std::vector<Value> out;
  out.reserve(repeats * items.size());
  for (size_t i = 0; i < repeats; ++i) out.insert(out.end(), items.begin(), items.end());
  return heap.sequence(value.kind(), std::move(out));
}

Value concatenate(Heap& heap, const Value& left, const Value& right) {
  if (left.is_string()) {
    bool safe = left.string().safe || right.string().safe;
    auto piece = [&](const Value& value) { return safe && !value.string().safe ? text::escape_html(value.text()) : value.text(); };
    heap.check_bytes(left.text().size() + right.text().size());
    if (safe) return heap.string(piece(left) + piece(right), true);
    return heap.string(left.text() + right.text());
  }
  std::vector<Value> out = left.sequence().items;
  const auto& more = right.sequence().items;
  heap.check_items(out.size() + more.size());
  out.insert(out.end(), more.begin(), more.end());
  return heap.sequence(left.kind(), std::move(out));
}

}  // namespace

Value apply_unary(UnaryOperator operation, const Value& operand) {
  if (operation == UnaryOperator::kNot) return Value(!truth(operand));
  require_defined(operand);
  bool negate = operation == UnaryOperator::kNegate;
  if (operand.is(Kind::kFloat)) return Value(negate ? -operand.real() : operand.real());
  if (!operand.is_integral()) refuse("bad operand type for unary {}: '{}'", negate ? '-' : '+', type_name(operand));
  if (!negate) return Value(operand.integer());
  checked(operand.integer() == INT64_MIN, 0);
  return Value(-operand.integer());
}

Value apply_binary(Heap& heap, BinaryOperator operation, const Value& left, const Value& right) {
  if (operation == BinaryOperator::kModulo && left.is_string()) return percent_format(heap, left, right);
  require_defined(left);
  require_defined(right);
  if (left.is_integral() && right.is_integral()) return integer_arithmetic(operation, left.integer(), right.integer());
  if (left.is_number() && right.is_number()) return float_arithmetic(operation, left.real(), right.real());
  auto repeatable = [](const Value& value) { return value.is_string() || value.is(Kind::kList) || value.is(Kind::kTuple); };
  if (operation == BinaryOperator::kAdd && left.kind() == right.kind() && repeatable(left)) return concatenate(heap, left, right);
  if (operation == BinaryOperator::kMultiply) {
    if (repeatable(left) && right.is_integral()) return repeat(heap, left, right.integer());
    if (repeatable(right) && left.is_integral()) return repeat(heap, right, left.integer());
    if (repeatable(left)) refuse("can't multiply sequence by non-int of type '{}'", type_name(right));
  }
  refuse_operands(operation, left, right);
}

bool contains(const Value& container, const Value& item) {
  if (container.is_undefined()) return false;
  if (container.is_string()) {
    require_defined(item);
    if (!item.is_string()) refuse("'in <string>' requires string as left operand, not {}", type_name(item));
    container.string().heap().spend_bytes(container.text().size());
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is(Kind::kDict)) return container.dict().find(item) != nullptr;
  if (container.is_sequence()) {
    for (const Value& candidate : container.sequence().items) {
      container.sequence().heap().spend(1);
      if (equals(candidate, item)) return true;
    }
    return false;
  }
  if (container.is(Kind::kIterator)) {
    IteratorObject& iterator = container.iterator();
    while (iterator.position < iterator.items.size()) {
      iterator.heap().spend(1);
      if (equals(iterator.items[iterator.position++], item)) return true;
    }
    return false;
  }
  refuse("argument of type '{}' is not iterable", type_name(container));
}

bool apply_comparison(CompareOperator operation, const Value& left, const Value& right) {
  switch (operation) {
    case CompareOperator::kEqual:
      return equals(left, right);
    case CompareOperator::kNotEqual:
      return !equals(left, right);
    case CompareOperator::kIn:
      return contains(right, left);
    case CompareOperator::kNotIn:
      return !contains(right, left);
    default:
      break;
  }
  // A comparison with NaN is false either way round, so <= is not the negation of >.
  bool strict = operation == CompareOperator::kLess || operation == CompareOperator::kGreater;
  bool upward = operation == CompareOperator::kLess || operation == CompareOperator::kLessEqual;
  const Value& low = upward ? left : right;
  const Value& high = upward ? right : left;
  bool below = false;
  try {
    below = less(low, high);
  } catch (const RenderError&) {
    constexpr std::string_view kNames[] = {"==", "!=", "<", "<=", ">", ">="};
    bool ordered = (left.is_number() && right.is_number()) || (left.is_string() && right.is_string()) || left.is_undefined() ||
                   right.is_undefined() || (left.is_sequence() && left.kind() == right.kind());
    if (ordered) throw;
    refuse("'{}' not supported between instances of '{}' and '{}'", kNames[static_cast<int>(operation)], type_name(left), type_name(right));
  }
  return below || (!strict && equals(left, right));
}

}  // namespace minisgl::jinja
