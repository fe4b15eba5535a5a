// SPDX-License-Identifier: Apache-2.0
// ProfiledProgram: one program that runs with the shim. This process plays the agent for it and for
// what it starts: with a private socket, a slot for each process, and the first n groups of SMs of
// one GPU. One thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sched/spatial/slot_reading.h"
#include "shmctl/program/child.h"
#include "shmctl/program/temp_folder.h"
#include "shmctl/shim/host.h"

namespace gpushare {

class ProfiledProgram {
 public:
  static constexpr Nanos kQuiet{200'000'000};

  // What it writes goes to our standard error, and it leads a process group. Error: there is no
  // private folder, or the program could not be started.
  static Result<std::unique_ptr<ProfiledProgram>> start(const std::vector<std::string>& command,
                                                        const std::string& library,
                                                        const std::string& pci);
  ~ProfiledProgram();  // Ends what still runs.
  ProfiledProgram(const ProfiledProgram&) = delete;
  ProfiledProgram& operator=(const ProfiledProgram&) = delete;

  // Gives all its processes the first so many groups from their next launch on; 0 is the whole GPU.
  void give(uint32_t groups);
  // Returns true when whatever it launches now runs there. A process that has not launched for
  // kQuiet need not confirm it, because its next launch sees it. Returns false while none of its
  // processes has launched.
  bool is_there() const;
  // Serves its processes for so long, or less.
  void serve(Nanos at_most);

  // Those that have a slot, and what they say now.
  std::vector<ProcessView> processes() const;
  bool has_launched() const;
  // Its exit code, or 128 + the signal; empty while it runs.
  std::optional<int> ended() const;
  // Asks it to end, and kills what is left of its group after `patience`. Returns how it ended.
  int end(Nanos patience);

 private:
  ProfiledProgram(TempFolder folder, std::string pci)
      : folder_(std::move(folder)), pci_(std::move(pci)) {}
  Result<> spawn(const std::vector<std::string>& command, const std::string& library);
  std::string socket() const { return folder_.at("shim.sock"); }

  const TempFolder folder_;
  const std::string pci_;
  uint64_t set_ = 0;
  std::unique_ptr<ShimHost> host_;
  struct Launches {
    uint64_t count = 0;
    Time last{};  // seen to rise
  };
  void watch();

  const MonotonicClock clock_;
  std::map<ProcessId, Launches> launches_;
  std::optional<Child> child_;
};

}  // namespace gpushare
