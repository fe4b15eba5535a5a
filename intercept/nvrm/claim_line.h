// SPDX-License-Identifier: Apache-2.0
// ClaimLine: has claims (claims.h) examined on a thread of its own, in their order, with all other
// events of the source between them. The driver's lock may be held for tens of milliseconds at a
// time, by 48 programs that start for seconds in all (H200, driver 580.159.04), and the observer's
// caller has other things to do. An event is handed out after all that came before it, and when it
// has been found true: nobody can control what is not claimed yet. All functions are called on one
// thread, the observer's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

#include "intercept/nvrm/claims.h"
#include "intercept/observer.h"
#include "shmctl/base/fd.h"

namespace gpushare::nvrm {

class ClaimLine {
 public:
  // `driver` outlives it.
  static Result<std::unique_ptr<ClaimLine>> start(Driver& driver);
  // Waits for the question under way; what is left is not examined.
  ~ClaimLine();

  // As Claims::examine().
  void add(DriverEvent&& event, int fd);
  // Hands on what has been examined, `most` at most. Returns how many there were.
  uint64_t take(const Observer::Sink& sink, uint64_t most);
  // Readable when take() has something.
  int fd() const { return ready_.get(); }
  // How many were added and are not examined yet.
  std::size_t waiting() const;
  Observer::FalseClaims false_claims() const;

 private:
  struct Claim {
    DriverEvent event;
    int fd = -1;
  };

  ClaimLine(Driver& driver, Fd ready) : claims_(driver), ready_(std::move(ready)) {}
  void work();
  void pass_on(DriverEvent&& event);

  Claims claims_;  // the thread's
  const Fd ready_;

  mutable std::mutex mutex_;  // of all below but the thread
  std::condition_variable added_;
  std::deque<Claim> claims_to_examine_;
  std::size_t under_way_ = 0;
  std::deque<DriverEvent> examined_;
  Observer::FalseClaims false_;
  bool is_ending_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gpushare::nvrm
