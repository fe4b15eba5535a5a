// SPDX-License-Identifier: Apache-2.0
// KmodObserver: the kernel module's event ring as an Observer and as a source of KernelNotices. It
// sees what BpfObserver sees; the agent makes one of the two. All calls come from the agent's
// thread.
//
// The records [tail, head) may be read here. Only the module moves head, and only this class moves
// tail, after reading; both count records since the file was opened and never decrease. Records
// written before start() are skipped: they were meant for an agent that died, and replay() has the
// module write their contents again.
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
  // Maps the ring and hands out what is written from now on. `device` must outlive the observer.
  // Errors: those of kmod::query(), those of mmap(), and bad_message when the ring is too small.
  static Result<std::unique_ptr<KmodObserver>> start(kmod::Device& device);

  // Makes the module write events for everything that exists now, which the next drain()s hand out;
  // for an agent that starts.
  Result<> replay();

  // `listener` is called for every notice, within drain() and in order with the events. Notices
  // that come before it is set are dropped, so set it before the first drain().
  void set_listener(NoticeSink listener) { listener_ = std::move(listener); }

  int fd() const override { return waiting_.get(); }
  // Hands out at most the records that are there when it is called; EventsLost and NoticesLost come
  // last. Error bad_message when the module claims more records than the ring holds.
  Result<uint64_t> drain(const Sink& sink, uint64_t most) override;
  using Observer::drain;
  uint64_t dropped() const override { return lost_; }
  Result<> watch(ProcessId process) override;

 private:
  KmodObserver(kmod::Device& device, const gpushare_query& layout)
      : device_(device), count_(layout.record_count) {}
  Result<> map(const gpushare_query& layout);
  uint64_t head() const;
  void hand_out(const Sink& sink, const gpushare_event& record);
  void end_watched(const Sink& sink);

  kmod::Device& device_;
  const uint64_t count_;  // records in the ring, a power of two
  std::shared_ptr<const gpushare_producer> producer_;
  std::shared_ptr<gpushare_consumer> consumer_;
  std::shared_ptr<const gpushare_event[]> records_;
  Fd waiting_;  // an epoll of the device and the pidfd of each watched process
  std::map<ProcessId, Fd> watched_;
  NoticeSink listener_;
  uint64_t tail_ = 0;
  uint64_t lost_ = 0, lost_before_ = 0;  // records lost since start(), and before it
  uint64_t handed_out_ = 0;              // events of the drain() in progress
};

}  // namespace gpushare
