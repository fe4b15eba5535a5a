// SPDX-License-Identifier: Apache-2.0
// KmodObserver: the kernel module's event ring as an Observer, and as a source of KernelNotices.
// Sees what BpfObserver sees; the agent makes one of them. All calls come from its thread.
//
// Rules:
// - Records [tail, head) are ours to read. Only the module moves head, only we move tail, after
//   reading; both count records since the file was opened and never turn back.
// - What was written before start() is passed over: it was meant for an agent that died, and a
//   replay says it again.
#pragma once

#include <map>
#include <memory>

#include "intercept/kmod/device.h"
#include "intercept/kmod/notice.h"
#include "intercept/observer.h"
#include "kmod/uapi/gpushare.h"

namespace gpushare {

class KmodObserver final : public Observer {
 public:
  // Maps the ring; what is written from now on is handed out. `device` outlives the observer.
  // Errors: those of kmod::query(), and of mmap.
  static Result<std::unique_ptr<KmodObserver>> start(kmod::Device& device);

  // Has everything that lives now told again, as the next drain()s will: for a reader that starts.
  Result<> replay();

  // Gets every notice, inside drain(), in order with the events. None before it is set: set it
  // before the first drain().
  void set_listener(NoticeSink listener) { listener_ = std::move(listener); }

  int fd() const override { return waiting_.get(); }
  // At most the records that are there when it is called. EventsLost and NoticesLost come last.
  Result<uint64_t> drain(const Sink& sink) override;
  uint64_t dropped() const override { return lost_; }
  // Without a descriptor to spare the end is not reported: who needs it looks now and then.
  Result<> watch(ProcessId process) override;

 private:
  KmodObserver(kmod::Device& device, const gpushare_query& layout)
      : device_(device), count_(layout.record_count) {}
  Result<> map(const gpushare_query& layout);
  uint64_t head() const;
  void hand_out(const Sink& sink, const gpushare_event& record);
  void end_watched(const Sink& sink);

  kmod::Device& device_;
  const uint64_t count_;  // of records, a power of two
  std::shared_ptr<const gpushare_producer> producer_;
  std::shared_ptr<gpushare_consumer> consumer_;
  std::shared_ptr<const gpushare_event[]> records_;
  Fd waiting_;  // epoll: the device, and the pidfd of each watched process
  std::map<ProcessId, Fd> watched_;
  NoticeSink listener_;
  uint64_t tail_ = 0;
  uint64_t lost_ = 0, lost_before_ = 0;  // since start(), and before it
  uint64_t handed_out_ = 0;              // by the drain() in progress
};

}  // namespace gpushare
