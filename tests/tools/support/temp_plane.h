// SPDX-License-Identifier: Apache-2.0
// What the tests start the built programs against: an agent that agrees to everything, and a
// control plane.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "shmctl/plane/region.h"
#include "tests/tools/support/fake_agent.h"
#include "tests/tools/support/fake_plane.h"

namespace gpushare {

inline std::vector<std::string> answer_ok(const std::string&) { return {R"({"ok":true})"}; }

// This control plane was written just now.
class TempPlane {
 public:
  // `change` is made to the state before it is written.
  explicit TempPlane(Nanos age = {}, bool has_jobs = false,
                     const std::function<void(PlaneSnapshot&)>& change = nullptr)
      : name_("/gpushare-tools-test-" + std::to_string(::getpid())) {
    auto plane = ControlPlane::create(name_);
    if (!plane) {
      ADD_FAILURE() << plane.error().message();
      return;
    }
    const FakePlane fake{.gpus = 1, .processes = 7, .agent_pid = 1, .has_jobs = has_jobs};
    PlaneSnapshot snapshot = fake_snapshot(fake, MonotonicClock().now() - age);
    // However late a tool reads it on a busy machine, its agent lives.
    constexpr Nanos kLong = std::chrono::hours(1);
    if (age == Nanos{}) snapshot.agent.published_ns += static_cast<uint64_t>(kLong.count());
    if (change) change(snapshot);
    write_plane(plane->region(), snapshot);
  }
  ~TempPlane() { EXPECT_TRUE(ControlPlane::remove(name_)); }
  TempPlane(const TempPlane&) = delete;
  TempPlane& operator=(const TempPlane&) = delete;

  std::string variable() const { return "GPUSHARE_REGION=" + name_; }

 private:
  std::string name_;
};

inline std::string socket_variable(const FakeAgent& agent) {
  return "GPUSHARE_SOCKET=" + agent.socket();
}

}  // namespace gpushare
