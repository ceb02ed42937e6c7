#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace minisgl::test {

/// What a run of the program left behind.
struct ProgramResult {
  int status = -1;  ///< exit status; 128 + signal if a signal ended it
  std::string out;
  std::string err;
};

std::string read_file(const std::filesystem::path& path);

/// A folder that is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "minisgl-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path path() const { return path_; }
  /// Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

/// Runs `minisgl arguments...`. `prefix` stands before the command in the shell ("MINISGL_X=1"), `suffix` behind it ("> /dev/full").
ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& prefix = "", const std::string& suffix = "",
                          const std::string& input = "");

/// Most memory that any program run so far by this process was resident with.
int64_t largest_child_bytes();

/// The folder of a tiny model.
std::string fixture(const std::string& model);

}  // namespace minisgl::test
