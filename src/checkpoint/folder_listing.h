#pragma once

#include <filesystem>
#include <string>

namespace minisgl {

/// True for anything that has this name, a symbolic link to nothing included: opening it then says what is wrong with it. Never throws.
bool exists_or_dangles(const std::filesystem::path& path);

/// What a folder holds, for a message: "it is empty", "it holds a, b and 3 more", or why it cannot be read. Never throws.
std::string describe_folder(const std::filesystem::path& folder);

/// The entries of `folder` whose names come closest to `name`, at most three: "did you mean a, b?", or describe_folder() if none is close.
std::string describe_nearest(const std::filesystem::path& folder, const std::string& name);

}  // namespace minisgl
