// SPDX-License-Identifier: Apache-2.0
// Probe: the eBPF programs in the kernel (driver_probe.bpf.c), from load to unload. Only this pair
// of files knows the generated skeleton. One thread at a time may call. load() replaces libbpf's
// printer for the whole process: its warnings go into errors instead of standard error.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "shmctl/base/error.h"

struct driver_probe_skel;

namespace gpushare {

struct ProbeOptions {
  uint32_t ring_bytes = 2u << 20;  // rounded up to a power of two pages; a record takes 256 bytes
  bool accept_any_file = false;    // for tests: ioctls on files that are not the driver's count too
};

class Probe {
 public:
  // Loads the programs and attaches them. The calling process is never reported. Pids are those of
  // its pid namespace, and processes that it cannot see there are not reported. An error's detail
  // says what the machine lacks: root, BTF, a kernel of 5.15 or later, tracefs.
  static Result<Probe> load(const ProbeOptions& options);

  int ring_fd() const;  // the descriptor of the ring buffer's map, which the Probe owns
  // How many records were lost since load(); 0 also when the number cannot be read.
  uint64_t dropped() const;
  // How many calls of this process could not be read since this was last asked, at least 1. To be
  // called for each record that says so: until then the probe writes no other.
  uint64_t take_unread(pid_t pid);
  // Makes the probe report exec and exit of a process that has made no call since load(), until
  // remove_user(). Error argument_list_too_long when 8192 processes are known.
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
