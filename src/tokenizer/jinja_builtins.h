#pragma once

#include <ctime>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_value.h"

/// The filters, tests, methods and global functions of the template language.
namespace minisgl::jinja {

using Filter = Value (*)(Heap& heap, const Value& input, const Arguments& arguments);
using Test = bool (*)(Heap& heap, const Value& input, const Arguments& arguments);

/// The filter or test of this name, or null.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);

/// Why a filter of jinja2 is left out, or empty if there is no such filter there either.
std::string_view filter_refusal(std::string_view name);

/// `value.name`: a method, an element of that name, or undefined.
Value get_attribute(Heap& heap, const Value& value, std::string_view name);
/// `value[index]`: an element, a method of that name, or undefined.
Value get_item(Heap& heap, const Value& value, const Value& index);
/// `value[start:stop:step]`; null for a bound that is left out.
Value get_slice(Heap& heap, const Value& value, const Value& start, const Value& stop, const Value& step);
/// Calls a function, macro, method or recursive loop.
Value call_value(const Value& callee, const Arguments& arguments);

/// The method of a string, list, dict, ..., bound to `value`; nothing if there is none. Unsafe ones come as undefined values.
std::optional<Value> find_method(Heap& heap, const Value& value, std::string_view name);

/// The global function of this name (range, dict, namespace, raise_exception, ...), or nothing. `now`: what strftime_now prints.
std::optional<Value> find_global(Heap& heap, std::string_view name, const std::tm& now);

/// The text a template gave to raise_exception.
class RaisedException : public RenderError {
 public:
  using RenderError::RenderError;
};

/// A function of the engine as a value.
class NativeFunction final : public CallableObject {
 public:
  using Body = std::function<Value(const Arguments&)>;
  NativeFunction(Heap& heap, std::string name, Body body) : CallableObject(heap), name_(std::move(name)), body_(std::move(body)) {}
  Value call(const Arguments& arguments) override { return body_(arguments); }
  std::string repr() const override { return "<function " + name_ + ">"; }
  void clear() override { body_ = nullptr; }

 private:
  std::string name_;
  Body body_;
};

Value make_function(Heap& heap, std::string name, NativeFunction::Body body);

/// The arguments of a call by the names of a signature. A missing one is null.
class Bound {
 public:
  /// Throws as Python does for too many, unknown, doubled or missing arguments; the first `required` names must be there.
  Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names, size_t required = 0);

  bool has(size_t i) const { return values_[i] != nullptr; }
  const Value& operator[](size_t i) const { return *values_[i]; }
  /// An int argument, or the default.
  int64_t integer(size_t i, int64_t otherwise) const;
  bool boolean(size_t i, bool otherwise) const { return has(i) ? truth(*values_[i]) : otherwise; }
  /// A str argument, or the default.
  std::string_view text(size_t i, std::string_view otherwise = "") const;

 private:
  std::string_view function_;
  std::vector<const Value*> values_;
};

}  // namespace minisgl::jinja
