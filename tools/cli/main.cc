// SPDX-License-Identifier: Apache-2.0
// gpushare: the command line of the project.
#include "tools/cli/commands.h"

int main(int argc, char** argv) {
  return gpushare::run_program(gpushare::gpushare_program(), argc, argv);
}
