// SPDX-License-Identifier: Apache-2.0
// The real driver's Observer: what programs create at the NVIDIA driver, seen by the eBPF probe.
// The agent makes one; all calls come from its thread. Costs nothing while no program calls the
// driver.
#pragma once

#include <memory>
#include <set>

#include "intercept/bpf/probe.h"
#include "intercept/observer.h"

struct ring_buffer;

namespace gpushare {

class BpfObserver final : public Observer {
 public:
  static Result<std::unique_ptr<BpfObserver>> start(const ProbeOptions& options = {});

  int fd() const override;
  // ProcessOpened is made up at the first record of a process. When records were lost, EventsLost
  // comes last, after a ProcessClosed for every known process that is gone.
  Result<uint64_t> drain(const Sink& sink) override;
  // As of the last drain() that handed out events, or 100 ms ago.
  uint64_t dropped() const override { return lost_; }
  Result<> watch(ProcessId process) override;

 private:
  struct DestroyRing {
    void operator()(ring_buffer* ring) const;
  };

  explicit BpfObserver(Probe probe) : probe_(std::move(probe)) {}
  static int on_record(void* self, void* data, size_t bytes);
  void hand_out(const Sink& sink, DriverEvent&& event);
  void close_the_dead(const Sink& sink);

  Probe probe_;
  std::unique_ptr<ring_buffer, DestroyRing> ring_;  // after probe_: it maps the probe's buffer
  std::set<ProcessId> known_;                       // opened, not closed
  uint64_t lost_ = 0, reported_lost_ = 0;
  Time look_for_losses_at_{};   // when drain() asks even without events
  const Sink* sink_ = nullptr;  // set for the duration of drain()
  uint64_t handed_out_ = 0;     // by the drain() in progress
};

}  // namespace gpushare
