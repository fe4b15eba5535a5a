// SPDX-License-Identifier: Apache-2.0
// gpushare: the command line of the project.
#include <vector>

#include "tools/cli/commands.h"

int main(int argc, char** argv) {
  const gpushare::Command& program = gpushare::gpushare_program();
  const std::vector<const char*> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (const auto wrong = gpushare::misplaced_words(program, words))
    return gpushare::Invocation{.program = &program, .command = &program}.wrong(*wrong);
  return gpushare::run_program(program, argc, argv);
}
