#include "checkpoint/file_text.h"

#include <algorithm>

#include "base/error.h"

namespace minisgl {

void refuse_lfs_pointer(std::string_view bytes, const std::string& origin) {
  if (!bytes.starts_with("version https://git-lfs.github.com/spec/")) return;
  fail(ErrorKind::kBadModel, "{} is a Git LFS pointer, not the file itself: run `git lfs pull` in its folder, or download the model again",
       origin);
}

void check_name(std::string_view name, size_t limit_bytes, const char* what, const std::string& origin) {
  if (name.empty()) fail(ErrorKind::kBadModel, "{}: {} is empty", origin, what);
  if (name.size() > limit_bytes)
    fail(ErrorKind::kBadModel, "{}: {} has {} bytes, at most {} are accepted", origin, what, name.size(), limit_bytes);
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(name.begin(), name.end(), is_control)) fail(ErrorKind::kBadModel, "{}: {} has control characters", origin, what);
}

}  // namespace minisgl
