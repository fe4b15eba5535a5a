// SPDX-License-Identifier: Apache-2.0
#include "shmctl/base/error.h"

namespace gpushare {

std::string Error::message() const {
  std::string text = step;
  if (!detail.empty()) text += ": " + detail;
  // A detail that explains bad input says all there is to say; the generic phrase would only blur
  // it.
  if (code && (detail.empty() || code != std::errc::invalid_argument))
    text += ": " + code.message();
  return text;
}

}  // namespace gpushare
