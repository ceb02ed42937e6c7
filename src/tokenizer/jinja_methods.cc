#include <utf8proc.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_format.h"
#include "tokenizer/jinja_print.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {

namespace {

using Method = Value (*)(Heap& heap, const Value& self, const Arguments& arguments);
using MethodTable = std::unordered_map<std::string_view, Method>;

// ---------------------------------------------------------------------------------------------------------------- strings

Value same_safety(Heap& heap, const Value& self, std::string text) {
  return heap.string(std::move(text), self.string().safe);
}

Value pieces(Heap& heap, const Value& self, const std::vector<std::string_view>& parts) {
  heap.check_items(parts.size());
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string_view part : parts) items.push_back(same_safety(heap, self, std::string(part)));
  return heap.list(std::move(items));
}

template <bool kLeft, bool kRight>
Value strip(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound bound("strip", arguments, {"chars"});
  heap.spend_bytes(self.text().size());
  if (!bound.has(0) || bound[0].is_none()) return same_safety(heap, self, std::string(text::strip(self.text(), nullptr, kLeft, kRight)));
  std::string_view characters = bound.text(0);
  // Every character of the text may be sought among all of these.
  heap.spend_bytes(self.text().size() * std::min<size_t>(characters.size(), 1 << 20) / 8);
  return same_safety(heap, self, std::string(text::strip(self.text(), &characters, kLeft, kRight)));
}

template <bool kFromRight>
Value split(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound bound("split", arguments, {"sep", "maxsplit"});
  int64_t limit = bound.integer(1, -1);
  heap.spend_bytes(4 * self.text().size());
  if (!bound.has(0) || bound[0].is_none()) return pieces(heap, self, text::split_space(self.text(), limit, kFromRight));
  std::string_view separator = bound.text(0);
  if (separator.empty()) refuse("empty separator");
  heap.check_items(limit >= 0 && limit < 16 ? 16 : text::count(self.text(), separator));
  return pieces(heap, self, text::split(self.text(), separator, limit, kFromRight));
}

Value split_lines(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound bound("splitlines", arguments, {"keepends"});
  heap.spend_characters(self.text().size());
  return pieces(heap, self, text::split_lines(self.text(), bound.boolean(0, false)));
}

/// The part of the text that the optional code point bounds `start` and `end` leave, as byte offsets; nothing if start is past the end.
std::optional<std::pair<size_t, size_t>> window(Heap& heap, const Value& self, const Bound& bound) {
  const StringObject& string = self.string();
  auto size = static_cast<int64_t>(string.length);
  auto resolve = [&](size_t i, int64_t otherwise) {
    int64_t position = bound.has(i) && !bound[i].is_none() ? bound.integer(i, 0) : otherwise;
    return position < 0 ? std::max<int64_t>(position + size, 0) : position;
  };
  int64_t start = resolve(1, 0), end = std::min(resolve(2, size), size);
  if (start > size || start > end) return std::nullopt;
  auto offset = [&](int64_t position) {
    if (string.ascii()) return static_cast<size_t>(position);
    size_t at = 0;
    for (int64_t i = 0; i < position; ++i) at += text::sequence_bytes(string.text, at);
    heap.spend_bytes(4 * at);
    return at;
  };
  return std::pair(offset(start), offset(end));
}

template <bool kStart>
Value affix(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound bound(kStart ? "startswith" : "endswith", arguments, {kStart ? "prefix" : "suffix", "start", "end"}, 1);
  require_defined(bound[0]);
  std::vector<Value> candidates = bound[0].is(Kind::kTuple) ? bound[0].sequence().items : std::vector<Value>{bound[0]};
  auto range = window(heap, self, bound);
  if (!range) return Value(false);
  std::string_view text = std::string_view(self.text()).substr(range->first, range->second - range->first);
  for (const Value& candidate : candidates) {
    if (!candidate.is_string()) {
      refuse("{} first arg must be str or a tuple of str, not {}", kStart ? "startswith" : "endswith", type_name(candidate));
    }
    heap.spend_bytes(candidate.text().size());
    if (kStart ? text.starts_with(candidate.text()) : text.ends_with(candidate.text())) return Value(true);
  }
  return Value(false);
}

template <bool kFromRight, bool kMustBeThere>
Value find(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound bound("find", arguments, {"sub", "start", "end"}, 1);
  std::string_view needle = bound.text(0);
  heap.spend_bytes(self.text().size());
  if (auto range = window(heap, self, bound)) {
    std::string_view text = std::string_view(self.text()).substr(range->first, range->second - range->first);
    size_t found = kFromRight ? text.rfind(needle) : text.find(needle);
    if (found != std::string_view::npos) {
      return Value(static_cast<int64_t>(text::length(std::string_view(self.text()).substr(0, range->first + found))));
    }
  }
  if (kMustBeThere) refuse("substring not found");
  return Value(int64_t{-1});
}

Value count_text(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound bound("count", arguments, {"sub", "start", "end"}, 1);
  std::string_view needle = bound.text(0);
  heap.spend_bytes(self.text().size());
  auto range = window(heap, self, bound);
  if (!range) return Value(int64_t{0});
  return Value(static_cast<int64_t>(text::count(std::string_view(self.text()).substr(range->first, range->second - range->first), needle)));
}

template <std::string (*kMap)(std::string_view)>
Value map_case(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound("upper", arguments, {});
  heap.spend_characters(self.text().size());
  return same_safety(heap, self, kMap(self.text()));
}

Value replace(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  std::string_view from = bound.text(0);
  std::string to(bound.text(1));
  if (self.string().safe && !bound[1].string().safe) to = text::escape_html(to);
  int64_t limit = bound.integer(2, -1);
  heap.spend_bytes(self.text().size());
  size_t found = text::count(self.text(), from);
  if (limit >= 0) found = std::min(found, static_cast<size_t>(limit));
  size_t removed = found * from.size(), added = 0;
  heap.check_bytes(__builtin_mul_overflow(found, to.size(), &added) ? SIZE_MAX
                                                                    : self.text().size() - std::min(removed, self.text().size()) + added);
  return same_safety(heap, self, text::replace(self.text(), from, to, limit));
}

Value join(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound bound("join", arguments, {"iterable"}, 1);
  std::string out;
  bool first = true;
  size_t position = 0;
  for (const Value& item : iterate(bound[0])) {
    if (!item.is_string()) refuse("sequence item {}: expected str instance, {} found", position, type_name(item));
    ++position;
    if (!first) out += self.text();
    first = false;
    out += self.string().safe && !item.string().safe ? text::escape_html(item.text()) : item.text();
    heap.check_bytes(out.size());
    heap.spend_bytes(self.text().size() + item.text().size());
  }
  return same_safety(heap, self, std::move(out));
}

template <bool kPrefix>
Value remove_affix(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound bound(kPrefix ? "removeprefix" : "removesuffix", arguments, {"affix"}, 1);
  std::string_view text = self.text(), affix = bound.text(0);
  if (kPrefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!kPrefix && !affix.empty() && text.ends_with(affix)) text.remove_suffix(affix.size());
  return same_safety(heap, self, std::string(text));
}

template <bool kFromRight>
Value partition(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound bound("partition", arguments, {"sep"}, 1);
  std::string_view text = self.text(), separator = bound.text(0);
  if (separator.empty()) refuse("empty separator");
  heap.spend_bytes(text.size());
  size_t found = kFromRight ? text.rfind(separator) : text.find(separator);
  auto part = [&](std::string_view piece) { return same_safety(heap, self, std::string(piece)); };
  if (found == std::string_view::npos) {
    return heap.tuple(kFromRight ? std::vector{part(""), part(""), part(text)} : std::vector{part(text), part(""), part("")});
  }
  return heap.tuple({part(text.substr(0, found)), part(separator), part(text.substr(found + separator.size()))});
}

/// ljust, rjust, center; 'l' keeps the text at the left.
template <char kSide>
Value justify(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound bound("justify", arguments, {"width", "fillchar"}, 1);
  std::string_view fill = bound.text(1, " ");
  if (text::length(fill) != 1) refuse("The fill character must be exactly one character long");
  int64_t missing = std::max<int64_t>(bound.integer(0, 0), 0) - static_cast<int64_t>(self.string().length);
  if (missing <= 0) return self;
  heap.check_bytes(static_cast<size_t>(missing) > SIZE_MAX / 8 ? SIZE_MAX : static_cast<size_t>(missing) * fill.size());
  // Python puts the odd one of center() to the left if the width is odd.
  int64_t left = kSide == 'l' ? 0 : kSide == 'r' ? missing : missing / 2 + (missing & bound.integer(0, 0) & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.text();
  for (int64_t i = left; i < missing; ++i) out += fill;
  return same_safety(heap, self, std::move(out));
}

Value zero_fill(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound bound("zfill", arguments, {"width"}, 1);
  int64_t missing = std::max<int64_t>(bound.integer(0, 0), 0) - static_cast<int64_t>(self.string().length);
  if (missing <= 0) return self;
  heap.check_bytes(static_cast<size_t>(missing));
  std::string out = self.text();
  bool has_sign = !out.empty() && (out[0] == '-' || out[0] == '+');
  return same_safety(heap, self, out.insert(has_sign ? 1 : 0, static_cast<size_t>(missing), '0'));
}

bool is_alpha(char32_t c) {
  auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}
bool is_digit(char32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089);
}
bool is_numeric(char32_t c) {
  auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return is_digit(c) || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}
bool is_alphanumeric(char32_t c) {
  return is_alpha(c) || is_numeric(c);
}

/// True if there is a character and all satisfy the predicate.
template <bool (*kPredicate)(char32_t)>
Value all_characters(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound("isalpha", arguments, {});
  const std::string& string = self.text();
  heap.spend_characters(string.size());
  for (size_t i = 0; i < string.size(); i += text::sequence_bytes(string, i)) {
    if (!kPredicate(text::code_point_at(string, i))) return Value(false);
  }
  return Value(!string.empty());
}

/// isupper and islower: there is a cased character and none of the other case.
template <std::string (*kSame)(std::string_view), std::string (*kOther)(std::string_view)>
Value has_case(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound("isupper", arguments, {});
  heap.spend_characters(2 * self.text().size());
  return Value(kSame(self.text()) == self.text() && kOther(self.text()) != self.text());
}

const MethodTable& string_methods() {
  static const MethodTable table = {
      {"strip", strip<true, true>},
      {"lstrip", strip<true, false>},
      {"rstrip", strip<false, true>},
      {"split", split<false>},
      {"rsplit", split<true>},
      {"splitlines", split_lines},
      {"startswith", affix<true>},
      {"endswith", affix<false>},
      {"find", find<false, false>},
      {"rfind", find<true, false>},
      {"index", find<false, true>},
      {"rindex", find<true, true>},
      {"count", count_text},
      {"upper", map_case<text::upper>},
      {"lower", map_case<text::lower>},
      {"title", map_case<text::title>},
      {"capitalize", map_case<text::capitalize>},
      {"swapcase", map_case<text::swap_case>},
      {"replace", replace},
      {"join", join},
      {"format", brace_format},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"partition", partition<false>},
      {"rpartition", partition<true>},
      {"ljust", justify<'l'>},
      {"rjust", justify<'r'>},
      {"center", justify<'c'>},
      {"zfill", zero_fill},
      {"isalpha", all_characters<is_alpha>},
      {"isalnum", all_characters<is_alphanumeric>},
      {"isdecimal", all_characters<is_decimal>},
      {"isdigit", all_characters<is_digit>},
      {"isnumeric", all_characters<is_numeric>},
      {"isspace", all_characters<text::is_space>},
      {"isupper", has_case<text::upper, text::lower>},
      {"islower", has_case<text::lower, text::upper>},
  };
  return table;
}

// ------------------------------------------------------------------------------------------------------- lists and dicts

Value count_items(Heap&, const Value& self, const Arguments& arguments) {
  Bound bound("count", arguments, {"value"}, 1);
  const auto& items = self.sequence().items;
  return Value(static_cast<int64_t>(std::count_if(items.begin(), items.end(), [&](const Value& item) { return equals(item, bound[0]); })));
}

Value index_of(Heap&, const Value& self, const Arguments& arguments) {
  Bound bound("index", arguments, {"value"}, 1);
  const auto& items = self.sequence().items;
  auto found = std::find_if(items.begin(), items.end(), [&](const Value& item) { return equals(item, bound[0]); });
  if (found == items.end()) refuse("the value is not in the {}", type_name(self));
  return Value(static_cast<int64_t>(found - items.begin()));
}

Value itself(Heap&, const Value& self, const Arguments& arguments) {
  Bound("copy", arguments, {});
  return self;
}

Value get(Heap&, const Value& self, const Arguments& arguments) {
  Bound bound("get", arguments, {"key", "default"}, 1);
  const Value* found = self.dict().find(bound[0]);
  return found ? *found : bound.has(1) ? bound[1] : Value();
}

Value keys(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound("keys", arguments, {});
  return heap.sequence(Kind::kDictView, iterate(self), "dict_keys");
}

Value values(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound("values", arguments, {});
  std::vector<Value> items;
  for (const auto& entry : self.dict().entries) items.push_back(entry.second);
  return heap.sequence(Kind::kDictView, std::move(items), "dict_values");
}

Value items(Heap& heap, const Value& self, const Arguments& arguments) {
  Bound("items", arguments, {});
  std::vector<Value> items;
  for (const auto& entry : self.dict().entries) items.push_back(heap.tuple({entry.first, entry.second}));
  return heap.sequence(Kind::kDictView, std::move(items), "dict_items");
}

const MethodTable& list_methods() {
  static const MethodTable table = {{"count", count_items}, {"index", index_of}, {"copy", itself}};
  return table;
}

const MethodTable& tuple_methods() {
  static const MethodTable table = {{"count", count_items}, {"index", index_of}};
  return table;
}

const MethodTable& dict_methods() {
  static const MethodTable table = {{"get", get}, {"keys", keys}, {"values", values}, {"items", items}, {"copy", itself}};
  return table;
}

// ---------------------------------------------------------------------------------------------------------------- numbers

Value is_integer(Heap&, const Value& self, const Arguments& arguments) {
  Bound("is_integer", arguments, {});
  return Value(std::isfinite(self.real()) && self.real() == std::floor(self.real()));
}

const MethodTable& float_methods() {
  static const MethodTable table = {{"is_integer", is_integer}};
  return table;
}

const MethodTable* methods_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kString:
      return &string_methods();
    case Kind::kList:
      return &list_methods();
    case Kind::kTuple:
    case Kind::kRange:
      return &tuple_methods();
    case Kind::kDict:
      return &dict_methods();
    case Kind::kFloat:
      return &float_methods();
    default:
      return nullptr;
  }
}

constexpr std::string_view kListChanges[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
/// Methods of Python that exist but that no template has needed.
constexpr std::string_view kStringRest[] = {"casefold",     "encode",      "expandtabs", "format_map", "isascii",
                                            "isidentifier", "isprintable", "istitle",    "translate"};

template <size_t kSize>
bool is_one_of(const std::string_view (&names)[kSize], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

std::optional<Value> find_method(Heap& heap, const Value& value, std::string_view name) {
  bool changes = (value.is(Kind::kList) && is_one_of(kListChanges, name)) || (value.is(Kind::kDict) && is_one_of(kDictChanges, name));
  if (changes) return heap.undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(value)));
  const MethodTable* table = methods_of(value);
  if (!table) return std::nullopt;
  auto found = table->find(name);
  if (found == table->end()) {
    bool exists = (value.is_string() && is_one_of(kStringRest, name)) || (value.is(Kind::kDict) && name == "fromkeys");
    if (exists) refuse("the method '{}' of '{}' is not supported", name, type_name(value));
    return std::nullopt;
  }
  return make_function(heap, std::string(name),
                       [&heap, value, method = found->second](const Arguments& arguments) { return method(heap, value, arguments); });
}

}  // namespace minisgl::jinja
