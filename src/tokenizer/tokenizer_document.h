#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/vocabulary.h"

namespace minisgl {

/// A value in a JSON document with its place there, for errors that say where and what. A view: the document must outlive it.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  /// "tokenizer.json: pre_tokenizer.pretokenizers[1]"
  const std::string& place() const { return place_; }
  /// The member `key` of this object; nothing if it is missing or null.
  std::optional<JsonNode> find(const std::string& key) const;
  /// The same; throws Error(kBadModel) if it is missing or null.
  JsonNode at(const std::string& key) const;
  /// The elements of this array.
  std::vector<JsonNode> elements() const;
  std::string string() const;
  bool boolean() const;
  /// A whole number in [low, high].
  int64_t integer(int64_t low, int64_t high) const;
  bool is_zero() const { return value_->is_number() && value_->get<double>() == 0; }

  /// The string member `key`, or a value when it is missing.
  std::string string_or(const std::string& key, const std::string& fallback) const;
  bool boolean_or(const std::string& key, bool fallback) const;

 private:
  [[noreturn]] void wrong_type(const char* expected) const;

  const nlohmann::json* value_;
  std::string place_;
};

/// A tokenizer.json in memory. The vocabulary and the merges, which are nearly all of the file, are read straight into their own form;
/// the rest is a JSON document.
struct TokenizerDocument {
  nlohmann::json root;    ///< an object; model.vocab and model.merges are empty here
  Vocabulary vocabulary;  ///< model.vocab
  bool has_vocabulary = false;

  /// A merge: the offset in merge_text of its left token, and both sizes. The right token follows the left.
  struct Merge {
    uint64_t begin;
    uint32_t left_bytes;
    uint32_t right_bytes;
  };
  std::string merge_text;
  std::vector<Merge> merges;

  /// The merges as pairs of tokens; views into this document.
  std::vector<std::pair<std::string_view, std::string_view>> merge_pairs() const;
};

/// Parses a tokenizer.json. Throws Error(kBadModel), which begins with `name`, for anything but well-formed JSON of moderate depth.
TokenizerDocument parse_tokenizer_document(std::string_view json, const std::string& name);

}  // namespace minisgl
