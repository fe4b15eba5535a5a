// SPDX-License-Identifier: Apache-2.0
// An agent's end of the shim's socket with a thread that serves and beats, and programs that run
// with the shim preloaded.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "shmctl/program/temp_folder.h"
#include "shmctl/shim/host.h"
#include "tests/support/started.h"

namespace gpushare::test {

class ShimRig {
 public:
  // What every process that asks is told.
  explicit ShimRig(uint32_t features, std::vector<ShimWish::Gpu> gpus = {});
  ~ShimRig();

  // The MPS server that processes are told of; set before they start.
  std::string mps_pipe;

  const std::string& socket() const { return socket_; }
  std::vector<std::string> environment() const;
  // bin/tests/NAME below the build folder, with the shim.
  Outcome run(const std::string& name, const std::vector<std::string>& arguments);
  std::unique_ptr<Child> start(const std::string& name, const std::vector<std::string>& arguments);

  // The agent is gone, without a word: no more beats, nobody listens.
  void die();
  void come_back();
  // The agent hangs: no more beats, and who connects gets no answer. And goes on.
  void hang();
  void go_on();
  // Somebody has asked it meanwhile.
  bool is_asked_in_vain();

  // Launches that have been counted, by process, also of those that have ended.
  std::map<ProcessId, uint64_t> launches();
  uint64_t launches_of_all();
  // False: the process has no slot.
  bool with_slot(pid_t pid, const std::function<void(ShimSlot&)>& use);
  void with_all_slots(const std::function<void(ShimSlot&)>& use);

 private:
  void serve();
  void note_launches();

  const uint32_t features_;
  const std::vector<ShimWish::Gpu> gpus_;
  const TempFolder folder_;
  const std::string socket_;
  std::mutex mutex_;  // protects what follows
  std::unique_ptr<ShimHost> host_;
  std::unique_ptr<ShimHost> dead_;  // or it hangs: its pages stay, nobody beats
  // A slot for each that was given; the host forgets those of the dead and of exec().
  std::map<ProcessId, uint64_t> launches_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace gpushare::test
