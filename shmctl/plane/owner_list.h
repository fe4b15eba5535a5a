// SPDX-License-Identifier: Apache-2.0
// OwnerList: what an agent must know of a process that has ended while no agent was there, or in
// the instants in which one died: its tenant, its clients of the driver (another process may hold
// their descriptors, and then what lies in them goes on), and the place of its job among others.
// The agent keeps the list up to date; the next one reads it at its start and goes on with it where
// it lies. It outlives a clean stop, but not the driver, whose names of clients begin anew when it
// is loaded.
//
// Each change of an entry is one write of one Slot (slots.h). A process with more than
// kOwnerClients clients has several entries, so that of one which was being changed when the agent
// died some of the clients may be those of before. One thread of one process at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "shmctl/base/process_id.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

class OwnerList {
 public:
  // Of one process the first so many clients are listed. A CUDA program has one on each GPU; who
  // makes them without end has no more of the list than others.
  static constexpr uint32_t kMostClients = 4 * kOwnerClients;

  struct Owner {
    ProcessId process;
    uint32_t uid = 0;
    uint32_t run = 0;  // of gpushare run; 0: none
    std::string tenant;
    std::string command, command_line;  // as much of them as an entry has room for
    // Of its job, where its GPU takes turns (CLOCK_MONOTONIC, and GPU time); 0: it has none.
    uint64_t job_arrived_ns = 0, job_service_ns = 0;
    std::vector<uint32_t> clients;
    bool operator==(const Owner&) const = default;
  };

  // Takes over what the region lists of clients of the driver that is loaded now; `driver_load`:
  // GpuSupport::driver_load. `region` must outlive the list.
  OwnerList(Region& region, uint64_t driver_load);

  // Adds or changes an owner. Returns false when there was no room for all of its clients.
  bool put(Owner owner);
  void erase(const ProcessId& process);
  // What was put. References hold until it is erased.
  const Owner* find(const ProcessId& process) const;
  std::vector<ProcessId> processes() const;
  // Of what a region lists, whoever writes it: who has clients.
  static std::set<ProcessId> with_clients(const Region& region);

 private:
  struct Entry {
    Owner owner;
    std::vector<uint32_t> places;
  };

  Region& region_;
  std::map<ProcessId, Entry> by_process_;
  std::vector<uint32_t> free_;  // the last is taken next: the lowest
};

}  // namespace gpushare
