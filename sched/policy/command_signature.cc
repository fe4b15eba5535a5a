// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/command_signature.h"

#include <cstdint>
#include <cstdio>

namespace gpushare {
namespace {

// FNV-1a, of 64 bits.
constexpr uint64_t kStart = 0xCBF29CE484222325;

uint64_t with_word(uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return (hash ^ 0xFF) * 0x100000001B3;  // an end: "a" "bc" is not "ab" "c"
}

std::string_view file_name(std::string_view program) {
  program.remove_prefix(program.rfind('/') + 1);
  return program;
}

std::string digits(uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016lx", hash);
  return text;
}

// nullopt: there is no word.
std::optional<uint64_t> hash_of_line(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  std::optional<uint64_t> hash;
  for (;;) {
    const size_t begin = line.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return hash;
    line.remove_prefix(begin);
    const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
    hash = hash ? with_word(*hash, word) : with_word(kStart, file_name(word));
    line.remove_prefix(word.size());
  }
}

}  // namespace

std::string command_signature(std::span<const std::string> arguments) {
  uint64_t hash = kStart;
  for (size_t i = 0; i < arguments.size(); ++i)
    hash = with_word(hash, i == 0 ? file_name(arguments[i]) : std::string_view(arguments[i]));
  return digits(hash);
}

std::string command_signature(std::string_view line) {
  const auto hash = hash_of_line(line);
  return hash ? digits(*hash) : std::string();
}

std::string command_signature(std::string_view line, std::optional<uid_t> user) {
  const auto hash = hash_of_line(line);
  if (!hash) return {};
  return digits(with_word(*hash, user ? "user " + std::to_string(*user) : "user unknown"));
}

}  // namespace gpushare
