// SPDX-License-Identifier: Apache-2.0
// The iterations that the program announces itself (gpushare.h). On the program's threads.
#include "intercept/shim/iterations/progress.h"
#include "intercept/shim/link/quiet.h"

namespace gpushare::shim {

bool Progress::lock_to_announce() {
  if (lock_.try_lock_for_long()) return true;
  skipped_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

bool Progress::publish_and_unlock() {
  publish(slot().iterations, now_);
  lock_.unlock();
  return true;
}

// From the first announcement on only announced iterations count; what was recognised before stays
// in the sums. REQUIRES: lock_ is held.
void Progress::announce() {
  if (now_.source == ShimSource::kAnnounced) return;
  is_announcing_.store(true, std::memory_order_seq_cst);
  this_process().is_telling.store(false, std::memory_order_relaxed);
  now_.source = ShimSource::kAnnounced;
  now_.confidence = 1000;
  now_.period_ns = now_.p99_ns = now_.launches = 0;
  now_.began_ns = 0;
  now_.ended = now_.begun;
  launches_before_ = launches_of(slot());
  begun_before_ = now_.begun;
}

// The mean number of launches of an iteration. REQUIRES: lock_ is held, an iteration is about to
// begin.
void Progress::note_launches() {
  const uint64_t launches = launches_of(slot());
  if (launches < launches_before_) {  // the slot is another agent's, whose counters begin at 0
    launches_before_ = launches;
    begun_before_ = now_.begun;
  }
  if (const uint64_t begun = now_.begun - begun_before_; begun != 0)
    now_.launches = (launches - launches_before_) * 1000 / begun;
}

bool Progress::arrive(uint64_t* arrived_ns) {
  *arrived_ns = monotonic_ns();
  if (!lock_to_announce()) return false;
  ++now_.arrivals;
  return publish_and_unlock();
}

bool Progress::begin(ShimPhase phase, uint64_t* began_ns) {
  const KeepErrno errno_of_the_program;
  *began_ns = monotonic_ns();
  if (!lock_to_announce()) return false;
  announce();
  if (pass_boundary()) {
    const uint64_t held_ns = monotonic_ns() - *began_ns;
    *began_ns += held_ns;
    if (now_.began_ns != 0) now_.began_ns += held_ns;
  }
  if (now_.began_ns != 0 && *began_ns > now_.began_ns) {
    periods_.add(*began_ns - now_.began_ns, 0);
    now_.period_ns = periods_.mean_ns();
  }
  note_launches();
  now_.began_ns = *began_ns;
  now_.phase = phase;
  ++now_.begun;
  now_.skipped = skipped_.load(std::memory_order_relaxed);
  return publish_and_unlock();
}

bool Progress::end(uint64_t began_ns, uint64_t arrived_ns) {
  const uint64_t now = monotonic_ns();
  if (!lock_to_announce()) return false;
  const uint64_t span = now - began_ns;
  spans_.add(span, 0);
  now_.p99_ns = spans_.p99_ns();
  now_.busy_ns += span;
  const uint64_t latency = arrived_ns != 0 && arrived_ns < began_ns ? now - arrived_ns : span;
  now_.latency_ns += latency;
  count_time(latency, 1);
  ++now_.ended;
  return publish_and_unlock();
}

bool Progress::set_slo(uint32_t us) {
  if (!lock_to_announce()) return false;
  now_.slo_us = us;
  return publish_and_unlock();
}

bool Progress::expect(uint64_t iterations) {
  if (!lock_to_announce()) return false;
  const bool is_too_many = iterations > UINT64_MAX - now_.begun;
  now_.expected = iterations == 0 ? 0 : is_too_many ? UINT64_MAX : now_.begun + iterations;
  return publish_and_unlock();
}

}  // namespace gpushare::shim
