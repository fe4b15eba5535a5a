// SPDX-License-Identifier: Apache-2.0
#include "shmctl/base/error.h"

namespace gpushare {

std::string Error::message() const {
  std::string text = step;
  if (!detail.empty()) text += ": " + detail;
  // A detail that explains bad input says everything; the generic phrase would add nothing.
  if (code && (detail.empty() || code != std::errc::invalid_argument))
    text += ": " + code.message();
  return text;
}

}  // namespace gpushare
