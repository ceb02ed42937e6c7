#include "tokenizer/jinja_print.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_text.h"

namespace minisgl::jinja {

namespace {

/// Appends to one text, with its size and the steps checked at every piece.
class Writer {
 public:
  explicit Writer(Heap& heap) : heap_(heap) {}

  void write(std::string_view piece) {
    heap_.spend_bytes(piece.size());
    heap_.check_bytes(out_.size() + piece.size());
    out_.append(piece);
  }
  Heap& heap() { return heap_; }
  std::string take() { return std::move(out_); }

 private:
  Heap& heap_;
  std::string out_;
};

void write_repr(Writer& out, const Value& value, int namespaces);

void write_items(Writer& out, const std::vector<Value>& items, int namespaces) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.write(", ");
    write_repr(out, items[i], namespaces);
  }
}

void write_dict(Writer& out, const DictObject& dict, int namespaces) {
  out.write("{");
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out.write(", ");
    write_repr(out, dict.entries[i].first, namespaces);
    out.write(": ");
    write_repr(out, dict.entries[i].second, namespaces);
  }
  out.write("}");
}

/// `namespaces`: those this value is printed inside of; unlike other containers they may hold themselves.
void write_repr(Writer& out, const Value& value, int namespaces) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return out.write("Undefined");
    case Kind::kNone:
      return out.write("None");
    case Kind::kBool:
      return out.write(value.boolean() ? "True" : "False");
    case Kind::kInt:
      return out.write(fmt::format("{}", value.integer()));
    case Kind::kFloat:
      return out.write(text::print_float(value.real()));
    case Kind::kString:
      out.heap().spend_characters(value.text().size());
      return out.write(value.string().safe ? fmt::format("Markup({})", text::quote(value.text())) : text::quote(value.text()));
    case Kind::kList:
      out.write("[");
      write_items(out, value.sequence().items, namespaces);
      return out.write("]");
    case Kind::kTuple:
      out.write("(");
      write_items(out, value.sequence().items, namespaces);
      return out.write(value.sequence().items.size() == 1 ? ",)" : ")");
    case Kind::kDictView:
      out.write(fmt::format("{}([", value.sequence().type_name));
      write_items(out, value.sequence().items, namespaces);
      return out.write("])");
    case Kind::kRange: {
      const auto& items = value.sequence().items;
      int64_t start = items.empty() ? 0 : items.front().integer();
      int64_t step = items.size() < 2 ? 1 : items[1].integer() - start;
      int64_t stop = items.empty() ? 0 : items.back().integer() + (step > 0 ? 1 : -1);
      return out.write(step == 1 ? fmt::format("range({}, {})", start, stop) : fmt::format("range({}, {}, {})", start, stop, step));
    }
    case Kind::kDict:
      return write_dict(out, value.dict(), namespaces);
    case Kind::kNamespace:
      if (namespaces > kMaxValueDepth / 10) refuse("a namespace that contains itself cannot be printed");
      out.write("<Namespace ");
      write_dict(out, *value.name_space().attributes, namespaces + 1);
      return out.write(">");
    case Kind::kIterator:
      return out.write(fmt::format("<{} object>", value.iterator().type_name));
    case Kind::kCallable:
    case Kind::kLoop:
      return out.write(value.callable().repr());
  }
}

void write_json_string(Writer& out, std::string_view text, bool ensure_ascii) {
  out.heap().check_bytes(text.size());
  out.heap().spend_characters(text.size());
  std::string json = "\"";
  for (size_t i = 0; i < text.size();) {
    size_t size = text::sequence_bytes(text, i);
    char32_t c = text::code_point_at(text, i);
    switch (c) {
      case '"':
        json += "\\\"";
        break;
      case '\\':
        json += "\\\\";
        break;
      case '\n':
        json += "\\n";
        break;
      case '\r':
        json += "\\r";
        break;
      case '\t':
        json += "\\t";
        break;
      case '\b':
        json += "\\b";
        break;
      case '\f':
        json += "\\f";
        break;
      default:
        if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000)) {
          json += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
        } else if (ensure_ascii && c >= 0x10000) {
          uint32_t offset = static_cast<uint32_t>(c) - 0x10000;
          json += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
        } else {
          json.append(text, i, size);
        }
    }
    i += size;
  }
  json += '"';
  out.write(json);
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return text::print_float(value);
}

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style) : out_(heap), style_(style) {}
  std::string take() { return out_.take(); }

  void write(const Value& value, int level) {
    switch (value.kind()) {
      case Kind::kNone:
        return out_.write("null");
      case Kind::kBool:
        return out_.write(value.boolean() ? "true" : "false");
      case Kind::kInt:
        return out_.write(fmt::format("{}", value.integer()));
      case Kind::kFloat:
        return out_.write(json_float(value.real()));
      case Kind::kString:
        return write_json_string(out_, value.text(), style_.ensure_ascii);
      case Kind::kList:
      case Kind::kTuple:
        return write_array(value.sequence().items, level);
      case Kind::kDict:
        return write_object(value.dict(), level);
      default:
        refuse("Object of type {} is not JSON serializable", type_name(value));
    }
  }

 private:
  void new_line(int level) {
    if (!style_.multi_line) return;
    out_.write("\n");
    for (int i = 0; i < level; ++i) out_.write(style_.indent);
  }

  void write_array(const std::vector<Value>& items, int level) {
    if (items.empty()) return out_.write("[]");
    out_.write("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.write(style_.item_separator);
      new_line(level + 1);
      write(items[i], level + 1);
    }
    new_line(level);
    out_.write("]");
  }

  void write_object(const DictObject& dict, int level) {
    if (dict.entries.empty()) return out_.write("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [](auto* a, auto* b) { return less(a->first, b->first); });
    }
    out_.write("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.write(style_.item_separator);
      new_line(level + 1);
      write_json_string(out_, key(entries[i]->first), style_.ensure_ascii);
      out_.write(style_.key_separator);
      write(entries[i]->second, level + 1);
    }
    new_line(level);
    out_.write("}");
  }

  static std::string key(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return key.text();
      case Kind::kInt:
        return fmt::format("{}", key.integer());
      case Kind::kFloat:
        return json_float(key.real());
      case Kind::kBool:
        return key.boolean() ? "true" : "false";
      case Kind::kNone:
        return "null";
      default:
        refuse("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  Writer out_;
  const JsonStyle& style_;
};

}  // namespace

std::string to_repr(Heap& heap, const Value& value) {
  Writer out(heap);
  write_repr(out, value, 0);
  return out.take();
}

std::string to_text(Heap& heap, const Value& value) {
  if (value.is_undefined()) return "";
  if (value.is_string()) {
    heap.spend_bytes(value.text().size());
    return value.text();
  }
  return to_repr(heap, value);
}

std::string to_json(Heap& heap, const Value& value, const JsonStyle& style) {
  JsonWriter writer(heap, style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace minisgl::jinja
