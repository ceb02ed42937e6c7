#include <csignal>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"

namespace minisgl::cli {

namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr std::string_view kVersionLine = "minisgl " MINISGL_VERSION "\n";

int dispatch(Command command, const Flags& flags) {
  switch (command) {
    case kGenerate:
      return run_generate(flags);
    case kChat:
      return run_chat(flags);
    case kTokenize:
      return run_tokenize(flags);
    case kDetokenize:
      return run_detokenize(flags);
    case kInfo:
      return run_info(flags);
    case kDoctor:
      return run_doctor(flags);
    case kBenchLatency:
      return run_bench_latency(flags);
    case kCheck:
      return run_check(flags);
  }
  MINISGL_CHECK(false, "command {}", static_cast<unsigned>(command));
  return kExitFailure;
}

/// Finds the command that `arguments` begin with and removes its words ("bench latency" has two).
Command take_command(std::vector<std::string>& arguments) {
  std::vector<std::string> names;
  for (const CommandSpec& spec : command_table()) {
    names.emplace_back(spec.name);
    size_t words = 0;
    std::string typed;
    while (words < arguments.size() && typed.size() < spec.name.size()) {
      typed += (typed.empty() ? "" : " ") + arguments[words++];
    }
    if (typed == spec.name) {
      arguments.erase(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(words));
      return spec.command;
    }
  }
  for (const std::string& name : names) {
    if (name.starts_with(arguments[0] + " ") && arguments.size() == 1) {
      fail(ErrorKind::kUsage, "'{}' needs a second word: minisgl {}; see minisgl --help", arguments[0], name);
    }
  }
  const std::string typed = arguments.size() > 1 && arguments[0] == "bench" ? "bench " + arguments[1] : arguments[0];
  const std::string nearest = nearest_name(typed, names);
  fail(ErrorKind::kUsage, "unknown command '{}'{}; see minisgl --help", typed, nearest.empty() ? "" : "; did you mean '" + nearest + "'?");
}

int run(std::vector<std::string> arguments) {
  if (arguments.empty()) {
    fail(ErrorKind::kUsage, "no command; see minisgl --help");
  }
  // What a program without a command answers to. After a command these are flags like any other.
  const std::string& first = arguments[0];
  if (first == "--version") {
    write_stdout(kVersionLine);
    return 0;
  }
  if (first == "--licenses") {
    write_stdout(licenses_text());
    return 0;
  }
  if (first == "--flags-markdown") {
    write_stdout(flags_markdown());
    return 0;
  }
  if (first == "--help" || first == "-h" || first == "help") {
    write_stdout(program_help());
    return 0;
  }
  const Command command = take_command(arguments);
  const Flags flags = parse_flags(command, arguments, minisgl_environment());
  if (flags.get_bool("help")) {
    write_stdout(command_help(command));
    return 0;
  }
  if (flags.get_bool("version")) {
    write_stdout(kVersionLine);
    return 0;
  }
  if (flags.get_bool("licenses")) {
    write_stdout(licenses_text());
    return 0;
  }
  const std::string format = flags.get_string("log-format", "text");
  if (format != "text" && format != "json") {
    fail_param(ErrorKind::kUsage, "log-format", "--log-format is '{}'; allowed are text, json", format);
  }
  configure_logging(flags.get_bool("quiet") ? "error" : flags.get_string("log-level", "info"),
                    format == "json" ? LogFormat::kJson : LogFormat::kText);
  if (flags.get_bool("print-config")) {
    write_stdout(flags.to_toml(command));
    return 0;
  }
  return dispatch(command, flags);
}

int guarded_run(const std::vector<std::string>& arguments) {
  configure_logging("info", LogFormat::kText);
  try {
    const int status = run(arguments);
    flush_stdout();
    return status;
  } catch (const ClosedPipe&) {
    return 0;
  } catch (const Error& error) {
    spdlog::error("{}", one_line(error.what()));
    return error.kind() == ErrorKind::kUsage ? kExitUsage : kExitFailure;
  } catch (const std::bad_alloc&) {
    spdlog::error("out of memory");
    return kExitFailure;
  } catch (const std::exception& error) {
    spdlog::error("internal error: {}", error.what());
    return kExitFailure;
  }
}

}  // namespace

}  // namespace minisgl::cli

int main(int argc, char** argv) {
  // A reader that goes away is reported by write() and ends the program quietly.
  std::signal(SIGPIPE, SIG_IGN);
  return minisgl::cli::guarded_run(std::vector<std::string>(argv + 1, argv + argc));
}
