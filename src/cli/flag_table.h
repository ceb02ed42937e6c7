#pragma once

#include <span>
#include <string_view>

namespace minisgl::cli {

/// The subcommands, as bits so that a flag can name all it belongs to.
enum Command : unsigned {
  kGenerate = 1u << 0,
  kChat = 1u << 1,
  kTokenize = 1u << 2,
  kDetokenize = 1u << 3,
  kInfo = 1u << 4,
  kDoctor = 1u << 5,
  kBenchLatency = 1u << 6,
  kCheck = 1u << 7,
};
inline constexpr unsigned kAllCommands = (1u << 8) - 1;
/// Commands that load a model and run it.
inline constexpr unsigned kEngineCommands = kGenerate | kChat | kBenchLatency;

struct CommandSpec {
  Command command;
  std::string_view name;  ///< "generate", "bench latency"
  std::string_view help;
};

enum class FlagType { kBool, kInt, kFloat, kString };

/// One flag: the only place that knows its name, type, help and where it is accepted. The command line, MINISGL_<NAME> variables, keys of
/// the --config file, --help, --print-config and docs/flags.md all come from here.
struct FlagSpec {
  std::string_view name;  ///< "max-tokens"; a flag "no-x" is set by --no-x or MINISGL_NO_X=1
  FlagType type;
  std::string_view group;          ///< heading in --help
  std::string_view value_name;     ///< "N"; empty for kBool
  std::string_view default_value;  ///< as text, for people; empty if there is none
  std::string_view help;
  unsigned commands;  ///< bits of Command
  bool repeatable = false;
};

/// Another engine's name for one of our flags.
struct AliasSpec {
  std::string_view alias;   ///< "--model-path", "-m"
  std::string_view engine;  ///< whose name it is
  /// Our flag's name, taken with the alias's value. Empty: the meaning differs and the alias is refused with `advice`.
  std::string_view flag;
  /// What to use instead, if refused.
  std::string_view advice;
};

std::span<const CommandSpec> command_table();
std::span<const FlagSpec> flag_table();
std::span<const AliasSpec> alias_table();

/// The flag of this name, or null.
const FlagSpec* find_flag(std::string_view name);
const CommandSpec& command_spec(Command command);

}  // namespace minisgl::cli
