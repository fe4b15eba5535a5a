// SPDX-License-Identifier: Apache-2.0
// Reads the state of everything for the tools: from the control plane, which it maps read-only, or
// from the agent's socket if there is no control plane or no live agent behind it. It reconnects by
// itself: the next read() finds a new agent, a new region or a new socket. One thread.
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

  // What a dead agent left behind is a result too (see health). It fails when neither way works.
  Result<Status> read();
  // The same from the control plane alone: it asks nobody, and waits for nobody.
  Result<Status> read_plane();

 private:
  Result<Status> read_mapped();
  Result<Status> read_socket() const;

  Endpoints endpoints_;
  std::optional<ControlPlane> plane_;
};

}  // namespace gpushare
