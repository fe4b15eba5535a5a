// SPDX-License-Identifier: Apache-2.0
// Streams that move keep CUDA's order, whatever threads do between each other's calls. The shim's
// own sources over a driver that knows for each piece of work what comes before it. A call of the
// program is three steps: it begins (StreamUse), the driver gets the work, it ends. The steps of
// several threads come in any order, the later two also between two calls that the shim makes to
// the driver.
//
// CUDA's rule must hold: of two calls, one of which ended before the other began, the first one's
// work comes first if both name the same stream, or one names the legacy stream and the other a
// blocking one.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "intercept/shim/streams/stream_use.h"
#include "tests/intercept/shim/streams/ordering_driver.h"

namespace gpushare::shim {

extern constinit Process the_process;
// Each reading of the clock is so much later than the one before.
extern constinit std::atomic<uint64_t> the_time, the_step_ns;
inline constexpr uint64_t kUsualStepNs = 100'000'000;

inline constexpr CUstream kLegacy = nullptr;
inline constexpr uint64_t kThereAndHome[] = {1, 0}, kSets[] = {0, 1, 2, 3};

class StreamsTest : public testing::Test {
 protected:
  StreamsTest() { start_over(); }

  // Begins with a new process and a GPU without work.
  void start_over() {
    the_gpu = std::make_unique<FakeGpu>();
    the_step_ns = kUsualStepNs;
    slot_ = std::make_unique<ShimSlot>();
    slot_->head.gpu_count = 1;
    slot_->gpus[0].pci[0] = 'x';
    calls_.clear();
    is_blocking_.clear();
    the_process.features = kShimPartitions;
    the_process.slot = slot_.get();
    the_process.streams = nullptr;
    the_process.graphs = nullptr;
    streams().on_retained(0, kContext);
  }

  struct Told {
    CUstream stream = nullptr;
    uint64_t began = 0, ended = UINT64_MAX;
    Work before{};
    bool has_work = true;            // that later calls must wait for
    std::optional<uint8_t> place{};  // of a launch, where the shim has put it
  };

  // A call of a thread, from its begin to its end.
  class Call {
   public:
    Call(StreamsTest& test, CUstream stream, Use use = Use::kLaunch)
        : test_(test), told_(test.new_call(stream, &number_)) {
      use_.emplace(stream, Flavor::kLegacy, use);
    }
    ~Call() { end(); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    void put(const Work& more = {}) {
      if (known() != nullptr) told_.place = known()->place;
      note_before(the_gpu->put(use_->physical(), number_, more));
    }
    // It waits for what is in line.
    void wait() {
      told_.has_work = false;
      note_before(the_gpu->before(use_->physical()));
    }
    // It asks whether all has ended that is in line.
    CUresult query() {
      const CUresult answer = use_->answer(driver()->cuStreamQuery(use_->physical()));
      if (answer != CUDA_SUCCESS) forget();
      told_.has_work = false;
      note_before(the_gpu->done());
      return answer;
    }
    // CUDA refuses it beside a capture; then it is no call.
    bool is_refused() {
      if (use_->refusal() == CUDA_SUCCESS) return false;
      forget();
      return true;
    }
    // As a call that names no stream, or is too large for a partition.
    void put_at_home() {
      use_->at_home([&](CUstream home) {
        note_before(the_gpu->put(home, number_));
        return CUDA_SUCCESS;
      });
    }
    void end() {
      if (!use_) return;
      use_.reset();
      told_.ended = ++test_.steps_;
    }
    size_t number() const { return number_; }
    CUstream stream() const { return told_.stream; }
    Stream* known() const { return use_->stream(); }
    CUstream physical() const { return use_->physical(); }
    const Work& before() const { return told_.before; }
    bool is_away() const {
      return use_->physical() != stream() && use_->physical() != GS_CU_STREAM_PER_THREAD;
    }

   private:
    void note_before(const Work& before) { told_.before = before; }
    void forget() {
      told_.has_work = false;
      told_.began = 0;  // before all others
    }

    StreamsTest& test_;
    size_t number_ = 0;
    Told& told_;
    std::optional<StreamUse> use_;
  };

  static Streams& streams() { return *Streams::get(); }
  CUstream new_stream(bool is_blocking = true) {
    const CUstream made = the_gpu->create(is_blocking);
    is_blocking_[made] = is_blocking;
    streams().on_created(made);
    return made;
  }
  // As the wrapper of cuStreamDestroy does.
  void destroy(CUstream stream) {
    streams().before_destroy(stream);
    the_gpu->destroy(stream);
  }
  void move_to(uint64_t groups) { slot_->gpus[0].wanted = groups; }
  // Makes a whole call and returns its number.
  size_t launch(CUstream stream) {
    Call call(*this, stream);
    call.put();
    return call.number();
  }
  void launch_in_partition() {
    move_to(1);
    launch(new_stream());
    EXPECT_EQ(slot_->gpus[0].applied, 1u);
  }
  // Begins anew: a stream that is to be in a partition stays at home, and the slot says why.
  void expect_none_leaves(ShimFollows why) {
    start_over();
    const CUstream stream = new_stream();
    move_to(1);
    launch(stream);
    EXPECT_FALSE(Call(*this, stream).is_away());
    EXPECT_EQ(slot_->gpus[0].follows, why);
  }
  size_t copy(CUstream stream) {
    Call call(*this, stream, Use::kOperation);
    call.put_at_home();
    return call.number();
  }
  // The legacy stream, and five others, of which two are non-blocking.
  std::vector<CUstream> new_streams() {
    std::vector<CUstream> made{kLegacy};
    for (int i = 0; i < 5; ++i) made.push_back(new_stream(i % 3 != 2));
    return made;
  }
  // Takes the streams to all these partitions; stand-ins are only made while no call is being made.
  // They end in the last one.
  void visit(std::span<const uint64_t> sets, std::span<const CUstream> streams) {
    for (const uint64_t groups : sets) {
      move_to(groups);
      for (const CUstream stream : streams) launch(stream);
    }
  }
  // A call of `late` begins, another thread makes a call of `other`, and then the driver gets the
  // work of the first one. What `other` gets from then on must wait for it.
  void expect_waited_for(CUstream late, CUstream other) {
    Call call(*this, late);
    move_to(1);
    launch(other);
    call.put();
    call.end();
    EXPECT_TRUE(is_first(call.number(), launch(other)));
    EXPECT_EQ(broken(), std::vector<std::string>{});
  }
  bool is_first(size_t one, size_t other) const { return calls_[other].before.has(one); }

  // Pairs of calls whose order is not kept: "1 before 5".
  std::vector<std::string> broken() const {
    std::vector<std::string> found;
    for (size_t later = 0; later < calls_.size(); ++later)
      for (size_t first = 0; first < later; ++first)
        if (must_come_first(calls_[first], calls_[later]) && !is_first(first, later))
          found.push_back(std::to_string(first) + " before " + std::to_string(later));
    return found;
  }

  // Launches that run on, and are elsewhere than at that place.
  std::vector<std::string> running_elsewhere(uint8_t place) const {
    std::vector<std::string> found;
    for (size_t i = 0; i < calls_.size(); ++i)
      if (the_gpu->running.has(i) && calls_[i].place.value_or(place) != place)
        found.push_back(std::to_string(i) + " at " + std::to_string(*calls_[i].place));
    return found;
  }
  size_t calls() const { return calls_.size(); }
  // The stream has ended; what is put into the next one with its handle comes in no order with it.
  void end_calls_in(CUstream stream) {
    const std::lock_guard lock(mutex_);
    const auto former = reinterpret_cast<CUstream>(uintptr_t{1} + 2 * formers_++);
    is_blocking_[former] = is_blocking_.at(stream);
    for (Told& each : calls_)
      if (each.stream == stream) each.stream = former;
  }

  std::unique_ptr<ShimSlot> slot_;

 private:
  [[gnu::noinline]] Told& new_call(CUstream stream, size_t* number) {
    const Stepping::Paused paused;
    const std::lock_guard lock(mutex_);
    if (stream == GS_CU_STREAM_PER_THREAD) is_blocking_[stream = the_gpu->own()] = true;
    *number = calls_.size();
    return calls_.emplace_back(Told{.stream = stream, .began = ++steps_});
  }
  bool must_come_first(const Told& one, const Told& other) const {
    if (one.ended >= other.began || !one.has_work) return false;
    if (one.stream == other.stream) return true;
    // A stream that is waited for has what comes before its own work only once it has work.
    if (one.stream == nullptr) return other.has_work && is_blocking_.at(other.stream);
    return other.stream == nullptr && is_blocking_.at(one.stream);
  }

  std::map<CUstream, bool> is_blocking_;  // the program's streams
  size_t formers_ = 0;                    // streams that have ended whose handles came again
  std::atomic<uint64_t> steps_{0};
  std::mutex mutex_;        // of the list
  std::deque<Told> calls_;  // each belongs to the thread that makes it
};

}  // namespace gpushare::shim
