// SPDX-License-Identifier: Apache-2.0
// MpsHost: the outside world of mps_link: NVIDIA's MPS control daemon and its servers and clients,
// as processes. A seam, so that tests bring their own. Never blocks; one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "intercept/event.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"

namespace gpushare {

struct MpsDaemon {
  ProcessId process;
  std::string gpus;  // its CUDA_VISIBLE_DEVICES; empty: all
};

class MpsHost {
 public:
  virtual ~MpsHost() = default;

  virtual const std::string& pipe_directory() const = 0;
  // Is the daemon's program installed?
  virtual bool has_program() const = 0;
  // The one that holds our directory, whoever started it.
  virtual std::optional<MpsDaemon> daemon() = 0;

  // Runs the program: as a new daemon for these GPUs, or to send these commands, one a line, to the
  // one that is there. REQUIRES: no other run is under way. finished() tells how it went.
  virtual Result<> start(const std::string& gpus, bool has_all_users) = 0;
  virtual Result<> ask(const std::string& commands) = 0;
  // What it wrote; once. nullopt: nothing is under way, or it still runs. Error timed_out after
  // kPatience, io_error when it failed, with what it said.
  static constexpr Nanos kPatience{3'000'000'000};
  virtual std::optional<Result<std::string>> finished(Time now) = 0;

  // The CUDA_VISIBLE_DEVICES that it was started with; nullopt: it has none.
  virtual std::optional<std::string> visible(pid_t pid) = 0;
  // Who bears this pid; nullopt: nobody.
  virtual std::optional<ProcessId> bearer(pid_t pid) = 0;
  // Also before its parent is told.
  virtual bool has_ended(const ProcessId& process) = 0;
};

struct MpsPaths {
  std::string program = "nvidia-cuda-mps-control";  // a name is looked for in $PATH
  std::string pipe_directory, log_directory;
};

std::unique_ptr<MpsHost> make_mps_host(const MpsPaths& paths);

}  // namespace gpushare
