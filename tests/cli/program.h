#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "support/temporary_folder.h"

namespace minisgl::test {

/// What a run of the program left behind.
struct ProgramResult {
  int status = -1;  ///< exit status; 128 + signal if a signal ended it
  std::string out;
  std::string err;
};

std::string read_file(const std::filesystem::path& path);

/// Runs `minisgl arguments...`. `prefix` stands before the command in the shell ("MINISGL_X=1"), `suffix` behind it ("> /dev/full").
ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& prefix = "", const std::string& suffix = "",
                          const std::string& input = "");

/// The same without a shell: `signal` is sent as soon as the program has written a byte to stdout. `err` is not collected.
ProgramResult signal_program(const std::vector<std::string>& arguments, const std::string& input, int signal);

/// Most memory that any program run so far by this process was resident with.
int64_t largest_child_bytes();

/// The folder of a tiny model.
std::string fixture(const std::string& model);

}  // namespace minisgl::test
