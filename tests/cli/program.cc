#include "cli/program.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
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

ProgramResult signal_program(const std::vector<std::string>& arguments, const std::string& input, int signal) {
  const TemporaryFolder folder;
  const std::string in = folder.write("in", input);
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    std::vector<char*> argv = {const_cast<char*>(MINISGL_PROGRAM)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    dup2(open(in.c_str(), O_RDONLY), STDIN_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execv(MINISGL_PROGRAM, argv.data());
    _exit(127);
  }
  close(ends[1]);
  ProgramResult result;
  char block[4096];
  for (ssize_t count = 0; (count = read(ends[0], block, sizeof(block))) > 0;) {
    if (result.out.empty()) kill(child, signal);
    result.out.append(block, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace minisgl::test
