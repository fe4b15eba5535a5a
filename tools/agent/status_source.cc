// SPDX-License-Identifier: Apache-2.0
#include "tools/agent/status_source.h"

#include "tools/agent/client.h"

namespace gpushare {
namespace {

Status judged(PlaneSnapshot snapshot, bool is_from_socket) {
  Status status{.snapshot = std::move(snapshot),
                .health = {},
                .taken = MonotonicClock().now(),
                .is_from_socket = is_from_socket};
  const AgentRecord& agent = status.snapshot.agent;
  status.health =
      judge_agent(agent, status.taken, is_process_there(agent.agent_pid), status.snapshot.ending);
  return status;
}

}  // namespace

Result<Status> StatusSource::read_plane() {
  if (!plane_) {
    auto plane = ControlPlane::open_read_only(endpoints_.region);
    if (!plane) return std::unexpected(plane.error());
    plane_ = std::move(*plane);
  }
  auto snapshot = take_snapshot(*plane_);
  if (!snapshot) return std::unexpected(snapshot.error());
  return judged(std::move(*snapshot), false);
}

Result<Status> StatusSource::read_socket() const {
  auto snapshot = ask_status(endpoints_.socket);
  if (!snapshot) return std::unexpected(snapshot.error());
  return judged(std::move(*snapshot), true);
}

Result<Status> StatusSource::read() {
  auto mapped = read_plane();
  if (mapped && mapped->health.is_live()) return mapped;
  plane_.reset();  // the name may stand for another region by now
  // A stuck agent would not answer either.
  if (mapped && mapped->health.state == AgentHealth::State::kStale) return mapped;
  auto asked = read_socket();
  if (asked) return asked;
  if (mapped) return mapped;
  Error error = asked.error();
  error.detail += "; and no control plane: " + mapped.error().message();
  return std::unexpected(std::move(error));
}

}  // namespace gpushare
