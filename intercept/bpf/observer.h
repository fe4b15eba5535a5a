// SPDX-License-Identifier: Apache-2.0
// BpfObserver: the Observer of the real driver on machines without the kernel module. The eBPF
// probe sees what programs create at the NVIDIA driver. The agent makes one, and all calls come
// from its thread. It costs nothing while no program calls the driver.
#pragma once

#include <memory>
#include <optional>
#include <set>

#include "intercept/bpf/probe.h"
#include "intercept/nvrm/claim_line.h"
#include "intercept/nvrm/decode.h"
#include "intercept/observer.h"

struct ring_buffer;

namespace gpushare {

class BpfObserver final : public Observer {
 public:
  // Loads the probe and maps its ring. What programs claim is examined by questions to `driver`,
  // which outlives the observer; nullptr, for tests: it is believed. Errors: those of
  // Probe::load(), and of the mapping.
  static Result<std::unique_ptr<BpfObserver>> start(const ProbeOptions& options = {},
                                                    nvrm::Driver* driver = &nvrm::system_driver());

  int fd() const override;
  // The probe writes no record for ProcessOpened; this class adds the event before the first record
  // of a process. When records were lost, EventsLost comes last, after a ProcessClosed for every
  // known process that is gone. What the driver is asked about comes as late as its answer, with
  // all that came after it; while very much waits for that no more records are taken.
  Result<uint64_t> drain(const Sink& sink, uint64_t most) override;
  using Observer::drain;
  // The number at the last drain() that handed out events, or one that is at most 100 ms older than
  // the last drain().
  uint64_t dropped() const override { return lost_; }
  FalseClaims false_claims() const override {
    return claims_ ? claims_->false_claims() : FalseClaims{};
  }
  // Whether the driver is still being asked about what was drained: events of it will follow.
  bool is_examining() const { return claims_ && claims_->waiting() > 0; }
  Result<> watch(ProcessId process) override;

 private:
  struct DestroyRing {
    void operator()(ring_buffer* ring) const;
  };

  explicit BpfObserver(Probe probe) : probe_(std::move(probe)) {}
  void take(nvrm::Sighting&& sighting);
  static int on_record(void* self, void* data, size_t bytes);
  void hand_out(DriverEvent&& event, int fd = -1);
  void close_the_dead();
  void call_for_records(bool does);

  Probe probe_;
  std::unique_ptr<ring_buffer, DestroyRing> ring_;  // maps the probe's buffer: destroyed before it
  std::unique_ptr<nvrm::ClaimLine> claims_;         // nullptr: all is believed
  Fd ready_;                                        // an epoll of both, where there are two
  bool calls_for_records_ = true;                   // in `ready_`
  std::set<ProcessId> known_;                       // processes that were opened and not closed
  uint64_t lost_ = 0, reported_lost_ = 0;
  Time look_for_losses_at_{};      // from then on drain() asks for losses even without events
  const Sink* sink_ = nullptr;     // set during drain() only
  uint64_t handed_out_ = 0;        // events of the drain() in progress
  uint64_t taken_ = 0, most_ = 0;  // records of the drain() in progress; the most it takes
};

}  // namespace gpushare
