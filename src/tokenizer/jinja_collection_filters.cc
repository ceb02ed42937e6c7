#include <algorithm>
#include <bit>
#include <set>

#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/jinja_print.h"
#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {

namespace {

/// `item.a.0.b` for the attribute "a.0.b"; `otherwise` (if any) for what is undefined on the way.
class AttributePath {
 public:
  AttributePath(Heap& heap, const Value* attribute, const Value* otherwise = nullptr) : heap_(heap), otherwise_(otherwise) {
    if (!attribute || attribute->is_none()) return;
    if (!attribute->is_string()) {
      parts_.push_back(*attribute);
      return;
    }
    for (std::string_view part : text::split(attribute->text(), ".", -1, false)) {
      bool is_index = !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string_view::npos;
      parts_.push_back(is_index ? Value(static_cast<int64_t>(std::stoll(std::string(part)))) : heap.string(std::string(part)));
    }
  }

  Value operator()(Value item) const {
    for (const Value& part : parts_) {
      item = get_item(heap_, item, part);
      if (otherwise_ && !otherwise_->is_none() && item.is_undefined()) item = *otherwise_;
    }
    return item;
  }

 private:
  Heap& heap_;
  const Value* otherwise_;
  std::vector<Value> parts_;
};

const Value* optional(const Bound& bound, size_t i) {
  return bound.has(i) ? &bound[i] : nullptr;
}

Value fold_case(Heap& heap, const Value& value, bool case_sensitive) {
  if (!value.is_string() || case_sensitive) return value;
  heap.spend_characters(value.text().size());
  return heap.string(text::lower(value.text()));
}

/// Sorts by keys, keeping the order of equal ones.
void sort_by_keys(Heap& heap, std::vector<std::pair<Value, Value>>* keyed, bool reverse) {
  auto size = static_cast<int64_t>(keyed->size());
  heap.spend(size * std::bit_width(static_cast<uint64_t>(size)) / 2);
  std::stable_sort(keyed->begin(), keyed->end(),
                   [reverse](const auto& a, const auto& b) { return reverse ? less(b.first, a.first) : less(a.first, b.first); });
}

std::vector<Value> second_of(std::vector<std::pair<Value, Value>> keyed) {
  std::vector<Value> values;
  values.reserve(keyed.size());
  for (auto& entry : keyed) values.push_back(std::move(entry.second));
  return values;
}

Value count(Heap&, const Value& input, const Arguments& arguments) {
  Bound("length", arguments, {});
  return Value(length(input));
}

Value first(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound("first", arguments, {});
  if (input.is(Kind::kIterator)) {
    IteratorObject& iterator = input.iterator();
    if (iterator.position < iterator.items.size()) return iterator.items[iterator.position++];
  } else if (input.is_string()) {
    if (!input.text().empty()) return get_item(heap, input, Value(int64_t{0}));
  } else {
    auto items = iterate(input);
    if (!items.empty()) return items[0];
  }
  return heap.undefined("No first item, sequence was empty.");
}

Value last(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound("last", arguments, {});
  if (input.is(Kind::kIterator)) refuse("'{}' object is not reversible", type_name(input));
  if (input.is_string() && !input.text().empty()) return get_item(heap, input, Value(int64_t{-1}));
  auto items = iterate(input);
  return items.empty() ? heap.undefined("No last item, sequence was empty.") : items.back();
}

Value to_list(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound("list", arguments, {});
  return heap.list(iterate(input));
}

Value join(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("join", arguments, {"d", "attribute"});
  AttributePath path(heap, optional(bound, 1));
  std::string separator = bound.has(0) ? to_text(heap, bound[0]) : "", out;
  bool is_first = true;
  for (const Value& item : iterate(input)) {
    if (!is_first) out += separator;
    is_first = false;
    out += to_text(heap, path(item));
    heap.spend_bytes(separator.size());
    heap.check_bytes(out.size());
  }
  return heap.string(std::move(out));
}

Value reverse(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound("reverse", arguments, {});
  if (input.is_string()) return get_slice(heap, input, Value(), Value(), Value(int64_t{-1}));
  auto items = iterate(input);
  std::reverse(items.begin(), items.end());
  if (input.is(Kind::kIterator)) return heap.list(std::move(items));
  return heap.iterator(std::move(items), input.is(Kind::kList) ? "list_reverseiterator" : "reversed");
}

Value items(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound("items", arguments, {});
  std::vector<Value> pairs;
  if (input.is(Kind::kDict)) {
    for (const auto& entry : input.dict().entries) pairs.push_back(heap.tuple({entry.first, entry.second}));
  } else if (!input.is_undefined()) {
    refuse("Can only get item pairs from a mapping.");
  }
  return heap.iterator(std::move(pairs));
}

Value dict_sort(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  std::string_view by = bound.text(1, "key");
  if (by != "key" && by != "value") refuse("dictsort(): You can only sort by either \"key\" or \"value\"");
  require_defined(input);
  if (!input.is(Kind::kDict)) refuse("'{}' object has no attribute 'items'", type_name(input));
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& entry : input.dict().entries) {
    Value key = fold_case(heap, by == "key" ? entry.first : entry.second, bound.boolean(0, false));
    keyed.emplace_back(std::move(key), heap.tuple({entry.first, entry.second}));
  }
  sort_by_keys(heap, &keyed, bound.boolean(2, false));
  return heap.list(second_of(std::move(keyed)));
}

Value sort(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  bool case_sensitive = bound.boolean(1, false);
  std::vector<AttributePath> paths;
  if (bound.has(2) && bound[2].is_string()) {
    for (std::string_view part : text::split(bound[2].text(), ",", -1, false)) {
      Value name = heap.string(std::string(part));
      paths.emplace_back(heap, &name);
    }
  } else {
    paths.emplace_back(heap, optional(bound, 2));
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : iterate(input)) {
    std::vector<Value> keys;
    for (const AttributePath& path : paths) keys.push_back(fold_case(heap, path(item), case_sensitive));
    keyed.emplace_back(keys.size() == 1 ? keys[0] : heap.list(std::move(keys)), item);
  }
  sort_by_keys(heap, &keyed, bound.boolean(0, false));
  return heap.list(second_of(std::move(keyed)));
}

Value unique(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  AttributePath path(heap, optional(bound, 1));
  std::set<Value, KeyLess> seen;
  std::vector<Value> kept;
  for (const Value& item : iterate(input)) {
    Value key = fold_case(heap, path(item), bound.boolean(0, false));
    require_hashable(key);
    heap.spend(4);
    if (seen.insert(std::move(key)).second) kept.push_back(item);
  }
  return heap.iterator(std::move(kept));
}

template <bool kLargest>
Value extreme(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound(kLargest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  AttributePath path(heap, optional(bound, 1));
  auto items = iterate(input);
  if (items.empty()) return heap.undefined("No aggregated item, sequence was empty.");
  Value best = items[0], best_key = fold_case(heap, path(best), bound.boolean(0, false));
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = fold_case(heap, path(items[i]), bound.boolean(0, false));
    heap.spend(1);
    if (kLargest ? less(best_key, key) : less(key, best_key)) {
      best = items[i];
      best_key = std::move(key);
    }
  }
  return best;
}

Value sum(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("sum", arguments, {"attribute", "start"});
  AttributePath path(heap, optional(bound, 0));
  Value total = bound.has(1) ? bound[1] : Value(int64_t{0});
  if (total.is_string()) refuse("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(input)) {
    heap.spend(1);
    total = apply_binary(heap, BinaryOperator::kAdd, total, path(item));
  }
  return total;
}

Value group_by(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  AttributePath path(heap, &bound[0], optional(bound, 1));
  bool case_sensitive = bound.boolean(2, false);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : iterate(input)) keyed.emplace_back(fold_case(heap, path(item), case_sensitive), item);
  sort_by_keys(heap, &keyed, false);
  std::vector<Value> groups;
  for (size_t begin = 0, end = 0; begin < keyed.size(); begin = end) {
    std::vector<Value> members;
    for (end = begin; end < keyed.size() && equals(keyed[end].first, keyed[begin].first); ++end) members.push_back(keyed[end].second);
    if (members.empty()) refuse("groupby(): a key that is not equal to itself");
    Value key = path(members[0]);
    groups.push_back(heap.sequence(Kind::kTuple, {key, heap.list(std::move(members))}, "_GroupTuple"));
  }
  return heap.list(std::move(groups));
}

Value batch(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  int64_t size = bound.integer(0, 0);
  std::vector<Value> batches, row;
  for (const Value& item : iterate(input)) {
    if (static_cast<int64_t>(row.size()) == size) batches.push_back(heap.list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (bound.has(1) && !bound[1].is_none() && static_cast<int64_t>(row.size()) < size) {
      heap.check_items(static_cast<size_t>(size));
      row.resize(static_cast<size_t>(size), bound[1]);
    }
    batches.push_back(heap.list(std::move(row)));
  }
  return heap.iterator(std::move(batches));
}

Value slice(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
  int64_t slices = bound.integer(0, 0);
  if (slices == 0) refuse("integer division or modulo by zero");
  auto items = iterate(input);
  heap.check_items(static_cast<size_t>(std::max<int64_t>(slices, 0)));
  std::vector<Value> columns;
  size_t position = 0;
  for (int64_t i = 0; i < slices; ++i) {
    auto size = static_cast<int64_t>(items.size());
    bool has_extra = i < size % slices;
    auto end = position + static_cast<size_t>(size / slices + (has_extra ? 1 : 0));
    std::vector<Value> column(items.begin() + static_cast<std::ptrdiff_t>(position), items.begin() + static_cast<std::ptrdiff_t>(end));
    if (bound.has(1) && !bound[1].is_none() && !has_extra) column.push_back(bound[1]);
    columns.push_back(heap.list(std::move(column)));
    position = end;
  }
  return heap.iterator(std::move(columns));
}

Value attribute(Heap& heap, const Value& input, const Arguments& arguments) {
  Bound bound("attr", arguments, {"name"}, 1);
  std::string_view name = bound.text(0);
  require_defined(input);
  if (!input.is(Kind::kDict)) return get_attribute(heap, input, name);
  if (auto method = find_method(heap, input, name)) return *method;
  return heap.undefined(fmt::format("'dict object' has no attribute '{}'", name));
}

Value map(Heap& heap, const Value& input, const Arguments& arguments) {
  std::vector<Value> mapped;
  if (!truth(input)) return heap.iterator({});
  if (arguments.positional.empty()) {
    Bound bound("map", arguments, {"", "attribute", "default"});
    if (!bound.has(1)) refuse("map requires a filter argument");
    AttributePath path(heap, &bound[1], optional(bound, 2));
    for (const Value& item : iterate(input)) mapped.push_back(path(item));
    return heap.iterator(std::move(mapped));
  }
  const Value& name = arguments.positional[0];
  Filter filter = name.is_string() ? find_filter(name.text()) : nullptr;
  if (!filter) refuse("unknown filter '{}'", to_text(heap, name));
  Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  for (const Value& item : iterate(input)) {
    heap.spend(1);
    mapped.push_back(filter(heap, item, rest));
  }
  return heap.iterator(std::move(mapped));
}

/// select, reject and, by an attribute of the items, selectattr and rejectattr.
template <bool kKeep, bool kByAttribute>
Value select(Heap& heap, const Value& input, const Arguments& arguments) {
  std::vector<Value> kept;
  if (!truth(input)) return heap.iterator({});
  size_t next = kByAttribute ? 1 : 0;
  if (arguments.positional.size() < next) refuse("Missing parameter for attribute name");
  AttributePath path(heap, kByAttribute ? &arguments.positional[0] : nullptr);
  Test test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > next) {
    const Value& name = arguments.positional[next];
    test = name.is_string() ? find_test(name.text()) : nullptr;
    if (!test) refuse("unknown test '{}'", to_text(heap, name));
    rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(next) + 1, arguments.positional.end());
    rest.named = arguments.named;
  }
  for (const Value& item : iterate(input)) {
    heap.spend(1);
    Value subject = path(item);
    if ((test ? test(heap, subject, rest) : truth(subject)) == kKeep) kept.push_back(item);
  }
  return heap.iterator(std::move(kept));
}

}  // namespace

const FilterTable& collection_filters() {
  static const FilterTable table = {
      {"attr", attribute},
      {"batch", batch},
      {"count", count},
      {"dictsort", dict_sort},
      {"first", first},
      {"groupby", group_by},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", count},
      {"list", to_list},
      {"map", map},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", select<false, false>},
      {"rejectattr", select<false, true>},
      {"reverse", reverse},
      {"select", select<true, false>},
      {"selectattr", select<true, true>},
      {"slice", slice},
      {"sort", sort},
      {"sum", sum},
      {"unique", unique},
  };
  return table;
}

Filter find_filter(std::string_view name) {
  for (const FilterTable* table : {&scalar_filters(), &collection_filters()}) {
    if (auto found = table->find(name); found != table->end()) return found->second;
  }
  return nullptr;
}

std::string_view filter_refusal(std::string_view name) {
  if (name == "random") return "a chat template must be deterministic";
  for (std::string_view html : {"filesizeformat", "pprint", "striptags", "urlize", "wordwrap", "xmlattr"}) {
    if (name == html) return "it formats pages, not chats";
  }
  return "";
}

}  // namespace minisgl::jinja
