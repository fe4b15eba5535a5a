// SPDX-License-Identifier: Apache-2.0
#include "tests/workloads/common/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace gpushare::workloads {
namespace {

template <class Number>
std::optional<Number> parse_number(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || rest != end || text.empty()) return std::nullopt;
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(number) || number < 0) return std::nullopt;
  }
  return number;
}

std::optional<std::vector<uint64_t>> parse_list(const std::string& text) {
  std::vector<uint64_t> numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto number = parse_number<uint64_t>(text.substr(begin, end - begin));
    if (!number) return std::nullopt;
    numbers.push_back(*number);
    begin = end + 1;
  }
  return numbers;
}

std::string text_of(const auto& value) { return fmt::format("{}", value); }
std::string text_of(const std::vector<uint64_t>& list) {
  return fmt::format("{}", fmt::join(list, ","));
}

}  // namespace

Flags::Flags(std::string_view program, std::string_view purpose)
    : program_(program), purpose_(purpose) {}

void Flags::add(std::string_view name, uint64_t* value, std::string_view meaning) {
  flags_.push_back({std::string(name), value, std::string(meaning)});
}
void Flags::add(std::string_view name, double* value, std::string_view meaning) {
  flags_.push_back({std::string(name), value, std::string(meaning)});
}
void Flags::add(std::string_view name, std::string* value, std::string_view meaning) {
  flags_.push_back({std::string(name), value, std::string(meaning)});
}
void Flags::add(std::string_view name, std::vector<uint64_t>* value, std::string_view meaning) {
  flags_.push_back({std::string(name), value, std::string(meaning)});
}

void Flags::parse(int argc, char** argv) const {
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--help" || name == "-h") print_help();
    std::optional<std::string> value;
    if (const size_t equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    const Flag* known = nullptr;
    for (const Flag& flag : flags_)
      if (flag.name == name) known = &flag;
    if (known == nullptr) fail(fmt::format("unknown argument '{}'; --help lists them", name));
    if (!value && i + 1 < argc) value = argv[++i];
    if (!value) fail(fmt::format("{} needs a value", name));
    set(*known, *value);
  }
}

void Flags::parse(int argc, char** argv, uint64_t* device) {
  add("--device", device, "CUDA device");
  parse(argc, argv);
}

void Flags::set(const Flag& flag, const std::string& text) const {
  if (auto* const* whole = std::get_if<uint64_t*>(&flag.value)) {
    const auto number = parse_number<uint64_t>(text);
    if (!number) fail(fmt::format("{}: '{}' is not a whole number from 0", flag.name, text));
    **whole = *number;
  } else if (auto* const* real = std::get_if<double*>(&flag.value)) {
    const auto number = parse_number<double>(text);
    if (!number) fail(fmt::format("{}: '{}' is not a number from 0", flag.name, text));
    **real = *number;
  } else if (auto* const* list = std::get_if<std::vector<uint64_t>*>(&flag.value)) {
    const auto numbers = parse_list(text);
    if (!numbers) fail(fmt::format("{}: '{}' is not a list like 0,1", flag.name, text));
    **list = *numbers;
  } else {
    *std::get<std::string*>(flag.value) = text;
  }
}

void Flags::print_help() const {
  fmt::print("{}: {}\n\n", program_, purpose_);
  for (const Flag& flag : flags_) {
    const std::string value =
        std::visit([](auto* current) { return text_of(*current); }, flag.value);
    fmt::print("  {:<18} {} ({})\n", flag.name, flag.meaning, value.empty() ? "none" : value);
  }
  fmt::print(
      "\nThe last line of output is one JSON object. Status 0 done, 1 failed, 2 wrong use.\n");
  std::exit(0);
}

void Flags::fail(std::string_view what) const {
  fmt::print(stderr, "{}: {}\n", program_, what);
  std::exit(2);
}

}  // namespace gpushare::workloads
