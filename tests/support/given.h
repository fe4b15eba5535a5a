// SPDX-License-Identifier: Apache-2.0
// Numbers by which whoever runs a test makes it longer, or the same once more: how often, how long,
// and the seed of random numbers.
#pragma once

#include <cstdlib>

namespace gpushare::test {

// The number in this variable of the environment, or `usual` where there is no such variable. What
// is no number is 0.
inline int number_given(const char* variable, int usual) {
  const char* text = std::getenv(variable);
  return text == nullptr ? usual : std::atoi(text);
}

}  // namespace gpushare::test
