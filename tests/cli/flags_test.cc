#include "cli/flags.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "cli/program.h"

namespace minisgl::cli {
namespace {

std::string error_of(Command command, const std::vector<std::string>& arguments,
                     const std::map<std::string, std::string>& environment = {}) {
  try {
    parse_flags(command, arguments, environment);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(FlagsTest, CommandLineWinsOverEnvironmentWinsOverFile) {
  const test::TemporaryFolder folder;
  const std::string file = folder.write("c.toml", "max-tokens = 1\ntemperature = 0.5\nseed = 3\nstop = [\"a\", \"b c\"]\n");
  const Flags flags =
      parse_flags(kGenerate, {"--max-tokens", "3", "--config", file}, {{"MINISGL_MAX_TOKENS", "2"}, {"MINISGL_TEMPERATURE", "0.25"}});
  EXPECT_EQ(flags.get_int("max-tokens"), 3);
  EXPECT_EQ(flags.get_float("temperature"), 0.25);
  EXPECT_EQ(flags.get_int("seed"), 3);
  EXPECT_EQ(flags.get_list("stop"), (std::vector<std::string>{"a", "b c"}));
}

TEST(FlagsTest, PrintedConfigurationReadsBackTheSame) {
  const test::TemporaryFolder folder;
  const Flags flags = parse_flags(kGenerate, {"--stop", "a\"b\\c", "--stop", "x", "--top-k=5", "--ignore-eos", "--prompt", "hi"}, {});
  const std::string file = folder.write("c.toml", flags.to_toml(kGenerate));
  EXPECT_EQ(parse_flags(kGenerate, {"--config", file}, {}).to_toml(kGenerate), flags.to_toml(kGenerate)) << flags.to_toml(kGenerate);
}

TEST(FlagsTest, ValuesMayLookLikeFlags) {
  const Flags flags =
      parse_flags(kGenerate, {"--prompt", "--help", "--prompt=-x", "--top-k", "-1", "--prompt", "[1, 2]", "--prompt", "", "--prompt="}, {});
  EXPECT_EQ(flags.get_list("prompt"), (std::vector<std::string>{"--help", "-x", "[1, 2]", "", ""}));
  EXPECT_EQ(flags.get_int("top-k"), -1);
  EXPECT_FALSE(flags.get_bool("help"));
}

TEST(FlagsTest, UnknownNamesAreRefusedWithTheNearestOne) {
  EXPECT_NE(error_of(kGenerate, {"--max-token", "3"}).find("did you mean --max-tokens?"), std::string::npos);
  EXPECT_NE(error_of(kGenerate, {}, {{"MINISGL_MAX_TOKEN", "3"}}).find("did you mean MINISGL_MAX_TOKENS?"), std::string::npos);
  const test::TemporaryFolder folder;
  EXPECT_NE(error_of(kGenerate, {"--config", folder.write("c.toml", "temprature = 1\n")}).find("did you mean temperature?"),
            std::string::npos);
  EXPECT_NE(error_of(kDoctor, {"--max-tokens", "3"}).find("does not belong to 'minisgl doctor'"), std::string::npos);
}

TEST(FlagsTest, ABooleanInTheEnvironmentCanBeOffOrWrong) {
  EXPECT_FALSE(parse_flags(kGenerate, {}, {{"MINISGL_IGNORE_EOS", "0"}}).get_bool("ignore-eos"));
  EXPECT_TRUE(parse_flags(kGenerate, {}, {{"MINISGL_IGNORE_EOS", "1"}}).get_bool("ignore-eos"));
  EXPECT_NE(error_of(kGenerate, {}, {{"MINISGL_IGNORE_EOS", "maybe"}}).find("allowed are true, false, 1, 0"), std::string::npos);
}

TEST(FlagsTest, NumbersAreCheckedBeforeAnythingRuns) {
  EXPECT_NE(error_of(kGenerate, {"--max-tokens", "12x"}).find("must be an integer"), std::string::npos);
  EXPECT_NE(error_of(kGenerate, {"--max-tokens", "99999999999999999999"}).find("must be an integer"), std::string::npos);
  EXPECT_NE(error_of(kGenerate, {"--temperature", "nan"}).find("must be a finite number"), std::string::npos);
  EXPECT_NE(error_of(kGenerate, {"--temperature", "inf"}).find("must be a finite number"), std::string::npos);
  EXPECT_NE(error_of(kGenerate, {"--temperature", ""}).find("must be a finite number"), std::string::npos);
  EXPECT_NE(error_of(kGenerate, {"--max-tokens"}), "no error");
  EXPECT_NE(error_of(kGenerate, {"--max-tokens", "1", "--max-tokens", "2"}).find("given 2 times"), std::string::npos);
  EXPECT_EQ(parse_flags(kGenerate, {"--seed", "18446744073709551615"}, {}).get_uint64("seed"), ~uint64_t{0});
}

TEST(FlagsTest, TokenIdListsAreParsedStrictly) {
  EXPECT_EQ(parse_token_ids("1, 2,3", "x"), (std::vector<int32_t>{1, 2, 3}));
  for (const char* bad : {"", "1,", ",1", "1;2", "-1", "a", "1 2", "99999999999"}) {
    EXPECT_THROW(parse_token_ids(bad, "--ids"), Error) << bad;
  }
}

TEST(FlagsTest, AliasesOfOtherEnginesAreTakenOrRefusedWithAdvice) {
  for (const AliasSpec& alias : alias_table()) {
    const std::string name(alias.alias);
    if (alias.flag.empty()) {
      EXPECT_NE(error_of(kGenerate, {name, "1"}).find(alias.advice), std::string::npos) << name;
      continue;
    }
    const FlagSpec* flag = find_flag(alias.flag);
    ASSERT_NE(flag, nullptr) << name;
    const Flags flags = flag->type == FlagType::kBool ? parse_flags(kGenerate, {name}, {}) : parse_flags(kGenerate, {name, "7"}, {});
    EXPECT_TRUE(flags.has(alias.flag)) << name;
  }
  EXPECT_EQ(parse_flags(kGenerate, {"some/model", "-p", "x"}, {}).get_string("model"), "some/model");
}

TEST(FlagsTest, TheTableIsConsistent) {
  std::set<std::string_view> names;
  for (const FlagSpec& flag : flag_table()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name << " is there twice";
    EXPECT_FALSE(flag.help.empty()) << flag.name;
    EXPECT_NE(flag.commands, 0u) << flag.name;
    EXPECT_EQ(flag.type == FlagType::kBool, flag.value_name.empty()) << flag.name;
  }
}

TEST(FlagsTest, HelpNamesEveryFlagOfACommand) {
  for (const CommandSpec& command : command_table()) {
    const std::string help = command_help(command.command);
    for (const FlagSpec& flag : flag_table()) {
      const bool listed = help.find("--" + std::string(flag.name) + " ") != std::string::npos;
      EXPECT_EQ(listed, (flag.commands & command.command) != 0) << command.name << " " << flag.name;
    }
  }
}

TEST(FlagsTest, TheFlagDocumentIsUpToDate) {
  EXPECT_EQ(test::read_file(std::string(MINISGL_SOURCE_DIR) + "/docs/flags.md"), flags_markdown())
      << "run: build/cpu-release/minisgl --flags-markdown > docs/flags.md";
}

}  // namespace
}  // namespace minisgl::cli
