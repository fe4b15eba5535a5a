// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/libcuda/memory/ptx_entries.h"

#include <algorithm>
#include <cctype>

namespace gpushare::standin {
namespace {

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$';
}

// Returns the text without // and /* */ comments, which may contain anything.
std::string without_comments(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    if (rest.starts_with("//")) {
      i += std::min(rest.find('\n'), rest.size());
    } else if (rest.starts_with("/*")) {
      const size_t end = rest.find("*/");
      i += end == std::string_view::npos ? rest.size() : end + 2;
      result += ' ';
    } else {
      result += text[i++];
    }
  }
  return result;
}

}  // namespace

std::optional<std::vector<std::string>> ptx_entries(std::string_view text) {
  static constexpr std::string_view kEntry = ".entry";
  const std::string code = without_comments(text);
  const size_t first = code.find(kEntry);
  const std::string_view head = std::string_view(code).substr(0, first);
  if (!head.contains(".version") || !head.contains(".target")) return std::nullopt;

  std::vector<std::string> names;
  for (size_t at = first; at != std::string::npos; at = code.find(kEntry, at)) {
    at += kEntry.size();
    while (at < code.size() && std::isspace(static_cast<unsigned char>(code[at])) != 0) ++at;
    const size_t begin = at;
    while (at < code.size() && is_name_character(code[at])) ++at;
    if (at > begin) names.push_back(code.substr(begin, at - begin));
  }
  return names;
}

}  // namespace gpushare::standin
