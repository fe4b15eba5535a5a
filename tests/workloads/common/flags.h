// SPDX-License-Identifier: Apache-2.0
// Command lines of the workloads: every flag takes one value, and its default is what the variable
// holds when it is added. The rest is as in all our programs (shmctl/program/command_line.h); wrong
// use ends the program with status 2.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "shmctl/program/command_line.h"

namespace gpushare::workloads {

class Flags {
 public:
  // `purpose`: one sentence for --help.
  Flags(std::string_view program, std::string_view purpose);

  // After parse() the variable holds what was given. A list is of whole numbers, separated by
  // commas.
  using Value = std::variant<uint64_t*, double*, std::string*, std::vector<uint64_t>*>;
  void add(std::string_view name, Value value, std::string_view meaning);

  // Accepts "--name value" and "--name=value". Ends the program at --help (0) and at wrong use (2).
  void parse(int argc, char** argv) const;
  // Wrong use that only the program can see.
  [[noreturn]] void fail(std::string_view what) const;

 private:
  void set(const std::string& name, const Value& value, const Invocation& given) const;

  Command program_;
  std::vector<Value> values_;  // of program_.options
};

}  // namespace gpushare::workloads
