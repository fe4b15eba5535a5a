// SPDX-License-Identifier: Apache-2.0
// MpsHost: what MpsLink sees of the outside: NVIDIA's MPS control daemon, its servers and their
// clients, as processes. It is a seam, so that tests bring their own. Called on the agent's thread;
// it never blocks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "intercept/event.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

using namespace std::chrono_literals;

struct MpsDaemon {
  ProcessId process;
  std::string gpus;  // its CUDA_VISIBLE_DEVICES; empty: all GPUs
};

class MpsHost {
 public:
  virtual ~MpsHost() = default;

  virtual const std::string& pipe_directory() const = 0;
  // Returns true if the daemon's program is installed.
  virtual bool has_program() const = 0;
  // The daemon whose pipes are in pipe_directory(), whichever process started it; nullopt: none.
  virtual std::optional<MpsDaemon> daemon() = 0;

  // Run the program: as a new daemon for `gpus` (see MpsDaemon), for the processes of all users or
  // of one at a time, or to send `commands`, one per line, to the daemon that runs. REQUIRES: no
  // run is under way. finished() tells how the run went. Errors: the run could not be started.
  virtual Result<> start(const std::string& gpus, bool has_all_users) = 0;
  virtual Result<> ask(const std::string& commands) = 0;
  // What the program wrote; once. nullopt: no run is under way, or it goes on. Errors: timed_out
  // after kPatience; io_error when the program failed, with what it wrote.
  static constexpr Nanos kPatience = 3s;
  virtual std::optional<Result<std::string>> finished(Time now) = 0;

  // The CUDA_VISIBLE_DEVICES that a process was started with; nullopt: it has no such variable.
  virtual std::optional<std::string> visible(pid_t pid) = 0;
  // The process that has this pid now; nullopt: none.
  virtual std::optional<ProcessId> bearer(pid_t pid) = 0;
  // Returns true if the process has ended, also while its parent has not reaped it yet.
  virtual bool has_ended(const ProcessId& process) = 0;

  // Duplicates what the process has open of the driver's memory manager, at most kMostFiles.
  // Errors: no_such_process when it has ended; operation_not_permitted.
  static constexpr std::size_t kMostFiles = 8;  // CUDA has two (H200, driver 580.159.04)
  virtual Result<std::vector<Fd>> copy_memory_files(const ProcessId& process) = 0;
  // Closes them on another thread: the driver may take seconds.
  virtual void close_aside(std::vector<Fd> files) = 0;
};

struct MpsPaths {
  std::string program = "nvidia-cuda-mps-control";  // a path, or a name that is looked for in $PATH
  std::string pipe_directory, log_directory;
  std::string memory_manager = "/dev/nvidia-uvm";
};

// The machine's.
std::unique_ptr<MpsHost> make_mps_host(const MpsPaths& paths);

}  // namespace gpushare
