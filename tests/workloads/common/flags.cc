// SPDX-License-Identifier: Apache-2.0
#include "tests/workloads/common/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace gpushare::workloads {

Flags::Flags(std::string_view program, std::string_view purpose, int argc, const char* const* argv)
    : program_{.name = std::string(program),
               .summary = std::string(purpose),
               .details = "The last line of output is one JSON object."},
      argc_(argc),
      argv_(argv) {}

void Flags::add(std::string_view name, Value value, std::string_view meaning) {
  Option option{std::string(name.substr(2)), 0, "TEXT", std::string(meaning)};
  if (auto* const* whole = std::get_if<uint64_t*>(&value)) {
    option.otherwise = fmt::format("{}", **whole);
    option.value = "N";
    option.range = Range{0, kNoLimit, true};
  } else if (auto* const* real = std::get_if<double*>(&value)) {
    option.otherwise = fmt::format("{}", **real);
    option.value = "X";
    option.range = Range{0, kNoLimit};
  } else if (auto* const* list = std::get_if<std::vector<uint64_t>*>(&value)) {
    option.otherwise = fmt::format("{}", fmt::join(**list, ","));
    option.value = "N,N...";
  } else {
    option.otherwise = *std::get<std::string*>(value);
  }
  program_.options.push_back(std::move(option));
  values_.push_back(value);
}

void Flags::limit(std::string_view name, double least, double most) {
  const auto option = std::ranges::find(program_.options, name.substr(2), &Option::name);
  option->range = Range{least, most, option->range.value().is_whole};
}

void Flags::parse() const {
  const auto given = parse_args(program_, argc_, argv_);
  if (!given) {
    fmt::print(given.error().code == kExitOk ? stdout : stderr, "{}", given.error().text);
    std::exit(given.error().code);
  }
  for (size_t i = 0; i < values_.size(); ++i)
    if (given->has(program_.options[i].name)) set(program_.options[i].name, values_[i], *given);
}

void Flags::parse(uint64_t* device) {
  add("--device", device, "CUDA device");
  parse();
}

void Flags::set(const std::string& name, const Value& value, const Invocation& given) const {
  if (auto* const* whole = std::get_if<uint64_t*>(&value)) {
    **whole = given.whole(name);
  } else if (auto* const* real = std::get_if<double*>(&value)) {
    **real = given.number(name);
  } else if (auto* const* text = std::get_if<std::string*>(&value)) {
    **text = given.text(name);
  } else {
    std::vector<uint64_t>& list = *std::get<std::vector<uint64_t>*>(value);
    const std::string words = given.text(name);
    list.clear();
    for (size_t begin = 0; begin <= words.size();) {
      const size_t end = std::min(words.find(',', begin), words.size());
      const auto [rest, error] =
          std::from_chars(words.data() + begin, words.data() + end, list.emplace_back());
      if (error != std::errc{} || rest != words.data() + end)
        fail(fmt::format("--{}: '{}' is not a list like 0,1", name, words));
      begin = end + 1;
    }
  }
}

void Flags::fail(std::string_view what) const {
  fmt::print(stderr, "{}: {}\n", program_.name, what);
  std::exit(kExitUsage);
}

}  // namespace gpushare::workloads
