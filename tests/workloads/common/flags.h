// SPDX-License-Identifier: Apache-2.0
// Flags: the command line of a workload, which its main thread reads. Every flag takes one value,
// and its default is what the variable holds when it is added. The rest is as in all our programs
// (shmctl/program/command_line.h); wrong use ends the program with status 2.
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
  // `purpose` is one sentence for --help. The words of the command line are kept by reference.
  Flags(std::string_view program, std::string_view purpose, int argc, const char* const* argv);

  // `*value` holds the default now, and after parse() what the command line gives. A list is of
  // whole numbers, separated by commas.
  using Value = std::variant<uint64_t*, double*, std::string*, std::vector<uint64_t>*>;
  void add(std::string_view name, Value value, std::string_view meaning);
  // Several flags: a name, a value and a meaning for each.
  template <class... Rest>
    requires(sizeof...(Rest) > 0)
  void add(std::string_view name, Value value, std::string_view meaning, const Rest&... rest) {
    add(name, value, meaning);
    add(rest...);
  }

  // The numbers that an added flag takes, both ends included. Other numbers are wrong use, and
  // --help shows these.
  void limit(std::string_view name, double least, double most = kNoLimit);

  // Accepts "--name value" and "--name=value". Ends the program at --help (0) and at wrong use (2).
  void parse() const;
  // The same after the flag --device, which nearly every workload has last.
  void parse(uint64_t* device);
  // Ends the program for wrong use that only it can see.
  [[noreturn]] void fail(std::string_view what) const;

 private:
  void set(const std::string& name, const Value& value, const Invocation& given) const;

  Command program_;
  int argc_;
  const char* const* argv_;
  std::vector<Value> values_;  // of program_.options
};

}  // namespace gpushare::workloads

// A workload's main(): it has Settings, which are made of Flags, and a run() that takes them and
// returns the exit status.
#define GS_WORKLOAD_MAIN(name, purpose)                                    \
  int main(int argc, char** argv) {                                        \
    gpushare::workloads::set_program_name(name);                           \
    gpushare::workloads::Flags flags(name, purpose, argc, argv);           \
    return gpushare::workloads::run(gpushare::workloads::Settings(flags)); \
  }
