// SPDX-License-Identifier: Apache-2.0
// What we do between a program and the driver must not show in errno.
#pragma once

#include <cerrno>

namespace gpushare::shim {

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
