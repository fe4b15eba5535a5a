// SPDX-License-Identifier: Apache-2.0
// KeepErrno: what the shim does between a program and the driver must not show in errno. Any
// thread.
#pragma once

#include <cerrno>

namespace gpushare::shim {

// Restores errno at its end.
class KeepErrno {
 public:
  KeepErrno() = default;
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  const int saved_ = errno;
};

}  // namespace gpushare::shim
