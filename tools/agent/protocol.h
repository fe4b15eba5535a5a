// SPDX-License-Identifier: Apache-2.0
// Encodes requests to the control socket and decodes its answers; sched/README.md documents both.
// Pure, and defined for any bytes. An answer {"ok":false} becomes an Error whose detail is the
// agent's own text. Its code is invalid_argument when the agent says that the request was wrong,
// permission_denied when this user may not make it, and none otherwise.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/plane/snapshot.h"
#include "shmctl/program/finding.h"

namespace gpushare {

struct Request {
  std::string op{};
  std::optional<pid_t> pid{};
  std::optional<uint64_t>
      start_ticks{};     // of the process meant, beside `pid`; none: whoever has it
  std::string tenant{};  // empty: left out
  std::string cgroup{};  // of `attach`, in place of pid; empty: left out
  std::vector<std::pair<std::string, std::string>> settings{};
  std::optional<bool> create{};
  std::optional<double> seconds{};
  bool is_scope = false;
  std::string gpu{};                   // of `place`: "auto" or an index; empty: left out
  std::vector<std::string> command{};  // of `place`; empty: left out
};
std::string encode(const Request& request);  // one line with its newline

struct Hello {
  std::string version{};
  std::string commit{};
  pid_t pid = 0;
  std::string region{};
  bool is_admin = false;
};

// What `trace` streams.
struct TraceStart {
  uint64_t start_ns = 0;
};
struct TraceSwitch {
  uint64_t t_ns = 0;
  uint32_t gpu = 0;
  pid_t pid = 0;
  bool is_start = false;
};
struct TraceAction {
  enum class Kind { kFreeze, kThaw, kSlice };
  uint64_t t_ns = 0;
  Kind kind = Kind::kFreeze;
  uint32_t gpu = 0;
  pid_t pid = 0;
  uint32_t slice_us = 0;  // of kSlice
  std::string reason{};   // of kFreeze: "cap", "turn", "user"
};
struct TraceTurn {  // of a job, where a policy orders jobs
  uint64_t t_ns = 0;
  uint32_t gpu = 0;
  pid_t pid = 0;    // of its first process
  std::string job;  // "run-4711"
  bool is_start = false;
};
struct TraceEnd {
  uint64_t lost = 0;  // records that the agent or the driver dropped
};
using TraceLine = std::variant<TraceStart, TraceSwitch, TraceAction, TraceTurn, TraceEnd>;

// What `run` answers.
struct Joined {
  // False: what gives its children away, as a daemon does, leaves the tenant.
  bool follows_forks = false;
  // The policy of a GPU orders jobs.
  bool orders_jobs = false;
};

// What `place` answers.
struct Placed {
  std::optional<uint32_t> gpu{};  // none: it fits nowhere now
  std::string uuid{};             // of the GPU
  std::string reason{};
  Nanos ask_again{};  // after so long, where it fits nowhere
};

Result<> decode_done(std::string_view line);
Result<bool> decode_on_gpu(std::string_view line);
Result<Joined> decode_joined(std::string_view line);
Result<Placed> decode_placed(std::string_view line);
Result<Hello> decode_hello(std::string_view line);
Result<PlaneSnapshot> decode_status(std::string_view line);
Result<std::vector<Finding>> decode_doctor(std::string_view line);
Result<TraceLine> decode_trace(std::string_view line);

// For output.
std::string json_quoted(
    std::string_view text);  // a JSON string; bytes that are not UTF-8 are replaced
std::string findings_json(const std::vector<Finding>& findings);  // a list

}  // namespace gpushare
