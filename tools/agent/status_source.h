// SPDX-License-Identifier: Apache-2.0
// Where the tools get the state of everything: from the control plane, mapped read-only, and where
// that cannot be had or has no live agent, from the agent's socket. Reconnects by itself: a new
// agent, a new region or a new socket is found by the next read(). One thread.
#pragma once

#include <optional>

#include "shmctl/plane/snapshot.h"
#include "tools/agent/agent_health.h"
#include "tools/base/endpoints.h"

namespace gpushare {

struct Status {
  PlaneSnapshot snapshot;
  AgentHealth health;
  Time taken{};
  bool is_from_socket = false;
};

class StatusSource {
 public:
  explicit StatusSource(Endpoints endpoints) : endpoints_(std::move(endpoints)) {}

  // What a dead agent left behind is a result too (see health). Error: neither way works.
  Result<Status> read();

 private:
  Result<Status> read_plane();
  Result<Status> read_socket() const;

  Endpoints endpoints_;
  std::optional<ControlPlane> plane_;
};

}  // namespace gpushare
