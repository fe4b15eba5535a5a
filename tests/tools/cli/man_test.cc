// SPDX-License-Identifier: Apache-2.0
// The man pages and --help say the same: every command, option and key stands in both.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "tests/tools/support/temp_dir.h"
#include "tools/cli/command_line.h"
#include "tools/top/command_line.h"

namespace gpushare {
namespace {

// Of mdoc source: the options and keys that its lists tag, by the section they are in.
struct ManPage {
  std::map<std::string, std::set<std::string>> options;  // "--tenant", "-t"
  std::map<std::string, std::set<std::string>> keys;
  std::set<std::string> commands;  // subsections of COMMANDS
};

ManPage read_page(const std::string& name) {
  ManPage page;
  const std::string text = TempDir::read("tools/man/" + name);
  EXPECT_FALSE(text.empty()) << "tools/man/" << name << ": run the tests in the source folder";
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

std::set<std::string> names_of(const std::vector<OptionSpec>& options) {
  std::set<std::string> names;
  for (const OptionSpec& option : options) {
    names.insert("--" + std::string(option.name));
    if (option.letter != 0) names.insert(std::string{'-', option.letter});
  }
  return names;
}

TEST(Man, GpushareHasTheCommandsAndOptionsOfItsHelp) {
  const ManPage page = read_page("gpushare.1");
  std::set<std::string> commands;
  for (const CommandSpec& command : gpushare_spec().commands) {
    commands.insert(std::string(command.name));
    const auto found = page.options.find(std::string(command.name));
    EXPECT_EQ(found == page.options.end() ? std::set<std::string>() : found->second,
              names_of(command.options))
        << command.name;
  }
  EXPECT_EQ(page.commands, commands);
  std::set<std::string> common = names_of(gpushare_spec().options);
  common.insert({"-h", "--help"});
  EXPECT_EQ(page.options.at("OPTIONS"), common);
}

TEST(Man, GpushareTopHasTheOptionsAndKeysOfItsHelp) {
  const ManPage page = read_page("gpushare-top.1");
  std::set<std::string> options = names_of(top_spec().options);
  options.insert({"-h", "--help"});
  EXPECT_EQ(page.options.at("DESCRIPTION"), options);
  std::set<std::string> keys;
  for (const KeyHelp& key : top_keys())
    keys.insert(key.keys == "?" ? "\\&?" : std::string(key.keys));
  EXPECT_EQ(page.keys.at("KEYS"), keys);
}

}  // namespace
}  // namespace gpushare
