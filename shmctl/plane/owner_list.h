// SPDX-License-Identifier: Apache-2.0
// OwnerList: what an agent must know of a process that has ended while no agent was there, or in
// the instants in which one died: its tenant, its clients of the driver (another process may hold
// their descriptors, and then what lies in them goes on), and the place of its job among others.
// The agent keeps the list up to date; the next one reads it at its start and goes on with it where
// it lies. It outlives a clean stop, but not the driver, whose names of clients begin anew when it
// is loaded.
//
// Each change of an entry is one write of one Slot (slots.h). A process with more than
// kOwnerClients clients has several entries, its parts; where an agent dies while it changes them,
// each client that it had before and has after is in one of them. One thread of one process at a
// time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shmctl/base/process_id.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

class OwnerList {
 public:
  // Of one process the first so many clients are listed. A CUDA program has one on each GPU.
  static constexpr uint32_t kMostClients = 64 * kOwnerClients;

  struct Owner {
    ProcessId process;
    uint32_t uid = 0;
    uint32_t run = 0;                   // of gpushare run; 0: none
    std::string tenant;                 // empty: that in which the roster has it
    std::string command, command_line;  // as much of them as an entry has room for
    // Of its job, where its GPU takes turns (CLOCK_MONOTONIC, and GPU time); 0: it has none.
    uint64_t job_arrived_ns = 0, job_service_ns = 0;
    std::vector<uint32_t> clients;  // ascending
    bool operator==(const Owner&) const = default;
  };

  // Takes over what the region lists of clients of the driver that is loaded now; `driver_load`:
  // GpuSupport::driver_load; of one that is not known (0) nothing is taken over. `region` must
  // outlive the list.
  OwnerList(Region& region, uint64_t driver_load);

  // Adds or changes an owner. When all kMaxOwners entries are taken, the user who has most of them
  // gives way: the process of his that was started first is erased. Returns false when not all of
  // the clients are listed: nobody has more entries than the user who asks for one, or there are
  // more than kMostClients.
  bool put(Owner owner);
  void erase(const ProcessId& process);
  // What was put. References hold until it is erased.
  const Owner* find(const ProcessId& process) const;
  std::vector<ProcessId> processes() const;
  // Of what a region lists, whoever writes it: who has clients.
  static std::set<ProcessId> with_clients(const Region& region);
  // Drops what a region lists of tenants and jobs, but not whose the clients are. REQUIRES: nobody
  // else writes it.
  static void forget(Region& region);

 private:
  struct Part {
    uint32_t place = 0;
    std::array<uint32_t, kOwnerClients> clients{};  // 0: none
  };
  struct Entry {
    Owner owner;
    std::vector<Part> parts;
  };

  // By start and pid: the user's processes.
  using Processes = std::set<std::pair<uint64_t, pid_t>>;
  struct User {
    std::size_t places = 0;
    Processes processes{};
  };

  // `taken`: the places that the process which asks for more has.
  bool make_room(uint32_t by_user, std::size_t taken);
  static std::vector<uint32_t> keep(Entry& entry, const std::vector<uint32_t>& wanted);
  void count(const Entry& entry, bool is_there);

  Region& region_;
  std::map<ProcessId, Entry> by_process_;
  std::map<uint32_t, User> by_user_;
  std::vector<uint32_t> free_;  // the last is taken next: the lowest
};

}  // namespace gpushare
