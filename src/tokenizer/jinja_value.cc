#include "tokenizer/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {

Object::Object(Heap& heap) : heap_(heap) {
  next_ = heap.first_;
  if (next_) next_->previous_ = this;
  heap.first_ = this;
  // An estimate of the object itself; the storage it owns is counted by the derived class.
  try {
    charge_bytes(96);
  } catch (...) {
    heap.first_ = next_;
    if (next_) next_->previous_ = nullptr;
    throw;
  }
}

Object::~Object() {
  heap_.memory_bytes_ -= charged_bytes_;
  (previous_ ? previous_->next_ : heap_.first_) = next_;
  if (next_) next_->previous_ = previous_;
}

void Object::charge_bytes(size_t bytes) {
  if (bytes > heap_.max_memory_bytes_ - std::min(heap_.memory_bytes_, heap_.max_memory_bytes_)) {
    refuse("the template needs more than {} bytes of memory", heap_.max_memory_bytes_);
  }
  heap_.memory_bytes_ += bytes;
  charged_bytes_ += bytes;
}

void Object::release() {
  if (--references_ == 0) heap_.dispose(this);
}

Heap::Heap(int64_t max_steps, size_t max_output_bytes, size_t max_memory_bytes)
    : max_steps_(max_steps), max_output_bytes_(max_output_bytes), max_memory_bytes_(max_memory_bytes) {}

Heap::~Heap() {
  // Whatever is left is held by a cycle. Each clear() may delete other objects, so start over from the list's head; a cleared object
  // that others still hold moves to a list of its own.
  std::vector<Object*> cleared;
  while (first_) {
    Object* object = first_;
    object->retain();
    object->clear();
    first_ = object->next_;
    if (first_) first_->previous_ = nullptr;
    object->next_ = object->previous_ = nullptr;
    cleared.push_back(object);
  }
  // No object refers to another any more, except for the counts taken above.
  for (Object* object : cleared) delete object;
}

void Heap::dispose(Object* object) {
  dying_.push_back(object);
  if (disposing_) return;
  disposing_ = true;
  while (!dying_.empty()) {
    Object* next = dying_.back();
    dying_.pop_back();
    delete next;
  }
  disposing_ = false;
}

void Heap::fail_steps() const {
  refuse("the template needs more than {} steps", max_steps_);
}
void Heap::fail_bytes() const {
  refuse("the template makes a text or list of more than {} bytes", max_output_bytes_);
}

Value Heap::string(std::string text, bool safe) {
  check_bytes(text.size());
  spend_bytes(text.size());
  return Value(Kind::kString, new StringObject(*this, std::move(text), safe));
}

Value Heap::sequence(Kind kind, std::vector<Value> items, std::string_view type_name) {
  check_items(items.size());
  spend(1 + static_cast<int64_t>(items.size()) / 4);
  return Value(kind, new SequenceObject(*this, std::move(items), type_name));
}

Value Heap::iterator(std::vector<Value> items, std::string_view type_name) {
  check_items(items.size());
  spend(1 + static_cast<int64_t>(items.size()) / 4);
  return Value(Kind::kIterator, new IteratorObject(*this, std::move(items), type_name));
}

Value Heap::undefined(std::string message) {
  return Value(Kind::kUndefined, new StringObject(*this, std::move(message), false));
}

StringObject::StringObject(Heap& heap, std::string value, bool is_safe)
    : Object(heap), text(std::move(value)), length(text::length(text)), safe(is_safe) {
  charge_bytes(text.size());
}

namespace {

int checked_depth(int depth) {
  if (depth > kMaxValueDepth) refuse("lists and dicts are nested deeper than {} levels", kMaxValueDepth);
  return depth;
}

int depth_of_items(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, value_depth(item));
  return checked_depth(depth + 1);
}

}  // namespace

SequenceObject::SequenceObject(Heap& heap, std::vector<Value> values, std::string_view type)
    : Object(heap), items(std::move(values)), type_name(type), depth(depth_of_items(items)) {
  charge_bytes(items.size() * sizeof(Value));
}

IteratorObject::IteratorObject(Heap& heap, std::vector<Value> values, std::string_view type)
    : Object(heap), items(std::move(values)), type_name(type) {
  charge_bytes(items.size() * sizeof(Value));
}

int value_depth(const Value& value) {
  if (value.is_sequence()) return value.sequence().depth;
  return value.is(Kind::kDict) ? value.dict().depth : 0;
}

// ---------------------------------------------------------------------------------------------------------------- dicts

namespace {

/// The group of mutually comparable keys a value belongs to.
int key_rank(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return 0;
    case Kind::kBool:
    case Kind::kInt:
      return 1;
    case Kind::kFloat:
      return std::isnan(value.real()) ? 2 : 1;
    case Kind::kString:
      return 3;
    case Kind::kTuple:
      return 4;
    case Kind::kUndefined:
      return 5;
    default:
      return 6;
  }
}

/// Exact for every int64 and double.
long double exact(const Value& value) {
  return value.is(Kind::kFloat) ? static_cast<long double>(value.real()) : static_cast<long double>(value.integer());
}

}  // namespace

bool KeyLess::operator()(const Value& a, const Value& b) const {
  int rank = key_rank(a);
  if (int other = key_rank(b); rank != other) return rank < other;
  switch (rank) {
    case 1:
      return exact(a) < exact(b);
    case 3:
      a.string().heap().spend_bytes(std::min(a.text().size(), b.text().size()));
      return a.text() < b.text();
    case 4: {
      const auto& x = a.sequence().items;
      const auto& y = b.sequence().items;
      a.sequence().heap().spend(1);
      return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end(), *this);
    }
    case 6:
      return std::less<>()(a.object(), b.object());
    default:
      return false;
  }
}

void require_hashable(const Value& value) {
  if (value.is(Kind::kList) || value.is(Kind::kDict) || (value.is(Kind::kDictView) && value.sequence().type_name != "dict_values")) {
    refuse("unhashable type: '{}'", type_name(value));
  }
  if (value.is(Kind::kTuple)) {
    value.sequence().heap().spend(1);
    for (const Value& item : value.sequence().items) require_hashable(item);
  }
}

const Value* DictObject::find(const Value& key) const {
  require_hashable(key);
  heap().spend(1);
  if (!index.empty()) {
    auto found = index.find(key);
    return found == index.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries) {
    if (equals(name, key)) return &value;
  }
  return nullptr;
}

const Value* DictObject::find(std::string_view key) const {
  heap().spend(1);
  if (!index.empty()) return find(heap().string(std::string(key)));
  for (const auto& [name, value] : entries) {
    if (name.is_string() && name.text() == key) return &value;
  }
  return nullptr;
}

void DictObject::set(Value key, Value value) {
  if (const Value* found = find(key)) {
    depth = checked_depth(std::max(depth, value_depth(value) + 1));
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  heap().check_items(2 * entries.size() + 2);
  charge_bytes(2 * sizeof(Value));
  depth = checked_depth(std::max({depth, value_depth(value) + 1, value_depth(key) + 1}));
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() < kIndexedSize) return;
  charge_bytes(64);
  for (size_t i = index.size(); i < entries.size(); ++i) index.emplace(entries[i].first, i);
}

Value make_dict(Heap& heap, std::vector<std::pair<Value, Value>> entries) {
  Ref<DictObject> dict(new DictObject(heap));
  for (auto& [key, value] : entries) dict->set(std::move(key), std::move(value));
  return Value(Kind::kDict, dict.get());
}

// ------------------------------------------------------------------------------------------------------- Python protocols

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.string().safe ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kRange:
      return "range";
    case Kind::kDictView:
      return value.sequence().type_name;
    case Kind::kDict:
      return "dict";
    case Kind::kIterator:
      return value.iterator().type_name;
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kCallable:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "object";
}

void require_defined(const Value& value) {
  if (value.is_undefined()) refuse("{}", value.text());
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean();
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.real() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kDictView:
      return !value.sequence().items.empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    default:
      return true;
  }
}

int64_t length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return static_cast<int64_t>(value.string().length);
  if (value.is_sequence()) return static_cast<int64_t>(value.sequence().items.size());
  if (value.is(Kind::kDict)) return static_cast<int64_t>(value.dict().entries.size());
  if (value.is(Kind::kLoop)) {
    Value size;
    if (value.callable().attribute("length", &size)) return size.integer();
  }
  refuse("object of type '{}' has no len()", type_name(value));
}

bool equals(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_integral() && b.is_integral() ? a.integer() == b.integer() : exact(a) == exact(b);
  }
  if (a.is_string() && b.is_string()) {
    if (a.text().size() != b.text().size()) return false;
    a.string().heap().spend_bytes(a.text().size());
    return a.text() == b.text();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kDictView: {
      const auto& x = a.sequence().items;
      const auto& y = b.sequence().items;
      a.sequence().heap().spend(1);
      if (a.sequence().type_name == "dict_values") return a.object() == b.object();
      return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), [](const Value& l, const Value& r) { return equals(l, r); });
    }
    case Kind::kDict: {
      a.dict().heap().spend(1);
      if (a.dict().entries.size() != b.dict().entries.size()) return false;
      return std::all_of(a.dict().entries.begin(), a.dict().entries.end(), [&](const auto& entry) {
        const Value* other = b.dict().find(entry.first);
        return other && equals(entry.second, *other);
      });
    }
    default:
      return a.object() == b.object();
  }
}

bool less(const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) return exact(a) < exact(b);
  if (a.is_string() && b.is_string()) {
    a.string().heap().spend_bytes(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();  // the order of UTF-8 is that of code points
  }
  if (a.kind() == b.kind() && (a.is(Kind::kList) || a.is(Kind::kTuple))) {
    const auto& x = a.sequence().items;
    const auto& y = b.sequence().items;
    a.sequence().heap().spend(1);
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equals(x[i], y[i])) return less(x[i], y[i]);
    }
    return x.size() < y.size();
  }
  refuse("'<' not supported between instances of '{}' and '{}'", type_name(a), type_name(b));
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_sequence() || value.is(Kind::kDict) || value.is(Kind::kIterator) ||
         value.is(Kind::kLoop);
}

std::vector<Value> iterate(const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is_sequence()) {
    value.sequence().heap().spend(1 + static_cast<int64_t>(value.sequence().items.size()) / 4);
    return value.sequence().items;
  }
  if (value.is_string()) {
    const StringObject& string = value.string();
    string.heap().check_items(string.length);
    items.reserve(string.length);
    for (size_t i = 0; i < string.text.size();) {
      size_t size = text::sequence_bytes(string.text, i);
      items.push_back(string.heap().string(string.text.substr(i, size), string.safe));
      i += size;
    }
    return items;
  }
  if (value.is(Kind::kDict)) {
    value.dict().heap().spend(1 + length(value) / 4);
    items.reserve(value.dict().entries.size());
    for (const auto& entry : value.dict().entries) items.push_back(entry.first);
    return items;
  }
  if (value.is(Kind::kIterator)) {
    IteratorObject& source = value.iterator();
    source.heap().spend(1 + static_cast<int64_t>(source.items.size() - source.position) / 4);
    items.assign(source.items.begin() + static_cast<std::ptrdiff_t>(source.position), source.items.end());
    source.position = source.items.size();
    return items;
  }
  refuse("'{}' object is not iterable", type_name(value));
}

}  // namespace minisgl::jinja
