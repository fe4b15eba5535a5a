// SPDX-License-Identifier: Apache-2.0
#include "tools/report/moment.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <ctime>
#include <optional>
#include <string>
#include <utility>

namespace gpushare {
namespace {

// The longest time that is taken, 100 years: no sum overflows.
constexpr WallSeconds kLongest = WallSeconds{36'525} * 86'400;

std::optional<WallSeconds> whole(std::string_view text) {
  WallSeconds value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc{} || rest != end || value < 0 || value > kLongest) return std::nullopt;
  return value;
}

std::optional<WallSeconds> ago(std::string_view text) {
  constexpr std::array<std::pair<char, WallSeconds>, 5> kUnits = {
      {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86'400}, {'w', 604'800}}};
  for (const auto& [unit, seconds] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const auto count = whole(text.substr(0, text.size() - 1));
    if (count && *count * seconds <= kLongest) return *count * seconds;
  }
  return std::nullopt;
}

std::optional<WallSeconds> date(const std::string& text) {
  for (const char* form :
       {"%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d"}) {
    std::tm parts{};
    parts.tm_isdst = -1;
    const char* const end = ::strptime(text.c_str(), form, &parts);
    if (end != nullptr && *end == '\0') return std::mktime(&parts);
  }
  return std::nullopt;
}

}  // namespace

Result<WallSeconds> parse_moment(std::string_view text, WallSeconds now) {
  if (text == "now") return now;
  if (const auto seconds = ago(text)) return now - *seconds;
  if (text.starts_with('@'))
    if (const auto seconds = whole(text.substr(1))) return *seconds;
  if (const auto seconds = date(std::string(text))) return *seconds;
  return make_error(std::errc::invalid_argument, "read a moment",
                    fmt::format("'{}' is no moment; allowed: {}", text, kMomentForms));
}

}  // namespace gpushare
