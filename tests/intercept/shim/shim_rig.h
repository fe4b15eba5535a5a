// SPDX-License-Identifier: Apache-2.0
// An agent's end of the shim's socket with a thread that serves and beats, and programs that run
// with the shim preloaded. The test's thread uses all of it; one lock keeps the serving thread
// away.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "shmctl/shim/host.h"

namespace gpushare::test {

// The build folder; this program lies in bin/tests/ of it.
std::string build_folder();

struct Outcome {
  int status = -1;  // exit status, or -signal
  std::string out, err;
};

class Program {
 public:
  // The program gets `environment` and nothing else.
  Program(const std::vector<std::string>& command, const std::vector<std::string>& environment);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  bool has_ended();
  Outcome wait();
  Outcome succeed();  // as wait(); the exit status must be 0

 private:
  std::string out_path_, err_path_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool is_reaped_ = false;
};

class ShimRig {
 public:
  // What every process that asks is told.
  explicit ShimRig(uint32_t features, std::vector<ShimRequest::Gpu> gpus = {});
  ~ShimRig();

  // The directory of the MPS server whose clients the programs are to be; set before they start.
  std::string mps_pipe;

  const std::string& socket() const { return socket_; }
  std::vector<std::string> environment() const;
  // bin/tests/NAME below the build folder, with the shim.
  Outcome run(const std::string& name, const std::vector<std::string>& arguments);
  Outcome succeed(const std::string& name, const std::vector<std::string>& arguments);
  std::unique_ptr<Program> start(const std::string& name,
                                 const std::vector<std::string>& arguments);

  // The agent dies: it beats no more, and nothing listens on its socket.
  void die();
  void come_back();
  // The agent hangs: it beats no more, and a process that connects gets no answer.
  void hang();
  void go_on();
  // Some process has connected while it hangs.
  bool is_asked_in_vain();

  // Launches that were counted, by process, also of processes that have ended.
  std::map<ProcessId, uint64_t> launches();
  uint64_t launches_of_all();
  // Waits, at most ten seconds, until there are more than so many.
  bool launches_beyond(uint64_t count);
  // False: the process has no slot.
  bool with_slot(pid_t pid, const std::function<void(ShimSlot&)>& use);
  void with_all_slots(const std::function<void(ShimSlot&)>& use);
  // Waits, at most ten seconds.
  static bool eventually(const std::function<bool()>& is_so);

 private:
  void serve();
  void note_launches();

  const uint32_t features_;
  const std::vector<ShimRequest::Gpu> gpus_;
  std::string folder_, socket_;
  std::mutex mutex_;  // protects what follows
  std::unique_ptr<ShimHost> host_;
  std::unique_ptr<ShimHost>
      dead_;  // an agent that died or hangs: its pages stay, and no beat comes
  // By process; the host itself forgets slots of processes that end or call exec().
  std::map<ProcessId, uint64_t> launches_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace gpushare::test
