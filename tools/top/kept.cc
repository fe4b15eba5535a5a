// SPDX-License-Identifier: Apache-2.0
#include "tools/top/kept.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tools/base/atomic_file.h"

namespace gpushare {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStep = "settings of gpushare-top";
constexpr std::array<std::string_view, 3> kViews{"list", "tenants", "jobs"};

std::unexpected<Error> wrong(const std::string& detail) {
  return make_error(std::errc::invalid_argument, kStep, detail);
}

std::string name_of(Field field) {
  return lowered(kFields[static_cast<size_t>(field)].column.title);
}

}  // namespace

Result<TopChoices> parse_choices(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return wrong("this is no JSON object");
  TopChoices choices;
  for (const auto& [key, value] : json.items()) {
    const std::string word = value.is_string() ? value.get<std::string>() : "";
    if (key == "sort") {
      const auto field = sort_field_named(word);
      if (!field) return wrong(fmt::format("sort is one of {}", sort_field_names()));
      choices.sort = *field;
    } else if (key == "view") {
      const auto view = std::ranges::find(kViews, word);
      if (view == kViews.end()) return wrong("view is list, tenants or jobs");
      choices.grouping = static_cast<Grouping>(view - kViews.begin());
    } else if (key == "reversed" || key == "graphs") {
      if (!value.is_boolean()) return wrong(key + " is true or false");
      (key == "graphs" ? choices.has_graphs : choices.is_reversed) = value.get<bool>();
    } else {
      return wrong(fmt::format("there is no '{}'; sort, reversed, view, graphs", printable(key)));
    }
  }
  return choices;
}

std::string choices_text(const TopChoices& choices) {
  return fmt::format(
      "{{\n  \"sort\": \"{}\",\n  \"reversed\": {},\n  \"view\": \"{}\",\n  \"graphs\": {}\n}}\n",
      name_of(choices.sort), choices.is_reversed, kViews[static_cast<size_t>(choices.grouping)],
      choices.has_graphs);
}

std::string choices_path() {
  const auto variable = [](const char* name) -> std::string {
    const char* const value = std::getenv(name);
    return value == nullptr || *value != '/' ? "" : value;
  };
  const std::string given = variable("XDG_CONFIG_HOME"), home = variable("HOME");
  if (given.empty() && home.empty()) return "";
  struct stat owner{};
  if (given.empty() && (::stat(home.c_str(), &owner) != 0 || owner.st_uid != ::geteuid()))
    return "";
  return (given.empty() ? home + "/.config" : given) + "/gpushare/top.json";
}

Result<TopChoices> read_choices(const std::string& path) {
  std::error_code ignored;
  if (path.empty() || !fs::exists(path, ignored)) return TopChoices{};
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file.is_open() || file.bad())
    return make_error(std::errc::io_error, kStep, path + " cannot be read");
  auto choices = parse_choices(text);
  if (!choices) choices.error().detail = path + ": " + choices.error().detail;
  return choices;
}

Result<> write_choices(const std::string& path, const TopChoices& choices) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) return std::unexpected(Error{error, kStep, path});
  return write_whole_file(path, choices_text(choices));
}

}  // namespace gpushare
