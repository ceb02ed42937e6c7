#include "tokenizer/tokenizer_document.h"

#include "base/error.h"

namespace minisgl {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 64;

// Receives the parse events. Everything goes into a JSON value except while `capture_` says otherwise.
class DocumentReader : public nlohmann::json_sax<json> {
 public:
  DocumentReader(TokenizerDocument& document, const std::string& name) : document_(document), name_(name) {}

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) return scalar(value);
    return number(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return scalar(value); }
  bool string(string_t& value) override {
    switch (capture_) {
      case Capture::kNothing:
        return scalar(std::move(value));
      case Capture::kVocabulary:
        bad_id();
      case Capture::kMerges:
        whole_merge(value);
        return true;
      case Capture::kMergePair:
        merge_side(value);
        return true;
    }
    return true;
  }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override {
    if (capture_ == Capture::kVocabulary) bad_id();
    if (capture_ != Capture::kNothing) bad_merge();
    if (in_model() && key_ == "vocab") {
      put(json::object());
      capture_ = Capture::kVocabulary;
      document_.has_vocabulary = true;
    } else {
      descend(json::object());
    }
    return true;
  }
  bool key(string_t& value) override {
    key_ = std::move(value);
    if (capture_ == Capture::kNothing && stack_.back()->contains(key_))
      fail(ErrorKind::kBadModel, "{}: the key '{}' appears twice", name_, key_);
    if (stack_.size() == 1) top_key_ = key_;
    return true;
  }
  bool end_object() override {
    if (capture_ == Capture::kVocabulary) {
      capture_ = Capture::kNothing;
    } else {
      stack_.pop_back();
    }
    return true;
  }
  bool start_array(size_t) override {
    switch (capture_) {
      case Capture::kVocabulary:
        bad_id();
      case Capture::kMergePair:
        bad_merge();
      case Capture::kMerges:
        capture_ = Capture::kMergePair;
        pair_sides_ = 0;
        return true;
      case Capture::kNothing:
        break;
    }
    if (in_model() && key_ == "merges") {
      put(json::array());
      capture_ = Capture::kMerges;
    } else {
      descend(json::array());
    }
    return true;
  }
  bool end_array() override {
    switch (capture_) {
      case Capture::kMergePair:
        if (pair_sides_ != 2) bad_merge();
        add_merge(left_, right_);
        capture_ = Capture::kMerges;
        break;
      case Capture::kMerges:
        capture_ = Capture::kNothing;
        break;
      default:
        stack_.pop_back();
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    // The library's text begins with its own name for the error and the place.
    const std::string text = error.what();
    const size_t cause = text.find("syntax error");
    fail(ErrorKind::kBadModel, "{}: malformed JSON at byte {}: {}", name_, position, text.substr(cause == std::string::npos ? 0 : cause));
  }

 private:
  enum class Capture { kNothing, kVocabulary, kMerges, kMergePair };

  bool in_model() const { return stack_.size() == 2 && top_key_ == "model" && stack_.back()->is_object(); }

  json* put(json value) {
    if (stack_.empty()) {
      document_.root = std::move(value);
      return &document_.root;
    }
    json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }
  void descend(json value) {
    if (stack_.size() == kMaxDepth) fail(ErrorKind::kBadModel, "{}: nested deeper than {} levels", name_, kMaxDepth);
    stack_.push_back(put(std::move(value)));
  }
  bool scalar(json value) {
    if (capture_ == Capture::kVocabulary) bad_id();
    if (capture_ != Capture::kNothing) bad_merge();
    put(std::move(value));
    return true;
  }
  bool number(int64_t value) {
    if (capture_ != Capture::kVocabulary) return scalar(value);
    if (value < 0 || value > kMaxTokenId) {
      fail(ErrorKind::kBadModel, "{}: model.vocab: token '{}' has id {}; allowed: 0 to {}", name_, key_, value, kMaxTokenId);
    }
    const int32_t id = static_cast<int32_t>(value);
    switch (document_.vocabulary.add(key_, id)) {
      case Vocabulary::Added::kDone:
        break;
      case Vocabulary::Added::kTokenExists:
        fail(ErrorKind::kBadModel, "{}: model.vocab: token '{}' appears twice", name_, key_);
      case Vocabulary::Added::kIdExists:
        fail(ErrorKind::kBadModel, "{}: model.vocab: tokens '{}' and '{}' have the same id {}", name_, document_.vocabulary.token(id), key_,
             id);
    }
    return true;
  }

  void add_merge(std::string_view left, std::string_view right) {
    document_.merges.push_back({document_.merge_text.size(), static_cast<uint32_t>(left.size()), static_cast<uint32_t>(right.size())});
    document_.merge_text += left;
    document_.merge_text += right;
  }
  // "left right", the older form.
  void whole_merge(std::string_view merge) {
    if (merge.starts_with("#version")) return;
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) bad_merge();
    add_merge(merge.substr(0, space), merge.substr(space + 1));
  }
  void merge_side(std::string& side) {
    if (pair_sides_ == 2) bad_merge();
    (pair_sides_ == 0 ? left_ : right_) = std::move(side);
    ++pair_sides_;
  }

  [[noreturn]] void bad_id() const {
    fail(ErrorKind::kBadModel, "{}: model.vocab: the id of token '{}' is not a whole number", name_, key_);
  }
  [[noreturn]] void bad_merge() const {
    fail(ErrorKind::kBadModel, "{}: model.merges[{}] is not a pair of tokens ([\"a\", \"b\"] or \"a b\")", name_, document_.merges.size());
  }

  TokenizerDocument& document_;
  const std::string& name_;
  std::vector<json*> stack_;  // the open objects and arrays
  std::string key_;           // the last key read
  std::string top_key_;       // the last key read in the root
  Capture capture_ = Capture::kNothing;
  int pair_sides_ = 0;
  std::string left_;
  std::string right_;
};

}  // namespace

std::optional<JsonNode> JsonNode::find(const std::string& key) const {
  if (!value_->is_object()) wrong_type("an object");
  const auto member = value_->find(key);
  if (member == value_->end() || member->is_null()) return std::nullopt;
  return JsonNode(*member, fmt::format("{}{}{}", place_, place_.ends_with(": ") ? "" : ".", key));
}

JsonNode JsonNode::at(const std::string& key) const {
  if (auto member = find(key)) return *std::move(member);
  fail(ErrorKind::kBadModel, "{}{}{} is missing", place_, place_.ends_with(": ") ? "" : ".", key);
}

std::vector<JsonNode> JsonNode::elements() const {
  if (!value_->is_array()) wrong_type("an array");
  std::vector<JsonNode> result;
  for (size_t i = 0; i < value_->size(); ++i) result.emplace_back((*value_)[i], fmt::format("{}[{}]", place_, i));
  return result;
}

std::string JsonNode::string() const {
  if (!value_->is_string()) wrong_type("a string");
  return value_->get<std::string>();
}

bool JsonNode::boolean() const {
  if (!value_->is_boolean()) wrong_type("true or false");
  return value_->get<bool>();
}

int64_t JsonNode::integer(int64_t low, int64_t high) const {
  if (!value_->is_number_integer()) wrong_type("a whole number");
  const bool too_large = value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (too_large || value_->get<int64_t>() < low || value_->get<int64_t>() > high) {
    fail(ErrorKind::kBadModel, "{} is {}; allowed: {} to {}", place_, value_->dump(), low, high);
  }
  return value_->get<int64_t>();
}

std::string JsonNode::string_or(const std::string& key, const std::string& fallback) const {
  const auto member = find(key);
  return member ? member->string() : fallback;
}

bool JsonNode::boolean_or(const std::string& key, bool fallback) const {
  const auto member = find(key);
  return member ? member->boolean() : fallback;
}

void JsonNode::wrong_type(const char* expected) const {
  std::string place = place_;
  if (place.ends_with(": ")) place.resize(place.size() - 2);
  fail(ErrorKind::kBadModel, "{}: expected {}, found {}", place, expected, value_->type_name());
}

std::vector<std::pair<std::string_view, std::string_view>> TokenizerDocument::merge_pairs() const {
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  pairs.reserve(merges.size());
  const std::string_view text = merge_text;
  for (const Merge& merge : merges) {
    pairs.emplace_back(text.substr(merge.begin, merge.left_bytes), text.substr(merge.begin + merge.left_bytes, merge.right_bytes));
  }
  return pairs;
}

TokenizerDocument parse_tokenizer_document(std::string_view json_text, const std::string& name) {
  TokenizerDocument document;
  DocumentReader reader(document, name);
  json::sax_parse(json_text.begin(), json_text.end(), &reader);
  if (!document.root.is_object()) fail(ErrorKind::kBadModel, "{}: expected an object, found {}", name, document.root.type_name());
  return document;
}

}  // namespace minisgl
