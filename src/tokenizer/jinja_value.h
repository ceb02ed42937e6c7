#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Values of the template language: Python's objects as far as a chat template can see them. All of them belong to the Heap of one
/// rendering, which counts their bytes and the steps spent on them; nothing here is shared between threads.
namespace minisgl::jinja {

/// An operation that Python would refuse, or a limit. The interpreter adds the template's line.
class RenderError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw RenderError(fmt::format(format, std::forward<Args>(args)...));
}

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kRange,
  kDictView,
  kDict,
  kIterator,
  kNamespace,
  kCallable,
  kLoop,
};

class Heap;

/// Base of everything with storage. Reference counted; registered with its heap, so that cycles (a macro and its scope, a namespace
/// that holds itself) end with the rendering.
class Object {
 public:
  explicit Object(Heap& heap);
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  /// Drops every reference this object holds.
  virtual void clear() {}

  Heap& heap() const { return heap_; }
  void retain() { ++references_; }
  void release();
  int64_t references() const { return references_; }

 protected:
  /// Counts `bytes` of storage as this object's, until it is deleted.
  void charge_bytes(size_t bytes);

 private:
  friend class Heap;
  Heap& heap_;
  Object* previous_ = nullptr;
  Object* next_ = nullptr;
  int64_t references_ = 0;
  size_t charged_bytes_ = 0;
};

/// A counted reference to an object of type T, possibly null.
template <typename T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) {
    if (object_) object_->retain();
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_) object_->release();
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

struct StringObject;
struct SequenceObject;
struct DictObject;
struct IteratorObject;
struct NamespaceObject;
class CallableObject;

/// A Python value: a scalar in place, or a counted reference to an object. Default: None.
class Value {
 public:
  Value() = default;
  explicit Value(bool value) : kind_(Kind::kBool) { data_.boolean = value; }
  explicit Value(int64_t value) : kind_(Kind::kInt) { data_.integer = value; }
  explicit Value(double value) : kind_(Kind::kFloat) { data_.real = value; }
  Value(Kind kind, Object* object) : kind_(kind) {
    data_.object = object;
    if (object) object->retain();
  }
  Value(const Value& other) : kind_(other.kind_), data_(other.data_) {
    if (has_object()) data_.object->retain();
  }
  Value(Value&& other) noexcept : kind_(std::exchange(other.kind_, Kind::kNone)), data_(other.data_) {}
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Value() {
    if (has_object()) data_.object->release();
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  /// bool, int and float: what Python's arithmetic takes.
  bool is_number() const { return kind_ == Kind::kBool || kind_ == Kind::kInt || kind_ == Kind::kFloat; }
  bool is_integral() const { return kind_ == Kind::kBool || kind_ == Kind::kInt; }
  /// list, tuple, range or a view of a dict: everything whose elements are in a SequenceObject.
  bool is_sequence() const { return kind_ >= Kind::kList && kind_ <= Kind::kDictView; }

  bool boolean() const { return data_.boolean; }
  /// bool and int.
  int64_t integer() const { return kind_ == Kind::kBool ? int64_t{data_.boolean} : data_.integer; }
  /// bool, int and float.
  double real() const { return kind_ == Kind::kFloat ? data_.real : static_cast<double>(integer()); }
  Object* object() const { return has_object() ? data_.object : nullptr; }
  const std::string& text() const;
  const StringObject& string() const;
  const SequenceObject& sequence() const;
  const DictObject& dict() const;
  IteratorObject& iterator() const;
  NamespaceObject& name_space() const;
  CallableObject& callable() const;

 private:
  bool has_object() const { return (kind_ >= Kind::kString || kind_ == Kind::kUndefined) && data_.object != nullptr; }

  Kind kind_ = Kind::kNone;
  union {
    bool boolean;
    int64_t integer;
    double real;
    Object* object;
  } data_{};
};

/// The storage of one rendering: makes values, counts their bytes, and counts steps.
class Heap {
 public:
  Heap(int64_t max_steps, size_t max_output_bytes, size_t max_memory_bytes);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// Spends `steps`; throws RenderError past the limit.
  void spend(int64_t steps) {
    steps_ += steps;
    if (steps_ > max_steps_) [[unlikely]]
      fail_steps();
  }
  /// Spends the steps of touching `bytes` of text.
  void spend_bytes(size_t bytes) { spend(1 + static_cast<int64_t>(bytes / 64)); }
  /// Spends the steps of looking at every character of `bytes` of text.
  void spend_characters(size_t bytes) { spend(1 + static_cast<int64_t>(bytes / 4)); }
  /// Throws RenderError if one string or output of this size is too large.
  void check_bytes(size_t bytes) const {
    if (bytes > max_output_bytes_) [[unlikely]]
      fail_bytes();
  }
  /// Throws RenderError if a list of this many values is too large. To be called before it is made.
  void check_items(size_t items) const { check_bytes(items > max_output_bytes_ ? items : items * sizeof(Value)); }

  Value string(std::string text, bool safe = false);
  Value list(std::vector<Value> items) { return sequence(Kind::kList, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Kind::kTuple, std::move(items)); }
  Value sequence(Kind kind, std::vector<Value> items, std::string_view type_name = "");
  /// A one-pass iterator, such as a generator; `type_name` as Python calls its type.
  Value iterator(std::vector<Value> items, std::string_view type_name = "generator");
  /// An undefined value; using it fails with `message`.
  Value undefined(std::string message);
  Value undefined_name(std::string_view name) { return undefined(fmt::format("'{}' is undefined", name)); }

 private:
  friend class Object;
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_bytes() const;
  void dispose(Object* object);

  int64_t steps_ = 0;
  int64_t max_steps_;
  size_t max_output_bytes_;
  size_t max_memory_bytes_;
  size_t memory_bytes_ = 0;
  Object* first_ = nullptr;
  std::vector<Object*> dying_;  ///< objects to delete; a loop instead of a recursion, however deep the values are nested
  bool disposing_ = false;
};

/// Text in UTF-8. Also the message of an undefined value.
struct StringObject final : Object {
  StringObject(Heap& heap, std::string value, bool is_safe);
  bool ascii() const { return length == text.size(); }

  std::string text;
  size_t length;  ///< code points
  bool safe;      ///< Python's Markup: joining it with plain text escapes the plain text
};

/// The elements of a list, tuple, range or dict view. Never changed once made: the sandbox forbids it.
struct SequenceObject final : Object {
  SequenceObject(Heap& heap, std::vector<Value> values, std::string_view type);
  void clear() override { items.clear(); }

  std::vector<Value> items;
  std::string_view type_name;  ///< static text; "dict_keys" and the like for views
  int depth;                   ///< levels of containers; bounded, so that recursion over values is safe
};

/// Orders values that may be dict keys, for the index of a dict and for `unique`; equal exactly where Python's keys are equal.
struct KeyLess {
  bool operator()(const Value& a, const Value& b) const;
};

/// A mapping that keeps the order of insertion.
struct DictObject final : Object {
  explicit DictObject(Heap& heap) : Object(heap) {}
  void clear() override {
    index.clear();
    entries.clear();
  }
  /// The value of a key, or null. Throws RenderError for an unhashable key.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  /// Inserts or replaces. Only while the dict is being made, and for namespaces.
  void set(Value key, Value value);

  std::vector<std::pair<Value, Value>> entries;
  std::map<Value, size_t, KeyLess> index;  ///< used from kIndexedSize entries on
  int depth = 1;

  static constexpr size_t kIndexedSize = 9;
};

/// What remains of a one-pass iterator.
struct IteratorObject final : Object {
  IteratorObject(Heap& heap, std::vector<Value> values, std::string_view type);
  void clear() override { items.clear(); }

  std::vector<Value> items;
  size_t position = 0;
  std::string_view type_name;
};

struct NamespaceObject final : Object {
  explicit NamespaceObject(Heap& heap) : Object(heap), attributes(new DictObject(heap)) {}
  void clear() override { attributes = Ref<DictObject>(); }

  Ref<DictObject> attributes;
};

/// The arguments of a call, evaluated.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// A macro, a bound method, a global function or a loop.
class CallableObject : public Object {
 public:
  using Object::Object;
  virtual Value call(const Arguments& arguments) = 0;
  /// As Python prints it.
  virtual std::string repr() const = 0;
  /// Fills `result` if there is such an attribute.
  virtual bool attribute(std::string_view, Value*) { return false; }
};

/// Levels of nested lists and dicts a value may have.
inline constexpr int kMaxValueDepth = 200;

/// Python's type name: "str", "NoneType", "dict", ...
std::string_view type_name(const Value& value);
/// bool(value).
bool truth(const Value& value);
/// len(value); throws where Python has none.
int64_t length(const Value& value);
/// a == b.
bool equals(const Value& a, const Value& b);
/// a < b; throws for types that have no order.
bool less(const Value& a, const Value& b);
/// The elements of an iteration over `value`, which consumes an iterator; throws where Python would ("'int' object is not iterable").
std::vector<Value> iterate(const Value& value);
/// Whether iter(value) works.
bool is_iterable(const Value& value);
/// Throws the error of using `value` if it is undefined.
void require_defined(const Value& value);
/// Throws if the value cannot be a key of a dict.
void require_hashable(const Value& value);
/// A dict with copied entries.
Value make_dict(Heap& heap, std::vector<std::pair<Value, Value>> entries);
/// Levels of containers in a value: 0 for scalars.
int value_depth(const Value& value);

inline const StringObject& Value::string() const {
  return *static_cast<const StringObject*>(data_.object);
}
inline const std::string& Value::text() const {
  return string().text;
}
inline const SequenceObject& Value::sequence() const {
  return *static_cast<const SequenceObject*>(data_.object);
}
inline const DictObject& Value::dict() const {
  return *static_cast<const DictObject*>(data_.object);
}
inline IteratorObject& Value::iterator() const {
  return *static_cast<IteratorObject*>(data_.object);
}
inline NamespaceObject& Value::name_space() const {
  return *static_cast<NamespaceObject*>(data_.object);
}
inline CallableObject& Value::callable() const {
  return *static_cast<CallableObject*>(data_.object);
}

}  // namespace minisgl::jinja
