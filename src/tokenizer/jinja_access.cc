#include <algorithm>
#include <limits>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_print.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {

namespace {

/// What Python calls the object in the message of a missing attribute.
std::string object_name(const Value& value) {
  if (value.is_none()) return "None";
  return std::string(type_name(value)) + " object";
}

Value missing(Heap& heap, const Value& base, std::string_view name) {
  return heap.undefined(fmt::format("'{}' has no attribute '{}'", object_name(base), name));
}

/// The element of a mapping, sequence or text by its key or index; nothing where Python raises LookupError or TypeError.
std::optional<Value> element(Heap& heap, const Value& base, const Value& index) {
  if (base.is(Kind::kDict)) {
    bool hashable = !index.is(Kind::kList) && !index.is(Kind::kDict);
    const Value* found = hashable ? base.dict().find(index) : nullptr;
    return found ? std::optional(*found) : std::nullopt;
  }
  if (!index.is_integral()) return std::nullopt;
  bool indexable = base.is_string() || (base.is_sequence() && !base.is(Kind::kDictView));
  if (!indexable) return std::nullopt;
  int64_t size = length(base);
  int64_t position = index.integer() < 0 ? index.integer() + size : index.integer();
  if (position < 0 || position >= size) return std::nullopt;
  if (!base.is_string()) return base.sequence().items[static_cast<size_t>(position)];
  const StringObject& string = base.string();
  auto offset = static_cast<size_t>(position);
  if (!string.ascii()) {
    offset = 0;
    for (int64_t i = 0; i < position; ++i) offset += text::sequence_bytes(string.text, offset);
    heap.spend_bytes(4 * offset);
  }
  return heap.string(string.text.substr(offset, text::sequence_bytes(string.text, offset)), string.safe);
}

std::optional<Value> attribute(Heap& heap, const Value& base, std::string_view name) {
  if (base.is(Kind::kCallable) || base.is(Kind::kLoop)) {
    Value result;
    if (base.callable().attribute(name, &result)) return result;
    return std::nullopt;
  }
  if (base.is(Kind::kNamespace)) {
    const Value* found = base.name_space().attributes->find(name);
    return found ? std::optional(*found) : std::nullopt;
  }
  return find_method(heap, base, name);
}

}  // namespace

Value get_attribute(Heap& heap, const Value& value, std::string_view name) {
  require_defined(value);
  if (auto found = attribute(heap, value, name)) return *found;
  if (value.is(Kind::kDict)) {
    if (const Value* found = value.dict().find(name)) return *found;
  }
  return missing(heap, value, name);
}

Value get_item(Heap& heap, const Value& value, const Value& index) {
  require_defined(value);
  if (auto found = element(heap, value, index)) return *found;
  if (!index.is_string()) {
    return heap.undefined(fmt::format("{} has no element {}", object_name(value), to_repr(heap, index)));
  }
  if (auto found = attribute(heap, value, index.text())) return *found;
  return missing(heap, value, index.text());
}

Value get_slice(Heap& heap, const Value& value, const Value& start, const Value& stop, const Value& step) {
  require_defined(value);
  if (!value.is_string() && (!value.is_sequence() || value.is(Kind::kDictView))) {
    // jinja2 slices past its own lookup, so this is an error and not undefined.
    if (value.is(Kind::kDict)) refuse("unhashable type: 'slice'");
    refuse("'{}' object is not subscriptable", type_name(value));
  }
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is_none() && !bound->is_integral()) refuse("slice indices must be integers or None or have an __index__ method");
  }
  int64_t size = length(value);
  int64_t stride = step.is_none() ? 1 : step.integer();
  if (stride == 0) refuse("slice step cannot be zero");
  stride = std::clamp<int64_t>(stride, -std::numeric_limits<int64_t>::max() / 2, std::numeric_limits<int64_t>::max() / 2);
  // The positions that a bound may take: 0..size upwards, -1..size-1 downwards.
  int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? size : size - 1;
  auto resolve = [&](const Value& bound, int64_t otherwise) {
    if (bound.is_none()) return otherwise;
    int64_t position = bound.integer();
    if (position < 0) position += size;
    return std::clamp(position, low, high);
  };
  int64_t begin = resolve(start, stride > 0 ? low : high);
  int64_t end = resolve(stop, stride > 0 ? high : low);
  auto inside = [&](int64_t i) { return stride > 0 ? i < end : i > end; };
  // Without overflow: the stride may be larger than what is left.
  auto steps = [&](auto visit) {
    for (int64_t i = begin; inside(i);) {
      visit(static_cast<size_t>(i));
      int64_t left = stride > 0 ? end - i : i - end;
      if ((stride > 0 ? stride : -stride) >= left) break;
      i += stride;
    }
  };
  if (value.is_sequence()) {
    std::vector<Value> items;
    steps([&](size_t i) { items.push_back(value.sequence().items[i]); });
    return heap.sequence(value.kind(), std::move(items));
  }
  const StringObject& string = value.string();
  heap.spend_bytes(string.ascii() ? string.text.size() : 4 * string.text.size());
  std::string out;
  if (string.ascii()) {
    if (stride == 1) {
      if (begin < end) out = string.text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    } else {
      steps([&](size_t i) { out.push_back(string.text[i]); });
    }
  } else {
    std::vector<size_t> offsets;
    for (size_t i = 0; i < string.text.size(); i += text::sequence_bytes(string.text, i)) offsets.push_back(i);
    steps([&](size_t i) { out.append(string.text, offsets[i], text::sequence_bytes(string.text, offsets[i])); });
  }
  return heap.string(std::move(out), string.safe);
}

Value call_value(const Value& callee, const Arguments& arguments) {
  require_defined(callee);
  if (!callee.is(Kind::kCallable) && !callee.is(Kind::kLoop)) refuse("'{}' object is not callable", type_name(callee));
  return callee.callable().call(arguments);
}

Value make_function(Heap& heap, std::string name, NativeFunction::Body body) {
  return Value(Kind::kCallable, new NativeFunction(heap, std::move(name), std::move(body)));
}

Bound::Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names, size_t required)
    : function_(function), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size()) {
    refuse("{}() takes at most {} arguments ({} given)", function, names.size(), arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) refuse("{}() got an unexpected keyword argument '{}'", function, name);
    auto& slot = values_[static_cast<size_t>(found - names.begin())];
    if (slot) refuse("{}() got multiple values for argument '{}'", function, name);
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) refuse("{}() missing required argument '{}'", function, names.begin()[i]);
  }
}

int64_t Bound::integer(size_t i, int64_t otherwise) const {
  if (!has(i)) return otherwise;
  require_defined(*values_[i]);
  if (!values_[i]->is_integral()) refuse("{}(): '{}' object cannot be interpreted as an integer", function_, type_name(*values_[i]));
  return values_[i]->integer();
}

std::string_view Bound::text(size_t i, std::string_view otherwise) const {
  if (!has(i)) return otherwise;
  require_defined(*values_[i]);
  if (!values_[i]->is_string()) refuse("{}() argument must be str, not {}", function_, type_name(*values_[i]));
  return values_[i]->text();
}

}  // namespace minisgl::jinja
