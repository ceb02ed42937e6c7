#include <limits>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_print.h"

namespace minisgl::jinja {

namespace {

/// The sandbox of jinja2 allows no longer range.
constexpr int64_t kMaxRange = 100000;

Value range(Heap& heap, const Arguments& arguments) {
  if (arguments.positional.empty()) refuse("range expected at least 1 argument, got 0");
  Bound bound("range", arguments, {"start", "stop", "step"});
  int64_t start = arguments.positional.size() == 1 ? 0 : bound.integer(0, 0);
  int64_t stop = bound.integer(arguments.positional.size() == 1 ? 0 : 1, 0);
  int64_t step = bound.integer(2, 1);
  if (step == 0) refuse("range() arg 3 must not be zero");
  // In unsigned arithmetic: the distance of two int64 may not be one.
  bool is_empty = step > 0 ? start >= stop : start <= stop;
  uint64_t distance =
      step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start) : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  uint64_t size = is_empty ? 0 : (distance - 1) / stride + 1;
  if (size > kMaxRange) refuse("Range too big. The sandbox blocks ranges larger than {}.", kMaxRange);
  std::vector<Value> items;
  items.reserve(size);
  for (uint64_t i = 0; i < size; ++i)
    items.emplace_back(static_cast<int64_t>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step)));
  return heap.sequence(Kind::kRange, std::move(items));
}

/// The entries of `dict(mapping or pairs, **named)`.
std::vector<std::pair<Value, Value>> entries_of(Heap& heap, std::string_view function, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> entries;
  if (arguments.positional.size() > 1) refuse("{} expected at most 1 argument, got {}", function, arguments.positional.size());
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    require_defined(source);
    if (source.is(Kind::kDict)) {
      entries = source.dict().entries;
    } else {
      for (const Value& pair : iterate(source)) {
        auto parts = iterate(pair);
        if (parts.size() != 2) refuse("{} update sequence element has length {}; 2 is required", function, parts.size());
        entries.emplace_back(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(heap.string(name), value);
  return entries;
}

Value make_namespace(Heap& heap, const Arguments& arguments) {
  Ref<NamespaceObject> object(new NamespaceObject(heap));
  for (auto& [name, value] : entries_of(heap, "namespace", arguments)) {
    if (name.is_string() && name.text().starts_with('_'))
      refuse("a namespace cannot hold the attribute '{}' with an underscore", name.text());
    object->attributes->set(name, value);
  }
  return Value(Kind::kNamespace, object.get());
}

/// strftime of the C locale, item by item, so that no width a template asks for sizes anything. The time has no zone.
Value format_time(Heap& heap, const std::tm& now, const Arguments& arguments) {
  Bound bound("strftime_now", arguments, {"format"}, 1);
  std::string_view format = bound.text(0);
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      out.push_back(format[i]);
      continue;
    }
    std::string item = "%";
    while (i + 1 < format.size() && std::string_view("-_0^#").find(format[i + 1]) != std::string_view::npos) item.push_back(format[++i]);
    if (++i >= format.size() || item.size() > 4) refuse("strftime_now(): invalid format '{}'", format.substr(0, 80));
    char letter = format[i];
    if (letter == 'z' || letter == 'Z') continue;
    if (letter == 'f') {
      out += "000000";
      continue;
    }
    if (std::string_view("aAbBcCdDeFgGhHIjklmMnprRsStTuUVwWxXyY%").find(letter) == std::string_view::npos) {
      refuse("strftime_now(): invalid format '{}'", format.substr(0, 80));
    }
    char buffer[256];
    out.append(buffer, std::strftime(buffer, sizeof buffer, (item + letter).c_str(), &now));
    heap.check_bytes(out.size());
  }
  return heap.string(std::move(out));
}

/// `cycler(a, b, ...)`: next() gives the items in turn.
class Cycler final : public CallableObject {
 public:
  Cycler(Heap& heap, std::vector<Value> items) : CallableObject(heap), items_(std::move(items)) {}
  void clear() override { items_.clear(); }
  Value call(const Arguments&) override { refuse("'Cycler' object is not callable"); }
  std::string repr() const override { return "<Cycler object>"; }
  bool attribute(std::string_view name, Value* result) override {
    if (name == "current") {
      *result = items_[position_];
    } else if (name == "next" || name == "reset") {
      *result = make_function(heap(), std::string(name), [self = Ref<Cycler>(this), is_next = name == "next"](const Arguments& arguments) {
        Bound("next", arguments, {});
        Value current = is_next ? self->items_[self->position_] : Value();
        self->position_ = is_next ? (self->position_ + 1) % self->items_.size() : 0;
        return current;
      });
    } else {
      return false;
    }
    return true;
  }

 private:
  std::vector<Value> items_;
  size_t position_ = 0;
};

/// `joiner(sep)`: empty at the first call, the separator after.
Value make_joiner(Heap& heap, const Arguments& arguments) {
  Bound bound("joiner", arguments, {"sep"});
  Value separator = bound.has(0) ? bound[0] : heap.string(", ");
  return make_function(heap, "joiner", [&heap, separator, used = false](const Arguments& call) mutable {
    Bound("joiner", call, {});
    return std::exchange(used, true) ? separator : heap.string("");
  });
}

}  // namespace

std::optional<Value> find_global(Heap& heap, std::string_view name, const std::tm& now) {
  auto function = [&](NativeFunction::Body body) { return make_function(heap, std::string(name), std::move(body)); };
  if (name == "range") return function([&heap](const Arguments& arguments) { return range(heap, arguments); });
  if (name == "dict") return function([&heap](const Arguments& arguments) { return make_dict(heap, entries_of(heap, "dict", arguments)); });
  if (name == "namespace") return function([&heap](const Arguments& arguments) { return make_namespace(heap, arguments); });
  if (name == "strftime_now") return function([&heap, now](const Arguments& arguments) { return format_time(heap, now, arguments); });
  if (name == "raise_exception") {
    return function([&heap](const Arguments& arguments) -> Value {
      Bound bound("raise_exception", arguments, {"message"}, 1);
      throw RaisedException(to_text(heap, bound[0]));
    });
  }
  if (name == "cycler") {
    return function([&heap](const Arguments& arguments) {
      if (arguments.positional.empty()) refuse("at least one item has to be provided");
      return Value(Kind::kCallable, new Cycler(heap, arguments.positional));
    });
  }
  if (name == "joiner") return function([&heap](const Arguments& arguments) { return make_joiner(heap, arguments); });
  if (name == "lipsum")
    return function([](const Arguments&) -> Value { refuse("the function 'lipsum' is not supported: its text is random"); });
  return std::nullopt;
}

}  // namespace minisgl::jinja
