#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace minisgl::test {

/// What a run of the program left behind.
struct ProgramResult {
  int status = -1;  ///< exit status; 128 + signal if a signal ended it
  std::string out;
  std::string err;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

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

inline std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// Runs `minisgl arguments...`. `prefix` stands before the command in the shell ("MINISGL_X=1"), `suffix` behind it ("> /dev/full").
inline ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& prefix = "", const std::string& suffix = "",
                                 const std::string& input = "") {
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "out").string();
  const std::string err = (folder.path() / "err").string();
  const std::string in = folder.write("in", input);
  std::string command = "< " + in + " 2> " + err + " " + prefix + " " + shell_quoted(MINISGL_PROGRAM);
  for (const std::string& argument : arguments) command += " " + shell_quoted(argument);
  command += suffix.empty() ? " > " + out : " " + suffix;
  const int status = std::system(command.c_str());
  ProgramResult result;
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = read_file(out);
  result.err = read_file(err);
  return result;
}

inline std::string fixture(const std::string& model) {
  return std::string(MINISGL_TEST_DATA) + "/models/" + model;
}

}  // namespace minisgl::test
