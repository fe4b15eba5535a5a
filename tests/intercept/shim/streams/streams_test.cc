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
#include "intercept/shim/streams/stream_use.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/intercept/shim/streams/ordering_driver.h"
#include "tests/support/sanitized.h"

namespace gpushare::shim {
namespace {

constinit Process the_process{};
constinit std::atomic<uint64_t> the_time{1'000'000'000};

}  // namespace

// --- what the library has in attach.cc ----------------------------------------------------------

namespace detail {
constinit std::atomic<Process*> process{&the_process};
}
uint32_t attach() { return the_process.features.load(); }
// Each reading is 100 ms later, so a launch that is held for nothing gives up soon.
uint64_t monotonic_ns() { return the_time.fetch_add(100'000'000); }

namespace {

constexpr CUstream kLegacy = nullptr;
constexpr uint64_t kThereAndHome[] = {1, 0}, kSets[] = {0, 1, 2, 3};

class StreamsTest : public testing::Test {
 protected:
  StreamsTest() { start_over(); }

  // Begins with a new process and a GPU without work.
  void start_over() {
    the_gpu = std::make_unique<FakeGpu>();
    slot_ = std::make_unique<ShimSlot>();
    slot_->head.gpu_count = 1;
    slot_->gpus[0].pci[0] = 'x';
    calls_.clear();
    is_blocking_ = {{GS_CU_STREAM_PER_THREAD, true}};
    the_process.features = kShimPartitions;
    the_process.slot = slot_.get();
    the_process.streams = nullptr;
    streams().on_retained(0, kContext);
  }

  struct Told {
    CUstream stream = nullptr;
    uint64_t began = 0, ended = UINT64_MAX;
    Work before{};
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

    void put() { note_before(the_gpu->put(use_->physical(), number_)); }
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
    bool is_away() const { return use_->physical() != stream(); }

   private:
    void note_before(const Work& before) { told_.before = before; }

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

  std::unique_ptr<ShimSlot> slot_;

 private:
  Told& new_call(CUstream stream, size_t* number) {
    const std::lock_guard lock(mutex_);
    *number = calls_.size();
    return calls_.emplace_back(Told{.stream = stream, .began = ++steps_});
  }
  bool must_come_first(const Told& one, const Told& other) const {
    if (one.ended >= other.began) return false;
    if (one.stream == other.stream) return true;
    if (one.stream == nullptr) return is_blocking_.at(other.stream);
    return other.stream == nullptr && is_blocking_.at(one.stream);
  }

  std::map<CUstream, bool> is_blocking_;  // the program's streams
  std::atomic<uint64_t> steps_{0};
  std::mutex mutex_;        // of the list
  std::deque<Told> calls_;  // each belongs to the thread that makes it
};

TEST_F(StreamsTest, AStreamIsOneQueueWhereverItGoes) {
  const CUstream stream = new_stream();
  for (const uint64_t groups : {0, 1, 2, 0, 6, 1}) {
    move_to(groups);
    launch(stream);
    Call call(*this, stream);
    call.put();
    EXPECT_EQ(call.is_away(), groups != 0);
  }
  EXPECT_EQ(broken(), std::vector<std::string>{});
  EXPECT_EQ(slot_->gpus[0].moves, 5u);
}

TEST_F(StreamsTest, TheLegacyStreamAndBlockingStreamsWaitForEachOther) {
  const CUstream first = new_stream(), second = new_stream();
  for (const uint64_t groups : {1, 0, 2}) {
    move_to(groups);
    for (const CUstream stream : {first, kLegacy, second, kLegacy, first}) launch(stream);
    copy(kLegacy);
    launch(second);
  }
  EXPECT_EQ(broken(), std::vector<std::string>{});
}

TEST_F(StreamsTest, NonBlockingStreamsPass) {
  move_to(1);
  const CUstream passing = new_stream(false);
  const size_t one = launch(passing), legacy = launch(kLegacy), other = launch(passing);
  EXPECT_FALSE(is_first(one, legacy));
  EXPECT_FALSE(is_first(legacy, other));
  EXPECT_TRUE(is_first(one, other));
}

TEST_F(StreamsTest, BlockingStreamsPassEachOther) {
  move_to(1);
  const CUstream one = new_stream(), other = new_stream();
  const size_t first = launch(one), second = launch(other), third = launch(one);
  EXPECT_FALSE(is_first(first, second));
  EXPECT_FALSE(is_first(second, third));
}

TEST_F(StreamsTest, WorkOfTheLegacyStreamIsWaitedForOnceItIsThere) {
  const CUstream stream = new_stream();
  move_to(1);
  launch(stream);
  launch(kLegacy);
  expect_waited_for(kLegacy, stream);
}

TEST_F(StreamsTest, WorkOfABlockingStreamIsWaitedForOnceItIsThere) {
  const CUstream stream = new_stream();
  move_to(1);
  launch(stream);
  launch(kLegacy);
  expect_waited_for(stream, kLegacy);
}

// The legacy stream is at home with all others when its call begins, and not any more when it ends.
TEST_F(StreamsTest, AStreamThatLeavesMeanwhileWaitsForTheLegacyStream) {
  const CUstream stream = new_stream();
  visit(kThereAndHome, {{stream}});
  launch(kLegacy);
  expect_waited_for(kLegacy, stream);
}

// The same, in the midst of leaving: the place it comes to waits only for what was there before.
TEST_F(StreamsTest, AStreamThatIsLeavingWaitsForTheLegacyStream) {
  const CUstream stream = new_stream();
  visit(kThereAndHome, {{stream}});
  launch(kLegacy);
  Call legacy(*this, kLegacy);
  move_to(1);
  int times = 0;
  other_threads = [&] {
    if (++times != 2) return;  // when the event is recorded
    legacy.put();
    legacy.end();
  };
  launch(stream);
  other_threads = {};
  ASSERT_GE(times, 2);
  EXPECT_TRUE(is_first(legacy.number(), launch(stream)));
  EXPECT_EQ(broken(), std::vector<std::string>{});
}

// An event in the legacy stream's home would be behind all blocking streams there.
TEST_F(StreamsTest, WhoWaitsForTheLegacyStreamWaitsForNobodyElse) {
  const CUstream away = new_stream(), home = new_stream();
  move_to(1);
  launch(away);
  const auto operate = [&](CUstream stream) {  // moves nothing
    Call call(*this, stream, Use::kOperation);
    call.put();
    return call.number();
  };
  const size_t legacy = operate(kLegacy), other = operate(home), later = launch(away);
  EXPECT_TRUE(is_first(legacy, later));
  EXPECT_FALSE(is_first(other, later));
}

TEST_F(StreamsTest, TheLegacyStreamWaitsForWhatADestroyedStreamHasLeft) {
  for (const bool is_legacy_away : {false, true}) {
    start_over();
    move_to(1);
    const CUstream stream = new_stream();
    if (is_legacy_away) launch(kLegacy);
    const size_t left = launch(stream);
    destroy(stream);
    EXPECT_TRUE(is_first(left, launch(kLegacy)));
  }
}

TEST_F(StreamsTest, AStreamOfAContextThatIsGoneIsForgotten) {
  const CUstream stream = new_stream();
  launch(stream);
  EXPECT_NE(streams().find(stream, Flavor::kLegacy), nullptr);
  streams().before_release(0, false);
  EXPECT_EQ(streams().find(stream, Flavor::kLegacy), nullptr);
  EXPECT_EQ(streams().find_at_once(kLegacy, Flavor::kLegacy), nullptr);
}

// The driver gives out new addresses for the streams that a program makes and destroys.
TEST_F(StreamsTest, AsManyStreamsAsEverComeOneAfterTheOther) {
  for (int i = 0; i < 200'000; ++i) destroy(new_stream());
  const CUstream stream = new_stream();
  move_to(1);
  launch(stream);
  Call call(*this, stream);
  EXPECT_TRUE(call.is_away());
  EXPECT_EQ(slot_->gpus[0].applied, 1u);
}

// An agent that dies and comes back, or its successor, gives the process another slot.
TEST_F(StreamsTest, ANewSlotIsAnsweredAlsoWhenItWantsTheSame) {
  const CUstream stream = new_stream();
  move_to(1);
  launch(stream);
  EXPECT_EQ(slot_->gpus[0].applied, 1u);
  const std::unique_ptr<ShimSlot> next = std::make_unique<ShimSlot>();
  next->head.gpu_count = 2;  // it numbers them anew
  next->gpus[0].pci[0] = 'y';
  next->gpus[1].pci[0] = 'x';
  next->gpus[1].wanted = 1;
  the_process.slot = next.get();
  streams().look_up();
  launch(stream);
  EXPECT_EQ(next->gpus[1].applied, 1u);
  EXPECT_EQ(next->gpus[0].applied, 0u);
  the_process.slot = slot_.get();
}

// A profiler's callback runs within the calls that the shim makes to the driver.
TEST_F(StreamsTest, ACallbackMayUseTheStreamThatMoves) {
  const CUstream stream = new_stream();
  visit(kThereAndHome, {{stream}});
  launch(stream);
  the_gpu->is_busy = [] { return true; };
  int times = 0;
  other_threads = [&] {
    if (++times == 1) launch(stream);
  };
  move_to(1);
  launch(stream);
  other_threads = {};
  EXPECT_GE(times, 1);
  EXPECT_EQ(slot_->gpus[0].moves, 3u);
}

TEST_F(StreamsTest, LaunchesOutsideAWantedPartitionAreCounted) {
  const CUstream stream = new_stream();
  launch(stream);
  EXPECT_EQ(slot_->home_launches[0], 0u);
  streams().count_other_contexts(1);  // so that none can be made
  move_to(1);
  launch(stream);
  launch(stream);
  EXPECT_EQ(slot_->home_launches[0], 2u);
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kOwnContexts);
  streams().count_other_contexts(-1);
  launch(stream);
  EXPECT_EQ(slot_->home_launches[0], 2u);
}

// What runs where the stream was before is not there.
TEST_F(StreamsTest, ItIsInThePartitionWhenNothingRunsElsewhere) {
  const CUstream stream = new_stream(), other = new_stream();
  visit(kThereAndHome, {{stream, other}});
  the_gpu->is_busy = [] { return true; };
  move_to(1);
  launch(stream);
  launch(stream);
  EXPECT_EQ(slot_->gpus[0].applied, 0u);
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kWorkRemains);
  the_gpu->is_busy = {};
  launch(stream);
  EXPECT_EQ(slot_->gpus[0].applied, 1u) << "the other one is empty, and has gone without a launch";
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kFollows);
}

// It may have functions that put work into a stream and that the shim does not know.
TEST_F(StreamsTest, WithADriverThatIsNewerThanTheTableNothingMoves) {
  driver_version = kNewestKnown + 10;
  start_over();
  const CUstream stream = new_stream();
  move_to(1);
  launch(stream);
  Call call(*this, stream);
  EXPECT_FALSE(call.is_away());
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kNewerDriver);
  driver_version = kNewestKnown;
}

TEST_F(StreamsTest, OrderHoldsAcrossThreads) {
  const std::vector<CUstream> handles = new_streams();
  visit(kSets, handles);
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      for (int i = 0; i < 400; ++i) {
        if (random() % 8 == 0) move_to(random() % std::size(kSets));
        const CUstream stream = handles[random() % handles.size()];
        random() % 4 == 0 ? copy(stream) : launch(stream);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(broken(), std::vector<std::string>{});
  EXPECT_GT(slot_->gpus[0].moves, 50u);
}

// Four threads, each of which may be at any step of a call when another one takes its next step.
class InterleavedTest : public StreamsTest {
 protected:
  ~InterleavedTest() override { other_threads = {}; }

  void begin(uint64_t seed) {
    start_over();
    random_.seed(seed);
    handles_ = new_streams();
    handles_.push_back(GS_CU_STREAM_PER_THREAD);
    visit(kSets, handles_);
    the_gpu->is_busy = [this] { return !is_visiting_ && random_() % 2 == 0; };
    other_threads = [this] {
      const size_t who = random_() % kThreads;
      if (who == at_work_ || calls_of_[who] == nullptr) return;
      put_or_end(who);
      ++steps_between_;
    };
  }
  void step() {
    if (random_() % 8 == 0) move_to(random_() % std::size(kSets));
    if (random_() % 64 == 0) replace(handles_[random_() % handles_.size()]);
    if (random_() % 128 == 0) {
      end_all_calls();
      is_visiting_ = true;
      visit(kSets, handles_);
      is_visiting_ = false;
    }
    at_work_ = random_() % kThreads;
    if (calls_of_[at_work_] == nullptr) {
      const Use use = random_() % 4 == 0 ? Use::kOperation : Use::kLaunch;
      has_put_[at_work_] = false;
      calls_of_[at_work_] =
          std::make_unique<Call>(*this, handles_[random_() % handles_.size()], use);
    } else if (!has_put_[at_work_] && random_() % 5 == 0) {
      calls_of_[at_work_]->put_at_home();
      has_put_[at_work_] = true;
    } else {
      put_or_end(at_work_);
    }
    at_work_ = kThreads;
  }
  void end_all_calls() {
    for (size_t who = 0; who < kThreads; ++who)
      while (calls_of_[who] != nullptr) put_or_end(who);
  }
  uint64_t steps_between() const { return steps_between_; }

 private:
  static constexpr size_t kThreads = 4;

  void put_or_end(size_t who) {
    if (has_put_[who]) return calls_of_[who].reset();
    has_put_[who] = true;
    calls_of_[who]->put();
  }
  void replace(CUstream& stream) {
    const bool is_in_use = std::ranges::any_of(
        calls_of_, [&](const auto& call) { return call != nullptr && call->stream() == stream; });
    if (stream == kLegacy || stream == GS_CU_STREAM_PER_THREAD || is_in_use) return;
    const bool is_blocking = the_gpu->is_blocking(stream);
    destroy(stream);
    stream = new_stream(is_blocking);
  }

  std::mt19937_64 random_;
  std::vector<CUstream> handles_;
  std::array<std::unique_ptr<Call>, kThreads> calls_of_;
  std::array<bool, kThreads> has_put_{};
  bool is_visiting_ = false;
  size_t at_work_ = kThreads;  // the thread that is in the middle of a step
  uint64_t steps_between_ = 0;
};

TEST_F(InterleavedTest, OrderHolds) {
  constexpr uint64_t kSeeds = GS_IS_SANITIZED ? 3 : 30, kSteps = 2000;
  uint64_t moves = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    begin(seed);
    for (uint64_t i = 0; i < kSteps; ++i) step();
    end_all_calls();
    moves += slot_->gpus[0].moves;
    const auto wrong = broken();
    ASSERT_TRUE(wrong.empty()) << wrong.size() << " pairs, first: " << wrong.front();
  }
  EXPECT_GT(moves, kSeeds * kSteps / 20);
  EXPECT_GT(steps_between(), kSeeds * kSteps / 20) << "while another one is in the shim";
}

}  // namespace
}  // namespace gpushare::shim
