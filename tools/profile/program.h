// SPDX-License-Identifier: Apache-2.0
// ProfiledProgram: one program that runs with the shim, and this process as the agent of it and of
// what it starts: a private socket, a slot for each process, the first n groups of SMs of one GPU.
// One thread.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sched/spatial/slot_reading.h"
#include "shmctl/shim/host.h"

namespace gpushare {

class ProfiledProgram {
 public:
  static constexpr Nanos kQuiet{200'000'000};

  // Its standard output goes to ours for errors; it leads a process group. Errors: no private
  // folder, or the program could not be started.
  static Result<std::unique_ptr<ProfiledProgram>> start(const std::vector<std::string>& command,
                                                        const std::string& library,
                                                        const std::string& pci);
  ~ProfiledProgram();  // ends what still runs
  ProfiledProgram(const ProfiledProgram&) = delete;
  ProfiledProgram& operator=(const ProfiledProgram&) = delete;

  // The first so many groups, for all its processes from their next launch on; 0: the whole GPU.
  void give(uint32_t groups);
  // Whatever it launches now runs there: who has not launched for kQuiet need not say so, its next
  // launch sees it. False also while none of its processes has launched.
  bool is_there() const;
  // Serves them for so long, or less.
  void serve(Nanos at_most);

  // Those that have a slot, and what they say now.
  std::vector<ProcessView> processes() const;
  bool has_launched() const;
  // How it ended: its exit code, or 128 + signal. nullopt: it runs.
  std::optional<int> ended();
  void signal(int number) const;  // to all of its group
  // Asks it to end, and kills what is left of its group after `patience`. How it ended.
  int end(Nanos patience);

 private:
  ProfiledProgram(std::string folder, std::string pci)
      : folder_(std::move(folder)), pci_(std::move(pci)) {}
  Result<> spawn(const std::vector<std::string>& command, const std::string& library);
  std::string socket() const { return folder_ + "/shim.sock"; }

  const std::string folder_, pci_;
  uint64_t set_ = 0;
  std::unique_ptr<ShimHost> host_;
  struct Launches {
    uint64_t count = 0;
    Time last{};  // seen to rise
  };
  void watch();

  const MonotonicClock clock_;
  std::map<ProcessId, Launches> launches_;
  pid_t pid_ = 0;
  std::optional<int> code_;
};

}  // namespace gpushare
