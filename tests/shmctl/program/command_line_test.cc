// SPDX-License-Identifier: Apache-2.0
#include "shmctl/program/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "shmctl/base/version.h"
#include "shmctl/program/help.h"

namespace gpushare {
namespace {

ExitCode do_nothing(const Invocation&) { return kExitOk; }

const Command& shop() {
  static const Command program{
      .name = "shop",
      .summary = "sell things.",
      .details = "Open from nine to five.",
      .options = {{.name = "socket",
                   .value = "PATH",
                   .help = "Where the till listens",
                   .otherwise = "/run/till",
                   .variable = "SHOP_TEST_SOCKET"},
                  {.name = "secret", .value = "N", .otherwise = "7", .range = Range{0, 9, true}}},
      .examples = {"shop run -- till"},
      .commands = {
          {.name = "run",
           .summary = "Start a program.",
           .arguments = "[--] PROGRAM [ARGUMENT...]",
           .options = {{"tenant", 't', "TENANT", "Who pays"},
                       {"weight", 'w', "N", "How heavy"},
                       {"max", 0, "CAP", "How much"}},
           .starts_program = true,
           .run = do_nothing},
          {.name = "status",
           .summary = "Show it.",
           .options = {{.name = "json", .help = "Print JSON"},
                       {"near", 0, "[=FILE]", "Also what is near"}},
           .run = do_nothing},
          {.name = "set",
           .summary = "Change it.",
           .arguments = "TENANT KEY=VALUE...",
           .options = {{.name = "create", .letter = 'c', .help = "Make it"}},
           .run = do_nothing},
          {.name = "attach", .summary = "Move it.", .arguments = "PID TENANT", .run = do_nothing},
          {.name = "show", .summary = "Show one.", .arguments = "[ONE [TWO]]", .run = do_nothing},
          {.name = "light", .summary = "Switch it.", .arguments = "on|off", .run = do_nothing},
          {.name = "trace",
           .summary = "Record it.",
           .options = {{.name = "duration",
                        .letter = 'd',
                        .value = "SECONDS",
                        .help = "How long",
                        .otherwise = "5",
                        .range = Range{0.1, 3600}},
                       number_option("count", "N", "How many", {1, kNoLimit, true})},
           .run = do_nothing}}};
  return program;
}

// A program without commands.
const Command& watcher() {
  static const Command program{.name = "watcher",
                               .summary = "look.",
                               .options = {{.name = "once", .letter = '1', .help = "Look once"}},
                               .run = do_nothing};
  return program;
}

std::expected<Invocation, Stop> parse(std::vector<const char*> words,
                                      const Command& program = shop()) {
  words.insert(words.begin(), program.name.c_str());
  return parse_args(program, static_cast<int>(words.size()), words.data());
}

TEST(CommandLine, RunTakesItsOptionsAndLeavesTheProgramsOwn) {
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

TEST(CommandLine, OnlyTheFirstDoubleDashIsOurs) {
  const auto parsed = parse({"run", "--", "env", "--", "--help"});
  ASSERT_TRUE(parsed) << parsed.error().text;
  EXPECT_EQ(parsed->arguments, (std::vector<std::string>{"env", "--", "--help"}));
}

TEST(CommandLine, AProgramMayBeNamedLikeACommand) {
  const auto parsed = parse({"run", "status"});
  ASSERT_TRUE(parsed) << parsed.error().text;
  EXPECT_EQ(parsed->command->name, "run");
  EXPECT_EQ(parsed->arguments, std::vector<std::string>{"status"});
}

TEST(CommandLine, CommonOptionsStandBeforeOrAfterTheCommand) {
  for (const auto& words :
       {std::vector<const char*>{"--socket", "/s", "status"}, {"status", "--socket", "/s"}}) {
    const auto parsed = parse(words);
    ASSERT_TRUE(parsed) << parsed.error().text;
    EXPECT_EQ(parsed->value("socket"), "/s");
    EXPECT_EQ(parsed->command->name, "status");
    EXPECT_FALSE(parsed->has("json"));
  }
}

TEST(CommandLine, AnOptionTakesOneValueAndTheLastOneCounts) {
  const auto parsed = parse({"set", "--socket", "/a", "--socket", "/b", "T", "weight=1", "-c"});
  ASSERT_TRUE(parsed) << parsed.error().text;
  EXPECT_EQ(parsed->value("socket"), "/b");
  EXPECT_TRUE(parsed->has("create"));
  EXPECT_EQ(parsed->arguments, (std::vector<std::string>{"T", "weight=1"}));
}

struct Wrong {
  const char* description;
  std::vector<const char*> words;
  const char* says;
};

TEST(CommandLine, SaysWhatIsWrongAndWhatIsMeant) {
  const Wrong table[] = {
      {"a misspelt command", {"statsu"}, "did you mean 'status'?"},
      {"no such command", {"xyzzy"}, "the commands are: run, status,"},
      {"a misspelt option", {"run", "--wieght", "3", "ls"}, "did you mean --weight?"},
      {"a misspelt option with a value", {"run", "--wieght=3", "ls"}, "did you mean --weight?"},
      {"a hidden option is not proposed", {"status", "--secre"}, "unknown option --secre\n"},
      {"another command's option", {"status", "--create"}, "unknown option --create"},
      {"dashes and nothing else", {"status", "---"}, "status takes options only"},
      {"a missing value", {"trace", "-d"}, "option --duration needs a value"},
      {"no program", {"run", "--weight", "3"}, "run needs [--] PROGRAM"},
      {"too few arguments", {"attach", "12"}, "attach needs PID TENANT"},
      {"too many arguments", {"attach", "12", "a", "b"}, "attach takes only PID TENANT"},
      {"more than may be left out", {"show", "1", "2", "3"}, "show takes only [ONE [TWO]]"},
      {"arguments where none are", {"status", "now"}, "status takes options only"},
      {"none of the choices", {"light", "dim"}, "'dim' is none of: on, off"},
      {"a value for a flag", {"status", "--json=maybe"}, "option --json takes no value"},
      {"too small", {"trace", "-d", "0"}, "--duration takes a number, 0.1 to 3600, not '0'"},
      {"too large", {"trace", "-d", "1e9"}, "0.1 to 3600, not '1e9'"},
      {"no number", {"trace", "-d", "nan"}, "0.1 to 3600, not 'nan'"},
      {"a number and more", {"trace", "-d", "5s"}, "0.1 to 3600, not '5s'"},
      {"no whole number", {"trace", "--count", "1.5"}, "a whole number, 1 or more, not '1.5'"},
      {"a negative number", {"trace", "--count=-1"}, "a whole number, 1 or more, not '-1'"},
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

TEST(CommandLine, WithoutACommandTheHelpIsShownAsAnError) {
  const auto parsed = parse({});
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, kExitUsage);
  EXPECT_NE(parsed.error().text.find("Commands:"), std::string::npos);
}

TEST(CommandLine, HelpIsNoErrorAndNeedsNothingElse) {
  for (const Command& command : shop().commands) {
    const auto parsed = parse({command.name.c_str(), "--help"});
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().code, kExitOk);
    EXPECT_NE(parsed.error().text.find("Usage: shop " + command.name), std::string::npos);
  }
}

TEST(CommandLine, EveryProgramKnowsItsVersion) {
  for (const auto& words :
       {std::vector<const char*>{"--version"}, {"status", "--version"}, {"-V"}}) {
    const auto parsed = parse(words);
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().code, kExitOk);
    EXPECT_EQ(parsed.error().text, std::string("shop ") + kVersion + " (" + kCommit + ")\n");
  }
}

TEST(CommandLine, HelpIsAWordToo) {
  const std::vector<std::pair<std::vector<const char*>, std::vector<const char*>>> same = {
      {{"help"}, {"--help"}}, {{"help", "status"}, {"status", "--help"}}};
  for (const auto& [word, option] : same) {
    ASSERT_FALSE(parse(word));
    EXPECT_EQ(parse(word).error().code, kExitOk);
    EXPECT_EQ(parse(word).error().text, parse(option).error().text);
  }
  const auto wrong = parse({"help", "statsu"});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, kExitUsage);
  EXPECT_THAT(wrong.error().text, testing::HasSubstr("did you mean 'status'?"));
  EXPECT_EQ(parse({"help"}, watcher()).error().code, kExitUsage);
}

TEST(CommandLine, AProgramWithoutCommandsTakesOptionsOnly) {
  const auto parsed = parse({"-1"}, watcher());
  ASSERT_TRUE(parsed) << parsed.error().text;
  EXPECT_TRUE(parsed->has("once"));
  const auto wrong = parse({"now"}, watcher());
  ASSERT_FALSE(wrong);
  EXPECT_EQ(
      wrong.error().text,
      "watcher: unexpected argument 'now'; watcher takes options only\nTry 'watcher --help'.\n");
}

TEST(CommandLine, TheOptionCountsThenTheEnvironmentThenTheDefault) {
  ::unsetenv("SHOP_TEST_SOCKET");
  EXPECT_EQ(parse({"status"})->text("socket"), "/run/till");
  EXPECT_EQ(parse({"status"})->value("socket"), std::nullopt);
  ::setenv("SHOP_TEST_SOCKET", "", 1);  // empty is as if it were not set
  EXPECT_EQ(parse({"status"})->text("socket"), "/run/till");
  ::setenv("SHOP_TEST_SOCKET", "/env", 1);
  EXPECT_EQ(parse({"status"})->text("socket"), "/env");
  EXPECT_EQ(parse({"status", "--socket", "/s"})->text("socket"), "/s");
  ::unsetenv("SHOP_TEST_SOCKET");
}

TEST(CommandLine, NumbersComeAsNumbers) {
  const auto parsed = parse({"trace", "-d", "0.25", "--count", "18446744073709551615"});
  ASSERT_TRUE(parsed) << parsed.error().text;
  EXPECT_EQ(parsed->number("duration"), 0.25);
  EXPECT_EQ(parsed->seconds("duration"), std::chrono::milliseconds(250));
  EXPECT_EQ(parsed->whole("count"), 18446744073709551615u);
  EXPECT_EQ(parse({"trace"})->number("duration"), 5);
  EXPECT_EQ(parse({"trace"})->whole("secret"), 7u);
}

TEST(CommandLine, AValueInBracketsMayBeLeftOut) {
  EXPECT_FALSE(parse({"status"})->has("near"));
  EXPECT_EQ(parse({"status", "--near"})->value("near"), "");
  EXPECT_EQ(parse({"status", "--near", "--json"})->value("near"), "");
  EXPECT_EQ(parse({"status", "--near=/f"})->value("near"), "/f");
  EXPECT_EQ(parse({"status", "--near", "/f"})->value("near"), "/f");
}

TEST(CommandLine, ADefectOfOursIsAFailureAndIsNotSilent) {
  const Command program{
      .name = "p", .run = [](const Invocation&) -> ExitCode { throw std::runtime_error("oh"); }};
  const char* const words[] = {"p"};
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_program(program, 1, words), kExitFailure);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "p: oh\n");
}

TEST(Help, NamesEverythingButWhatIsHidden) {
  const std::string text = help_text(shop(), shop().commands[6]);
  EXPECT_THAT(text, testing::HasSubstr("-d, --duration SECONDS  How long, 0.1 to 3600 (5).\n"));
  EXPECT_THAT(text, testing::HasSubstr("    --count N           How many, 1 or more.\n"));
  EXPECT_THAT(text, testing::HasSubstr("(/run/till, or $SHOP_TEST_SOCKET)."));
  EXPECT_THAT(text, testing::HasSubstr("--version"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("secret")));
}

TEST(Help, WrapKeepsWordsAndTheNewlinesThatAreThere) {
  EXPECT_EQ(wrap("one two three", 9, 2), "  one two\n  three");
  EXPECT_EQ(wrap("a\n  b", 80, 0), "a\n  b");
  EXPECT_EQ(wrap("unbreakable", 4, 0), "unbreakable");
  EXPECT_EQ(wrap("", 80, 3), "");
}

}  // namespace
}  // namespace gpushare
