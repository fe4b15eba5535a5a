// SPDX-License-Identifier: Apache-2.0
// A region under a name that only this test process has, which is removed before and after the
// test.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "shmctl/plane/region.h"

namespace gpushare {

class TempName {
 public:
  TempName() : name_(fmt::format("/gpushare-test-{}", ::getpid())) { clean(); }
  ~TempName() { clean(); }
  TempName(const TempName&) = delete;
  TempName& operator=(const TempName&) = delete;

  const std::string& name() const { return name_; }
  std::string path() const { return "/dev/shm" + name_; }

 private:
  void clean() { EXPECT_TRUE(ControlPlane::remove(name_)); }

  std::string name_;
};

// An empty region, mapped shared: a forked child writes the same one.
class TempPlane {
 public:
  TempPlane() : plane_(ControlPlane::create(name_.name())) {
    if (!plane_) ADD_FAILURE() << plane_.error().message();
  }
  ControlPlane& plane() { return *plane_; }
  Region& region() { return plane_->region(); }
  const std::string& name() const { return name_.name(); }

 private:
  TempName name_;
  Result<ControlPlane> plane_;
};

}  // namespace gpushare
