#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flag_table.h"

namespace minisgl::cli {

/// The flags in force for one run of a command: command line, then MINISGL_* environment, then the --config file.
/// Every getter throws Error(kUsage) that names the flag, where its value came from, the value and what is allowed.
class Flags {
 public:
  bool has(std::string_view name) const { return values_.contains(name); }
  bool get_bool(std::string_view name) const;
  std::optional<std::string> get_string(std::string_view name) const;
  std::string get_string(std::string_view name, std::string_view fallback) const;
  std::optional<int64_t> get_int(std::string_view name) const;
  std::optional<uint64_t> get_uint64(std::string_view name) const;
  std::optional<double> get_float(std::string_view name) const;
  /// All values of a repeatable flag, in order.
  std::vector<std::string> get_list(std::string_view name) const;
  /// "1,2,3" as ids; every element a 32-bit integer >= 0.
  std::vector<int32_t> get_ids(std::string_view name) const;

  /// The flags in force of these commands as TOML, ready for --config; those that nobody set as comments with their defaults.
  std::string to_toml(unsigned commands) const;

 private:
  friend Flags parse_flags(Command, const std::vector<std::string>&, const std::map<std::string, std::string>&);

  struct Value {
    std::vector<std::string> texts;
    std::string origin;  ///< "--max-tokens", "MINISGL_MAX_TOKENS", "config.toml: max-tokens"
  };
  const Value* find(std::string_view name) const;

  std::map<std::string, Value, std::less<>> values_;
};

/// Parses the arguments after the command's name. `environment` holds this process's MINISGL_* variables.
/// Throws Error(kUsage) for an unknown flag, key or variable (with the nearest name), a missing or unexpected value, a flag of another
/// command, and an alias whose meaning differs from ours.
Flags parse_flags(Command command, const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment);

/// The MINISGL_* variables of this process, those for tests (MINISGL_TEST_*) left out.
std::map<std::string, std::string> minisgl_environment();

/// --help of one command, from the table.
std::string command_help(Command command);
/// --help of the program.
std::string program_help();
/// docs/flags.md.
std::string flags_markdown();

/// "1,2,3" as token ids; `what` names the flag or field in the error.
std::vector<int32_t> parse_token_ids(std::string_view text, std::string_view what);

}  // namespace minisgl::cli
