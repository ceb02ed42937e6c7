#include "cli/program.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include <iterator>

namespace minisgl::test {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string fixture(const std::string& model) {
  return std::string(MINISGL_TEST_DATA) + "/models/" + model;
}

int64_t largest_child_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_CHILDREN, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

namespace {

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& prefix, const std::string& suffix,
                          const std::string& input) {
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

}  // namespace minisgl::test
