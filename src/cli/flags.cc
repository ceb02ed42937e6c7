#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>  // before CLI11, which uses std::exchange without including it

#include "base/error.h"
#include "base/nearest_name.h"
#include "cli/config_file.h"

extern char** environ;

namespace minisgl::cli {

namespace {

constexpr std::string_view kIsaVariable = "MINISGL_CPU_ISA";

/// Flags that ask for something once rather than configure: never printed as configuration.
const std::set<std::string_view> kNotConfiguration = {"config", "print-config", "help", "version", "licenses"};

std::string environment_name(std::string_view flag) {
  std::string name = "MINISGL_" + std::string(flag);
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::vector<std::string> flag_names(unsigned commands) {
  std::vector<std::string> names;
  for (const FlagSpec& flag : flag_table()) {
    if ((flag.commands & commands) != 0) names.emplace_back(flag.name);
  }
  return names;
}

std::string did_you_mean(const std::string& nearest, std::string_view prefix) {
  return nearest.empty() ? "" : fmt::format("; did you mean {}{}?", prefix, nearest);
}

/// Checks the text of a value against its flag's type, so that a wrong one fails before anything is loaded.
void check_type(const FlagSpec& flag, const std::string& text, const std::string& origin) {
  const char* end = text.data() + text.size();
  switch (flag.type) {
    case FlagType::kString:
      return;
    case FlagType::kBool:
      if (text != "true" && text != "false" && text != "1" && text != "0") {
        fail_param(ErrorKind::kUsage, std::string(flag.name), "{} is '{}'; allowed are true, false, 1, 0", origin, text);
      }
      return;
    case FlagType::kInt: {
      // The seed is the one unsigned 64-bit value; its getter reads it as such.
      const auto parses = [&](auto value) {
        const auto parsed = std::from_chars(text.data(), end, value);
        return !text.empty() && parsed.ptr == end && parsed.ec == std::errc{};
      };
      if (parses(int64_t{}) || parses(uint64_t{})) return;
      fail_param(ErrorKind::kUsage, std::string(flag.name), "{} is '{}'; it must be an integer of at most 64 bits", origin, text);
    }
    case FlagType::kFloat: {
      double value = 0;
      const auto parsed = std::from_chars(text.data(), end, value);
      if (text.empty() || parsed.ptr != end || parsed.ec != std::errc{} || !std::isfinite(value)) {
        fail_param(ErrorKind::kUsage, std::string(flag.name), "{} is '{}'; it must be a finite number", origin, text);
      }
      return;
    }
  }
}

}  // namespace

const Flags::Value* Flags::find(std::string_view name) const {
  MINISGL_CHECK(find_flag(name) != nullptr, "flag {} is not in the table", name);
  const auto it = values_.find(name);
  return it == values_.end() ? nullptr : &it->second;
}

bool Flags::get_bool(std::string_view name) const {
  const Value* value = find(name);
  return value != nullptr && (value->texts.back() == "true" || value->texts.back() == "1");
}

std::optional<std::string> Flags::get_string(std::string_view name) const {
  const Value* value = find(name);
  if (value == nullptr) return std::nullopt;
  return value->texts.back();
}

std::string Flags::get_string(std::string_view name, std::string_view fallback) const {
  return get_string(name).value_or(std::string(fallback));
}

std::optional<int64_t> Flags::get_int(std::string_view name) const {
  const Value* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string& text = value->texts.back();
  int64_t result = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), result).ec != std::errc{}) {
    fail_param(ErrorKind::kUsage, std::string(name), "{} is {}; it must fit 64 bits with a sign", value->origin, text);
  }
  return result;
}

std::optional<uint64_t> Flags::get_uint64(std::string_view name) const {
  const Value* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string& text = value->texts.back();
  uint64_t result = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), result);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) {
    fail_param(ErrorKind::kUsage, std::string(name), "{} is {}; it must be between 0 and 2^64 - 1", value->origin, text);
  }
  return result;
}

std::optional<double> Flags::get_float(std::string_view name) const {
  const Value* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string& text = value->texts.back();
  double result = 0;
  std::from_chars(text.data(), text.data() + text.size(), result);
  return result;
}

std::vector<std::string> Flags::get_list(std::string_view name) const {
  const Value* value = find(name);
  return value == nullptr ? std::vector<std::string>{} : value->texts;
}

std::vector<int32_t> Flags::get_ids(std::string_view name) const {
  const Value* value = find(name);
  if (value == nullptr) return {};
  return parse_token_ids(value->texts.back(), value->origin);
}

std::vector<int32_t> parse_token_ids(std::string_view text, std::string_view what) {
  std::vector<int32_t> ids;
  const char* cursor = text.data();
  const char* end = cursor + text.size();
  const auto skip_spaces = [&] {
    while (cursor != end && *cursor == ' ') ++cursor;
  };
  while (true) {
    skip_spaces();
    int32_t id = 0;
    const auto parsed = std::from_chars(cursor, end, id);
    if (parsed.ec != std::errc{} || id < 0) {
      fail_param(ErrorKind::kUsage, std::string(what), "{} is '{}'; it must be token ids separated by commas, such as 1,2,3", what,
                 text.substr(0, 80));
    }
    ids.push_back(id);
    cursor = parsed.ptr;
    skip_spaces();
    if (cursor == end) return ids;
    if (*cursor != ',') {
      fail_param(ErrorKind::kUsage, std::string(what), "{} is '{}'; it must be token ids separated by commas, such as 1,2,3", what,
                 text.substr(0, 80));
    }
    ++cursor;
  }
}

std::string Flags::to_toml(unsigned commands) const {
  std::string text;
  const auto quoted = [](const std::string& raw) {
    std::string out = "\"";
    for (const char c : raw) {
      switch (c) {
        case '"':
          out += "\\\"";
          break;
        case '\\':
          out += "\\\\";
          break;
        case '\n':
          out += "\\n";
          break;
        case '\t':
          out += "\\t";
          break;
        case '\r':
          out += "\\r";
          break;
        default:
          if (static_cast<unsigned char>(c) < 0x20) {
            out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
          } else {
            out += c;
          }
      }
    }
    return out + "\"";
  };
  for (const FlagSpec& flag : flag_table()) {
    if ((flag.commands & commands) == 0 || kNotConfiguration.contains(flag.name)) continue;
    const auto it = values_.find(flag.name);
    if (it == values_.end()) {
      text += fmt::format("# {} = {}\n", flag.name,
                          flag.type == FlagType::kBool ? "false"
                          : flag.default_value.empty() ? "(none)"
                                                       : flag.default_value);
      continue;
    }
    const auto render = [&](const std::string& raw) {
      if (flag.type == FlagType::kString) return quoted(raw);
      if (flag.type == FlagType::kBool) return std::string(raw == "1" || raw == "true" ? "true" : "false");
      return raw;
    };
    if (flag.repeatable) {
      text += fmt::format("{} = [", flag.name);
      for (size_t i = 0; i < it->second.texts.size(); ++i) text += (i == 0 ? "" : ", ") + render(it->second.texts[i]);
      text += "]\n";
    } else {
      text += fmt::format("{} = {}\n", flag.name, render(it->second.texts.back()));
    }
  }
  return text;
}

std::map<std::string, std::string> minisgl_environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || !text.starts_with("MINISGL_") || text.starts_with("MINISGL_TEST_")) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

namespace {

/// One layer of values, before layers are merged.
struct Layer {
  struct Entry {
    std::vector<std::string> texts;
    std::string origin;
  };
  std::map<std::string, Entry, std::less<>> entries;
};

/// Splits "--flag=value" and "--flag" into the name as typed.
std::string typed_name(const std::string& argument) {
  return argument.substr(0, argument.find('='));
}

/// Says why an argument that the parser did not recognise is wrong.
[[noreturn]] void fail_unknown(Command command, const std::string& argument) {
  const CommandSpec& spec = command_spec(command);
  if (!argument.starts_with("-") || argument == "-") {
    fail(ErrorKind::kUsage, "unexpected argument '{}' for 'minisgl {}'; see 'minisgl {} --help'", argument, spec.name, spec.name);
  }
  const std::string name = typed_name(argument);
  for (const AliasSpec& alias : alias_table()) {
    if (alias.alias == name && alias.flag.empty()) {
      fail_param(ErrorKind::kUsage, name, "{} is {}'s name; here {}", name, alias.engine, alias.advice);
    }
  }
  const std::string bare = name.substr(std::min(name.size(), name.find_first_not_of('-')));
  if (const FlagSpec* other = find_flag(bare); other != nullptr) {
    fail_param(ErrorKind::kUsage, bare, "--{} does not belong to 'minisgl {}'; see 'minisgl {} --help'", bare, spec.name, spec.name);
  }
  const std::string nearest = nearest_name(bare, flag_names(spec.command));
  fail_param(ErrorKind::kUsage, bare, "unknown flag {} for 'minisgl {}'{}", name, spec.name, did_you_mean(nearest, "--"));
}

Layer parse_command_line(Command command, const std::vector<std::string>& arguments) {
  CLI::App app;
  app.set_help_flag();
  app.set_help_all_flag();
  app.allow_extras();
  std::map<std::string, std::vector<CLI::Option*>, std::less<>> options;
  const auto add = [&](const FlagSpec& flag, const std::string& spelling) {
    CLI::Option* option = flag.type == FlagType::kBool ? app.add_flag(spelling) : app.add_option(spelling);
    if (flag.type != FlagType::kBool) option->expected(1)->take_all();
    options[std::string(flag.name)].push_back(option);
  };
  for (const FlagSpec& flag : flag_table()) {
    if ((flag.commands & command) == 0) continue;
    add(flag, "--" + std::string(flag.name));
    for (const AliasSpec& alias : alias_table()) {
      if (alias.flag == flag.name) add(flag, std::string(alias.alias));
    }
  }
  std::vector<std::string> reversed;  // as the parser wants them
  for (auto argument = arguments.rbegin(); argument != arguments.rend(); ++argument) {
    // The parser takes "--flag=" for a flag without a value; an empty value is one.
    if (argument->size() > 3 && argument->starts_with("--") && argument->find('=') == argument->size() - 1) {
      reversed.emplace_back();
      reversed.push_back(argument->substr(0, argument->size() - 1));
    } else {
      reversed.push_back(*argument);
    }
  }
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    fail(ErrorKind::kUsage, "{}; see 'minisgl {} --help'", error.what(), command_spec(command).name);
  }
  Layer layer;
  for (const auto& [name, spellings] : options) {
    const FlagSpec& flag = *find_flag(name);
    for (CLI::Option* option : spellings) {
      if (option->count() == 0) continue;
      Layer::Entry& entry = layer.entries[name];
      entry.origin = option->get_name();
      const std::vector<std::string>& results = option->results();
      entry.texts.insert(entry.texts.end(), results.begin(), results.end());
    }
    const auto it = layer.entries.find(name);
    if (it != layer.entries.end() && !flag.repeatable && it->second.texts.size() > 1 && flag.type != FlagType::kBool) {
      fail_param(ErrorKind::kUsage, name, "--{} is given {} times; it takes one value", name, it->second.texts.size());
    }
  }
  // vLLM names the model by position: "minisgl generate MODEL".
  std::vector<std::string> rest = app.remaining();
  const bool takes_model = (find_flag("model")->commands & command) != 0;
  if (takes_model && rest.size() == 1 && !rest[0].starts_with("-") && !layer.entries.contains("model")) {
    layer.entries["model"] = {{rest[0]}, "the model argument"};
    rest.clear();
  }
  if (!rest.empty()) fail_unknown(command, rest.front());
  return layer;
}

Layer parse_environment(Command command, const std::map<std::string, std::string>& environment) {
  Layer layer;
  std::vector<std::string> known = {std::string(kIsaVariable)};
  for (const FlagSpec& flag : flag_table()) known.push_back(environment_name(flag.name));
  for (const auto& [variable, text] : environment) {
    if (variable == kIsaVariable) continue;  // read by the operators
    const FlagSpec* match = nullptr;
    for (const FlagSpec& flag : flag_table()) {
      if (environment_name(flag.name) == variable) match = &flag;
    }
    if (match == nullptr) {
      fail(ErrorKind::kUsage, "unknown environment variable {}{}", variable, did_you_mean(nearest_name(variable, known), ""));
    }
    // A variable may be set for a whole session: one that belongs to another command is left alone.
    if ((match->commands & command) == 0) continue;
    layer.entries[std::string(match->name)] = {{text}, variable};
  }
  return layer;
}

Layer parse_config_file(Command command, const std::string& path) {
  Layer layer;
  for (const auto& [key, texts] : read_config_file(path)) {
    const FlagSpec* flag = find_flag(key);
    if (flag == nullptr) {
      const std::string nearest = nearest_name(key, flag_names(kAllCommands));
      fail_param(ErrorKind::kUsage, key, "{}: unknown key '{}'{}", path, key, did_you_mean(nearest, ""));
    }
    if ((flag->commands & command) == 0) continue;
    const std::string origin = fmt::format("{}: {}", path, key);
    if (!flag->repeatable && flag->type == FlagType::kString && texts.size() > 1) {
      layer.entries[key] = {{fmt::format("{}", fmt::join(texts, ","))}, origin};  // stop-token-ids = [1, 2]
      continue;
    }
    if (texts.empty() || (texts.size() > 1 && !flag->repeatable)) {
      fail_param(ErrorKind::kUsage, key, "{} has {} values; it takes one", origin, texts.size());
    }
    layer.entries[key] = {texts, origin};
  }
  return layer;
}

}  // namespace

Flags parse_flags(Command command, const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment) {
  Flags flags;
  const auto merge = [&](const Layer& layer) {
    for (const auto& [name, entry] : layer.entries) {
      const FlagSpec& flag = *find_flag(name);
      for (const std::string& text : entry.texts) check_type(flag, text, entry.origin);
      flags.values_.try_emplace(name, Flags::Value{entry.texts, entry.origin});
    }
  };
  merge(parse_command_line(command, arguments));
  merge(parse_environment(command, environment));
  if (const auto path = flags.get_string("config")) merge(parse_config_file(command, *path));
  return flags;
}

namespace {

std::string flag_synopsis(const FlagSpec& flag) {
  std::string text = "--" + std::string(flag.name);
  if (!flag.value_name.empty()) text += " " + std::string(flag.value_name);
  return text;
}

}  // namespace

std::string command_help(Command command) {
  const CommandSpec& spec = command_spec(command);
  std::string text = fmt::format("{}\n\nUsage: minisgl {} [flags]\n", spec.help, spec.name);
  std::string_view group;
  // Flags of a group stand together in the table, so a heading is printed where the group changes.
  for (const FlagSpec& flag : flag_table()) {
    if ((flag.commands & command) == 0) continue;
    if (flag.group != group) {
      group = flag.group;
      text += fmt::format("\n{}:\n", group);
    }
    text += fmt::format("  {:<28} {}{}\n", flag_synopsis(flag), flag.help,
                        flag.default_value.empty() ? "" : fmt::format(" [default: {}]", flag.default_value));
  }
  text += "\nEach flag may also be set as MINISGL_<FLAG> in the environment or as a key of the --config file.\n";
  return text;
}

std::string program_help() {
  std::string text = "minisgl: a native LLM inference and serving engine\n\nUsage: minisgl <command> [flags]\n\nCommands:\n";
  for (const CommandSpec& spec : command_table()) text += fmt::format("  {:<15} {}\n", spec.name, spec.help);
  text +=
      "\nEverywhere:\n"
      "  --help           What a command does and its flags.\n"
      "  --version        Version of this program.\n"
      "  --licenses       Licences of the libraries in it.\n"
      "\nAn example: minisgl generate --model SmolLM2-135M-Instruct.gguf --chat --prompt \"What is the capital of Japan?\"\n";
  return text;
}

std::string flags_markdown() {
  std::string text =
      "# Flags\n\n"
      "Made from the flag table by `minisgl --flags-markdown`; a test compares the two. A flag is also read from the environment\n"
      "(`--max-tokens` as `MINISGL_MAX_TOKENS`) and from the TOML file of `--config` (`max-tokens = 64`), in this order of precedence.\n";
  std::string_view group;
  for (const FlagSpec& flag : flag_table()) {
    if (flag.group != group) {
      group = flag.group;
      text += fmt::format("\n## {}\n\n| flag | commands | default | meaning |\n|---|---|---|---|\n", group);
    }
    std::string commands;
    if (flag.commands == kAllCommands) {
      commands = "all";
    } else {
      for (const CommandSpec& spec : command_table()) {
        if ((flag.commands & spec.command) != 0) commands += (commands.empty() ? "" : ", ") + std::string(spec.name);
      }
    }
    // A bar inside a cell must be escaped.
    std::string help;
    for (const char c : flag.help) help += c == '|' ? std::string("\\|") : std::string(1, c);
    text += fmt::format("| `{}` | {} | {} | {} |\n", flag_synopsis(flag), commands, flag.default_value, help);
  }
  text += "\n## Names of other engines\n\n| name | engine | here |\n|---|---|---|\n";
  for (const AliasSpec& alias : alias_table()) {
    text += fmt::format("| `{}` | {} | {} |\n", alias.alias, alias.engine,
                        alias.flag.empty() ? fmt::format("refused: {}", alias.advice) : fmt::format("`--{}`", alias.flag));
  }
  text += "\n`MINISGL_CPU_ISA` (avx512, avx2, portable) forces an instruction set of the CPU operators.\n";
  return text;
}

}  // namespace minisgl::cli
