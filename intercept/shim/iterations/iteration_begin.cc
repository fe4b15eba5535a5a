// SPDX-License-Identifier: Apache-2.0
// What follows from the beginning of an iteration: the one before it has ended, was like others of
// its kind or not, and from that comes the confidence; then the sums and the report.
#include "intercept/shim/iterations/iteration.h"

namespace gpushare::shim {
namespace {

constexpr uint32_t kFewestLaunches = 4;  // with fewer it says nothing about confidence
constexpr uint32_t kFirstKinds = 8;      // so many new kinds do not lower the confidence

}  // namespace

void IterationRecogniser::begin(Stream& stream, uint32_t function, uint32_t blocks, uint64_t now) {
  forget_outcomes_of_old_rules(stream.has_looped);
  int before = -1;
  const uint64_t period = now > stream.began_ns ? now - stream.began_ns : 0;
  const uint64_t idle = idle_ns_ - stream.idle_at_begin;
  const uint64_t busy = period > idle ? period - idle : 0;
  if (stream.is_counted) {
    ++ended_;
    busy_sum_ns_ += busy;
    period_sum_ns_ += period;
  }
  if (stream.has_begun && stream.sketch.launches >= kFewestLaunches) {
    const IterationKinds::Outcome outcome = kinds_.end(stream.sketch, busy);
    if (outcome != IterationKinds::Outcome::kNew || kinds_.made() > kFirstKinds) {
      const uint32_t is_expected = outcome == IterationKinds::Outcome::kExpected ? 1 : 0;
      set_outcomes(outcomes_ << 1 | is_expected, outcome_count_ < 32 ? outcome_count_ + 1 : 32);
    }
    if (outcome == IterationKinds::Outcome::kExpected) times_.add(period, busy);
    before = static_cast<int>(stream.sketch.kind);
  }
  const uint64_t waited_ns =
      drained_ns_ != 0 && now > drained_ns_ && running_ == 1 ? now - drained_ns_ : 0;
  stream.sketch = IterationSketch{};
  stream.sketch.kind = kinds_.begin(function, blocks, before);
  stream.sketch.input_bytes = stream.input_bytes;
  stream.sketch.waited_ns = waited_ns;
  stream.began_ns = now;
  stream.idle_at_begin = idle_ns_;
  stream.has_begun = true;
  phase_ = kinds_.phase(stream.sketch.kind);
  stream.is_counted = is_trusted();
  if (is_trusted()) ++count_;
}

void IterationRecogniser::held(uint64_t stream_handle, uint64_t until_ns) {
  look_at_written();
  Stream& stream = stream_of(stream_handle);
  stream.began_ns = until_ns;
  stream.idle_at_begin = idle_ns_;
}

void IterationRecogniser::forget_outcomes_of_old_rules(bool is_loop) {
  uint32_t& known = is_loop ? loop_rules_ : edge_rules_;
  const uint32_t changes = is_loop ? loops_.changes() : edges_.changes();
  if (known == changes) return;
  known = changes;
  set_outcomes(0, 0);
}

void IterationRecogniser::set_outcomes(uint32_t outcomes, uint32_t count) {
  outcomes_ = outcomes;
  outcome_count_ = count;
  is_trusted_ = confidence() >= kTrusted;
}

float IterationRecogniser::confidence() const {
  return static_cast<float>(__builtin_popcount(outcomes_)) / static_cast<float>(outcome_count_ + 1);
}

IterationReport IterationRecogniser::report() const {
  IterationReport report;
  report.count = count_;
  report.ended = ended_;
  report.busy_sum_ns = busy_sum_ns_;
  report.period_sum_ns = period_sum_ns_;
  report.confidence = confidence();
  report.mean_ns = times_.mean_ns();
  report.p99_ns = times_.p99_ns();
  report.busy_ns = times_.busy_ns();
  report.launches = kinds_.launches(streams_[latest_].sketch.kind);
  report.phase = phase_;
  return report;
}

}  // namespace gpushare::shim
