// SPDX-License-Identifier: Apache-2.0
// The man pages and --help say the same: every command, option and key stands in both.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "tests/tools/support/run_tool.h"
#include "tests/tools/support/temp_dir.h"
#include "tools/cli/commands.h"
#include "tools/top/model/keys.h"

namespace gpushare {
namespace {

// Returns the options and keys that the lists of an mdoc page tag, by the section they are in.
struct ManPage {
  std::map<std::string, std::set<std::string>> options;  // "--tenant", "-t"
  std::map<std::string, std::set<std::string>> keys;
  std::set<std::string> commands;  // subsections of COMMANDS
};

ManPage read_page(const std::string& name) {
  ManPage page;
  const std::string text = TempDir::read(name);
  EXPECT_FALSE(text.empty()) << name << ": run the tests in the source folder";
  std::istringstream lines(text);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string macro, word;
    words >> macro;
    if (macro == ".Sh") section = line.substr(4);
    if (macro == ".Ss") {
      section = line.substr(4);
      page.commands.insert(section);
    }
    if (macro != ".It" || !(words >> word)) continue;
    if (word == "Ic") page.keys[section].insert(line.substr(7));
    for (; word == "Fl" && words >> word; words >> word) {
      page.options[section].insert("-" + word);
      if (!(words >> word) || word != ",") break;
    }
  }
  return page;
}

// Returns the options that a built program's --help lists, or those of its command if one is named.
std::set<std::string> options_of(const std::string& program, const std::string& command = "") {
  const ToolResult help =
      run_tool(program, command.empty() ? std::vector<std::string>{"--help"}
                                        : std::vector<std::string>{command, "--help"});
  EXPECT_EQ(help.exit_code, 0) << program << " " << command << ": " << help.err;
  std::set<std::string> names;
  std::istringstream lines(help.out.substr(0, help.out.find("\nCommon options:")));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80u) << line;
    std::istringstream words(line);
    std::string word;
    if (!line.starts_with("  ") || !(words >> word) || word[0] != '-') continue;
    if (word.ends_with(',')) {
      names.insert(word.substr(0, word.size() - 1));
      words >> word;
    }
    names.insert(word.substr(0, word.find_first_of("[=")));
  }
  return names;
}

TEST(Man, GpushareHasTheCommandsAndOptionsOfItsHelp) {
  const ManPage page = read_page("tools/man/gpushare.1");
  std::set<std::string> commands;
  for (const Command& command : gpushare_program().commands) {
    commands.insert(command.name);
    const auto found = page.options.find(command.name);
    EXPECT_EQ(found == page.options.end() ? std::set<std::string>() : found->second,
              options_of("gpushare", command.name))
        << command.name;
    EXPECT_FALSE(command.examples.empty()) << command.name;
  }
  EXPECT_EQ(page.commands, commands);
  EXPECT_EQ(page.options.at("OPTIONS"), options_of("gpushare"));
}

TEST(Man, TheOtherProgramsHaveTheOptionsOfTheirHelp) {
  EXPECT_EQ(read_page("tools/man/gpushare-top.1").options.at("DESCRIPTION"),
            options_of("gpushare-top"));
  EXPECT_EQ(read_page("tools/man/gpushare-exporter.1").options.at("DESCRIPTION"),
            options_of("gpushare-exporter"));
  EXPECT_EQ(read_page("tools/man/gpushare-sim.1").options.at("DESCRIPTION"),
            options_of("gpushare-sim"));
  EXPECT_EQ(read_page("sched/man/gpushared.8").options.at("OPTIONS"), options_of("gpushared"));
}

// In `.Pq Ql a , b` groff puts one pair of quotes around all of it, and in `.Pq Ql a , Ql b` opens
// two and closes one.
TEST(Man, EachWordHasItsOwnQuotes) {
  for (const char* name : {"gpushare.1", "gpushare-top.1", "gpushare-sim.1", "gpushare-exporter.1",
                           "gpushare-device-plugin.1"}) {
    std::istringstream lines(TempDir::read(std::string("tools/man/") + name));
    for (std::string line; std::getline(lines, line);) {
      const size_t quoted = line.find("Ql ");
      if (!line.starts_with(".Pq ") || quoted == std::string::npos) continue;
      std::istringstream words(line.substr(quoted + 3));
      std::string word, more;
      words >> word;
      while (words >> more) EXPECT_LE(more.size(), 1u) << name << ": " << line;
      EXPECT_EQ(quoted, 4u) << name << ": " << line;
    }
  }
}

TEST(Man, TheSynopsisOfGpushareTopHasItsOptions) {
  const std::string page = TempDir::read("tools/man/gpushare-top.1");
  const std::string synopsis = page.substr(0, page.find(".Sh DESCRIPTION"));
  std::set<std::string> names;
  for (const std::string& name : options_of("gpushare-top")) {
    if (!name.starts_with("--")) names.insert("Fl " + name.substr(1));
  }
  for (const char* wanted : {"Fl -json", "Fl -wide"}) names.insert(wanted);
  names.erase("Fl 1");  // they stand together
  names.erase("Fl h");
  names.erase("Fl V");
  for (const std::string& name : names) EXPECT_TRUE(synopsis.contains(".Op " + name)) << name;
  EXPECT_TRUE(synopsis.contains(".Op Fl 1h"));
}

TEST(Man, GpushareTopHasTheKeysOfItsHelpScreen) {
  const ManPage page = read_page("tools/man/gpushare-top.1");
  std::set<std::string> keys;
  for (const KeyHelp& key : top_keys())
    keys.insert((key.keys.starts_with('?') ? "\\&" : "") + std::string(key.keys));
  EXPECT_EQ(page.keys.at("KEYS"), keys);
}

}  // namespace
}  // namespace gpushare
