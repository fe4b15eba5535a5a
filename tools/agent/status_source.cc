// SPDX-License-Identifier: Apache-2.0
#include "tools/agent/status_source.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "shmctl/base/proc_stat.h"
#include "tools/agent/client.h"

namespace gpushare {
namespace {

// Copies what /proc says of a process into a field; nothing, where it shows nothing to this user.
template <std::size_t N>
void fill(char (&field)[N], int32_t pid, const char* file) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/" + file, std::ios::binary);
  std::string text(N - 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  while (!text.empty() && (text.back() == '\0' || text.back() == '\n')) text.pop_back();
  std::ranges::replace(text, '\0', ' ');
  *std::ranges::copy(text, field).out = '\0';
}

// The control plane has no commands where /proc hides processes: the kernel decides who sees them.
void name_program(ProcessRecord& process) {
  if (process.command[0] != '\0' || process.command_line[0] != '\0') return;
  const auto stat = read_proc_stat(process.pid);
  if (!stat || stat->start_ticks != process.start_ticks) return;
  fill(process.command, process.pid, "comm");
  fill(process.command_line, process.pid, "cmdline");
}

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
  const bool was_open = plane_.has_value();
  auto status = read_mapped();
  if (!was_open || (status && status->health.is_live())) return status;
  plane_.reset();  // the name may stand for another region by now
  return read_mapped();
}

Result<Status> StatusSource::read_mapped() {
  if (endpoints_.region.empty())
    return make_error(std::errc::invalid_argument, "open control plane",
                      "--socket was given and no --region: give both");
  if (!plane_) {
    auto plane = ControlPlane::open_read_only(endpoints_.region);
    if (!plane) return std::unexpected(plane.error());
    plane_ = std::move(*plane);
  }
  auto snapshot = take_snapshot(*plane_);
  if (!snapshot) return std::unexpected(snapshot.error());
  for (auto& numbered : snapshot->processes) name_program(numbered.record);
  return judged(std::move(*snapshot), false);
}

Result<Status> StatusSource::read_socket() const {
  auto snapshot = ask_status(endpoints_.socket);
  if (!snapshot) return std::unexpected(snapshot.error());
  return judged(std::move(*snapshot), true);
}

Result<Status> StatusSource::read() {
  if (endpoints_.region.empty()) return read_socket();
  auto mapped = read_plane();
  if (mapped && mapped->health.is_live()) return mapped;
  plane_.reset();
  if (endpoints_.socket.empty()) return mapped;
  // A stuck agent would not answer either.
  if (mapped && mapped->health.state == AgentHealth::State::kStale) return mapped;
  auto asked = read_socket();
  if (asked) return asked;
  if (mapped) return mapped;
  Error error = asked.error();
  // Before the agent's first start there is none: who reads that no agent runs need not read it.
  if (mapped.error().code == std::errc::no_such_file_or_directory)
    return std::unexpected(std::move(error));
  error.detail += "; and no control plane: " + mapped.error().message();
  return std::unexpected(std::move(error));
}

}  // namespace gpushare
