#include "checkpoint/model_path.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "base/error.h"
#include "base/mapped_file.h"
#include "checkpoint/folder_listing.h"
#include "checkpoint/gguf.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/model_config.h"

namespace minisgl {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kShapePrefix = "shape:";
constexpr size_t kMaxRefBytes = 4096;

/// An environment variable; empty if it is unset.
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path hub_cache() {
  if (const std::string cache = environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) return fs::path(cache) / "huggingface/hub";
  return fs::path(environment("HOME")) / ".cache/huggingface/hub";
}

bool is_plain_name(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  return !text.empty() && text != "." && text != ".." && std::all_of(text.begin(), text.end(), allowed);
}

/// "org/name".
bool is_hub_id(std::string_view text) {
  const size_t slash = text.find('/');
  return slash != std::string_view::npos && is_plain_name(text.substr(0, slash)) && text.front() != '.' &&
         is_plain_name(text.substr(slash + 1));
}

/// A branch, tag or commit; branches may have several parts ("refs/pr/1").
bool is_revision(std::string_view text) {
  for (size_t begin = 0;;) {
    const size_t slash = text.find('/', begin);
    if (!is_plain_name(text.substr(begin, slash - begin))) return false;
    if (slash == std::string_view::npos) return true;
    begin = slash + 1;
  }
}

ModelPath resolve_existing(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error) fail_io("examine", path, error.value());
  if (fs::is_directory(status)) return {ModelFormat::kHuggingFaceFolder, path, ""};
  if (path.extension() == ".gguf" || GgufFile::has_magic(path)) return {ModelFormat::kGguf, path, ""};
  fail_param(ErrorKind::kUsage, "model", "{} is neither a folder nor a .gguf file{}", path.string(),
             path.extension() == ".safetensors" ? "; pass the folder it is in" : "");
}

ModelPath resolve_hub_id(const std::string& id, const std::string& revision) {
  if (!is_revision(revision)) fail_param(ErrorKind::kUsage, "revision", "\"{}\" is not a branch, tag or commit", revision);
  const fs::path cache = hub_cache();
  std::string folder = "models--" + id;
  folder.replace(folder.find('/'), 1, "--");

  std::string commit = revision;
  const fs::path ref = cache / folder / "refs" / revision;
  if (std::error_code error; fs::is_regular_file(ref, error)) {
    commit = read_text_file(ref, kMaxRefBytes);
    commit.erase(commit.find_last_not_of(" \r\n\t") + 1);
    if (!is_plain_name(commit)) fail(ErrorKind::kBadModel, "{} does not hold a commit", ref.string());
  }
  const fs::path snapshot = cache / folder / "snapshots" / commit;
  if (std::error_code error; fs::is_directory(snapshot, error)) return {ModelFormat::kHuggingFaceFolder, snapshot, ""};

  // The id may just as well be a mistyped relative path.
  const fs::path parent = fs::path(id).parent_path();
  std::error_code error;
  const std::string nearest =
      fs::is_directory(parent, error) ? fmt::format(" ({})", describe_nearest(parent, fs::path(id).filename().string())) : "";
  fail_param(ErrorKind::kNotFound, "model", "{} is no path here{} and not in the hub cache {}; download it with: hf download {}{}", id,
             nearest, cache.string(), id, revision == "main" ? "" : " --revision " + revision);
}

[[noreturn]] void fail_missing(const std::string& model) {
  fs::path missing = fs::path(model).lexically_normal();
  if (!missing.has_filename()) missing = missing.parent_path();
  // The first part of the path that is not there is the one to explain.
  fs::path parent = missing.parent_path();
  while (!parent.empty() && parent != parent.root_path() && !exists_or_dangles(parent)) {
    missing = parent;
    parent = parent.parent_path();
  }
  if (parent.empty()) parent = ".";
  std::error_code error;
  if (!fs::is_directory(parent, error)) fail_param(ErrorKind::kNotFound, "model", "model {}: {} is not a folder", model, parent.string());
  fail_param(ErrorKind::kNotFound, "model", "model {} is not there: {} has no {}; {}", model, parent.string(), missing.filename().string(),
             describe_nearest(parent, missing.filename().string()));
}

}  // namespace

ModelPath resolve_model_path(const std::string& model, const std::string& revision) {
  if (model.empty()) fail_param(ErrorKind::kUsage, "model", "the model is empty; give a folder, a .gguf file, a hub id or shape:NAME");
  if (model.starts_with(kShapePrefix)) {
    const std::string name = model.substr(kShapePrefix.size());
    const std::vector<std::string_view> names = shape_names();
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      fail_param(ErrorKind::kNotFound, "model", "there is no shape \"{}\"; there are {}", name, fmt::join(names, ", "));
    }
    return {ModelFormat::kShape, "", name};
  }
  if (exists_or_dangles(model)) return resolve_existing(model);
  if (is_hub_id(model)) return resolve_hub_id(model, revision);
  fail_missing(model);
}

}  // namespace minisgl
