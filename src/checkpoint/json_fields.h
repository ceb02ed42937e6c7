#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace minisgl {

/// Parses JSON text from a file of a model. Throws Error(kBadModel), one line that begins with `origin`, for malformed text, a nesting of
/// more than 64, or an object that has the same key twice. A Git LFS pointer is named as such.
nlohmann::json parse_json(std::string_view text, const std::string& origin);

/// Throws Error(kBadModel) if `bytes` begin as a Git LFS pointer file does: the download of `origin` left the pointer in place of the file.
void refuse_lfs_pointer(std::string_view bytes, const std::string& origin);

/// A JSON value on one line, shortened, for messages.
std::string brief(const nlohmann::json& value);

/// Checked access to the fields of one JSON object. A field that is absent and one that is null are the same, except to has(). Each
/// function throws Error(kBadModel) that names the file, the field, its value and what is allowed.
class JsonFields {
 public:
  /// `object` must outlive this. `prefix` stands before the field names in messages ("rope_scaling.").
  JsonFields(const nlohmann::json& object, std::string origin, std::string prefix = "");

  const std::string& origin() const { return origin_; }
  /// The field is there, null or not.
  bool has(const char* key) const { return object_.contains(key); }
  /// The field's value; null if it is absent or null.
  const nlohmann::json* find(const char* key) const;

  /// An integer, or a float without a fraction, in [low, high].
  std::optional<int64_t> integer(const char* key, int64_t low, int64_t high) const;
  int64_t required_integer(const char* key, int64_t low, int64_t high) const;
  /// A finite number in [low, high].
  std::optional<double> number(const char* key, double low, double high) const;
  double required_number(const char* key, double low, double high) const;
  std::optional<bool> boolean(const char* key) const;
  std::optional<std::string> string(const char* key) const;
  /// The fields of a nested object.
  std::optional<JsonFields> object(const char* key) const;

  /// All names, in alphabetical order.
  std::vector<std::string> keys() const;

  /// Throws Error(kBadModel): "<origin>: <prefix><key> is <value>, <what is allowed>".
  [[noreturn]] void bad(const char* key, const std::string& allowed) const;
  /// Throws Error(kNotSupported) in the same form.
  [[noreturn]] void not_supported(const char* key, const std::string& why) const;

 private:
  [[noreturn]] void refuse(ErrorKind kind, const char* key, const std::string& why) const;
  template <typename T>
  T required(const char* key, std::optional<T> value) const;

  const nlohmann::json& object_;
  std::string origin_;
  std::string prefix_;
};

}  // namespace minisgl
