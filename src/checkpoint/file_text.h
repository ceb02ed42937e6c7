#pragma once

#include <string>
#include <string_view>

namespace minisgl {

/// Throws Error(kBadModel) if `bytes` begin as a Git LFS pointer file does: the download of `origin` left the pointer in place of the file.
void refuse_lfs_pointer(std::string_view bytes, const std::string& origin);

/// Throws Error(kBadModel) if a name out of the file `origin` is empty, longer than `limit_bytes`, or has control characters, which would
/// end up in messages. `what` says whose name it is.
void check_name(std::string_view name, size_t limit_bytes, const char* what, const std::string& origin);

}  // namespace minisgl
