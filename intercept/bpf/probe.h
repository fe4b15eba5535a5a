// SPDX-License-Identifier: Apache-2.0
// The eBPF probe in the kernel (driver_probe.bpf.c), from load to unload. Only this pair knows the
// generated skeleton. One thread at a time; load() silences libbpf for the whole process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "shmctl/base/error.h"

struct driver_probe_skel;

namespace gpushare {

struct ProbeOptions {
  uint32_t ring_bytes = 2u << 20;  // rounded up to a power of two pages; a record takes 256 bytes
  bool accept_any_file = false;    // tests: ioctls on files that are not the driver's count too
};

class Probe {
 public:
  // Loads and attaches. The calling process is never reported. Pids are numbers in its pid
  // namespace; processes that it cannot see are not reported. Errors say what the machine lacks:
  // root, BTF, a kernel of 5.15 or later, tracefs.
  static Result<Probe> load(const ProbeOptions& options);

  int ring_fd() const;  // the ring buffer's map, owned by this
  // Records lost so far.
  uint64_t dropped() const;
  // Reports exec and exit of a process that has made no call since load().
  Result<> add_user(pid_t pid);
  void remove_user(pid_t pid);

 private:
  struct Destroy {
    void operator()(driver_probe_skel* skeleton) const;
  };
  explicit Probe(driver_probe_skel* skeleton) : skeleton_(skeleton) {}

  std::unique_ptr<driver_probe_skel, Destroy> skeleton_;
};

}  // namespace gpushare
