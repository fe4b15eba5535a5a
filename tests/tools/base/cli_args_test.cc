// SPDX-License-Identifier: Apache-2.0
#include "tools/base/cli_args.h"

#include <gtest/gtest.h>

#include "tools/base/cli_help.h"
#include "tools/base/format.h"
#include "tools/cli/command_line.h"
#include "tools/top/command_line.h"

namespace gpushare {
namespace {

std::expected<Invocation, Stop> parse(std::vector<const char*> words,
                                      const ProgramSpec& program = gpushare_spec()) {
  words.insert(words.begin(), program.name.data());
  return parse_args(program, static_cast<int>(words.size()), words.data());
}

TEST(CliArgs, RunTakesItsOptionsAndLeavesTheProgramsOwn) {
  const auto parsed = parse({"run", "--tenant", "research", "--max=30000 100000", "-w", "300",
                             "python", "train.py", "--lr", "0.1", "--tenant", "x", "-h"});
  ASSERT_TRUE(parsed) << parsed.error().text;
  EXPECT_EQ(parsed->command->name, "run");
  EXPECT_EQ(parsed->value("tenant"), "research");
  EXPECT_EQ(parsed->value("max"), "30000 100000");
  EXPECT_EQ(parsed->value("weight"), "300");
  EXPECT_EQ(parsed->arguments,
            (std::vector<std::string>{"python", "train.py", "--lr", "0.1", "--tenant", "x", "-h"}));
}

TEST(CliArgs, OnlyTheFirstDoubleDashIsOurs) {
  const auto parsed = parse({"run", "--", "env", "--", "--help"});
  ASSERT_TRUE(parsed) << parsed.error().text;
  EXPECT_EQ(parsed->arguments, (std::vector<std::string>{"env", "--", "--help"}));
}

TEST(CliArgs, AProgramMayBeNamedLikeACommand) {
  const auto parsed = parse({"run", "status"});
  ASSERT_TRUE(parsed) << parsed.error().text;
  EXPECT_EQ(parsed->command->name, "run");
  EXPECT_EQ(parsed->arguments, std::vector<std::string>{"status"});
}

TEST(CliArgs, CommonOptionsStandBeforeOrAfterTheCommand) {
  for (const auto& words :
       {std::vector<const char*>{"--socket", "/s", "status"}, {"status", "--socket", "/s"}}) {
    const auto parsed = parse(words);
    ASSERT_TRUE(parsed) << parsed.error().text;
    EXPECT_EQ(parsed->value("socket"), "/s");
    EXPECT_EQ(parsed->command->name, "status");
    EXPECT_FALSE(parsed->has("json"));
  }
}

TEST(CliArgs, AnOptionTakesOneValueAndTheLastOneCounts) {
  const auto parsed = parse({"set", "--region", "/a", "--region", "/b", "T", "weight=1", "-c"});
  ASSERT_TRUE(parsed) << parsed.error().text;
  EXPECT_EQ(parsed->value("region"), "/b");
  EXPECT_TRUE(parsed->has("create"));
  EXPECT_EQ(parsed->arguments, (std::vector<std::string>{"T", "weight=1"}));
}

struct Wrong {
  const char* description;
  std::vector<const char*> words;
  const char* says;
};

TEST(CliArgs, SaysWhatIsWrongAndWhatIsMeant) {
  const Wrong table[] = {
      {"a misspelt command", {"statsu"}, "did you mean 'status'?"},
      {"no such command", {"xyzzy"}, "the commands are: run, status,"},
      {"a misspelt option", {"run", "--wieght", "3", "ls"}, "did you mean --weight?"},
      {"a misspelt option with a value", {"run", "--wieght=3", "ls"}, "did you mean --weight?"},
      {"another command's option", {"status", "--create"}, "unknown option --create"},
      {"a missing value", {"trace", "-d"}, "option --duration needs a value"},
      {"no program", {"run", "--weight", "3"}, "run needs [--] PROGRAM"},
      {"too few arguments", {"attach", "12"}, "attach needs PID TENANT"},
      {"too many arguments", {"attach", "12", "a", "b"}, "attach takes only PID TENANT"},
      {"arguments where none are", {"status", "now"}, "status takes no arguments"},
      {"a value for a flag", {"status", "--json=maybe"}, "option --json takes no value"},
  };
  for (const Wrong& row : table) {
    const auto parsed = parse(row.words);
    ASSERT_FALSE(parsed) << row.description;
    EXPECT_EQ(parsed.error().code, kExitUsage) << row.description;
    EXPECT_NE(parsed.error().text.find(row.says), std::string::npos)
        << row.description << ": " << parsed.error().text;
    EXPECT_NE(parsed.error().text.find("--help"), std::string::npos) << row.description;
  }
}

TEST(CliArgs, WithoutACommandTheHelpIsShownAsAnError) {
  const auto parsed = parse({});
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, kExitUsage);
  EXPECT_NE(parsed.error().text.find("Commands:"), std::string::npos);
}

TEST(CliArgs, HelpIsNoErrorAndNeedsNothingElse) {
  for (const CommandSpec& command : gpushare_spec().commands) {
    const auto parsed = parse({command.name.data(), "--help"});
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().code, kExitOk);
    EXPECT_NE(parsed.error().text.find("Usage: gpushare " + std::string(command.name)),
              std::string::npos);
  }
}

TEST(CliArgs, AProgramWithoutCommandsTakesOptionsOnly) {
  const auto parsed = parse({"--once", "-i", "0.5"}, top_spec());
  ASSERT_TRUE(parsed) << parsed.error().text;
  EXPECT_TRUE(parsed->has("once"));
  EXPECT_EQ(parsed->value("interval"), "0.5");
  const auto wrong = parse({"now"}, top_spec());
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().text.find("unexpected argument 'now'"), std::string::npos);
}

TEST(CliHelp, FitsEightyColumnsAndNamesEveryOption) {
  std::vector<std::string> texts{program_help(gpushare_spec()), program_help(top_spec())};
  for (const CommandSpec& command : gpushare_spec().commands) {
    texts.push_back(command_help(gpushare_spec(), command));
    for (const OptionSpec& option : command.options)
      EXPECT_NE(texts.back().find(option_heading(option)), std::string::npos) << option.name;
    for (std::string_view example : command.examples)
      EXPECT_NE(texts.back().find(example), std::string::npos);
    EXPECT_FALSE(command.examples.empty()) << command.name;
  }
  for (const std::string& text : texts)
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
      EXPECT_LE(text.find('\n', at) - at, 80u) << text.substr(at, 100);
}

TEST(CliHelp, WrapKeepsWordsAndTheNewlinesThatAreThere) {
  EXPECT_EQ(wrap("one two three", 9, 2), "  one two\n  three");
  EXPECT_EQ(wrap("a\n  b", 80, 0), "a\n  b");
  EXPECT_EQ(wrap("unbreakable", 4, 0), "unbreakable");
  EXPECT_EQ(wrap("", 80, 3), "");
}

}  // namespace
}  // namespace gpushare
