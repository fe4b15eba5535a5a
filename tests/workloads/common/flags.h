// SPDX-License-Identifier: Apache-2.0
// Command lines of the workloads: every flag takes one value, --help lists all with their defaults.
// Wrong use prints what would be right to standard error and ends the program with status 2.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace gpushare::workloads {

class Flags {
 public:
  // `purpose`: one sentence for --help.
  Flags(std::string_view program, std::string_view purpose);

  // `*value` holds the default now and what was given after parse().
  void add(std::string_view name, uint64_t* value, std::string_view meaning);
  void add(std::string_view name, double* value, std::string_view meaning);
  void add(std::string_view name, std::string* value, std::string_view meaning);
  // Whole numbers, separated by commas.
  void add(std::string_view name, std::vector<uint64_t>* value, std::string_view meaning);

  // Accepts "--name value" and "--name=value". Ends the program at --help (0) and at wrong use (2).
  void parse(int argc, char** argv) const;
  // Wrong use that only the program can see.
  [[noreturn]] void fail(std::string_view what) const;

 private:
  struct Flag {
    std::string name;
    std::variant<uint64_t*, double*, std::string*, std::vector<uint64_t>*> value;
    std::string meaning;
  };

  [[noreturn]] void print_help() const;
  void set(const Flag& flag, const std::string& text) const;

  const std::string program_;
  const std::string purpose_;
  std::vector<Flag> flags_;
};

}  // namespace gpushare::workloads
