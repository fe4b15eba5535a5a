// SPDX-License-Identifier: Apache-2.0
// Streams that move keep CUDA's order, whatever threads do between each other's calls. The shim's
// own sources over a driver that runs nothing and knows for each piece of work what the hardware
// would finish before it. A call of the program is three steps: it begins (StreamUse), the driver
// gets the work, it ends; the steps of several threads come in any order, the later two also
// between two calls that the shim makes of the driver.
//
// What must hold is CUDA's rule alone: of two calls, one of which ended before the other began, the
// first one's work comes first if they name one stream, or one names the legacy stream and the
// other a blocking one.
#include "intercept/shim/streams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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
// Every look takes long: who waits for rest gives up at the second.
uint64_t monotonic_ns() { return the_time.fetch_add(10'000'000); }

namespace {

// --- the driver ---------------------------------------------------------------------------------

constexpr size_t kMostWork = 4096;

// Pieces of work, by their numbers.
class Work {
 public:
  void add(size_t number) { bits_.at(number / 64) |= uint64_t{1} << number % 64; }
  bool has(size_t number) const { return (bits_.at(number / 64) >> number % 64 & 1) != 0; }
  void add(const Work& other) {
    for (size_t i = 0; i < bits_.size(); ++i) bits_[i] |= other.bits_[i];
  }

 private:
  std::array<uint64_t, kMostWork / 64> bits_{};
};

// No more order than CUDA promises: nothing passes what is said here. Any thread.
class FakeGpu {
 public:
  struct Queue {
    bool is_blocking = false;
    Work finished{};  // before what is put into it next
  };

  // What is finished before it.
  Work put(CUstream stream, size_t number) {
    const std::lock_guard lock(mutex_);
    Queue& queue = queue_of(stream);
    queue.finished.add(implicit(stream));
    const Work before = queue.finished;
    queue.finished.add(number);
    return before;
  }
  CUstream create(bool is_blocking) {
    const std::lock_guard lock(mutex_);
    const auto handle = reinterpret_cast<CUstream>(next_ += 64);
    queues_[handle].is_blocking = is_blocking;
    return handle;
  }
  // Its work goes on.
  void destroy(CUstream stream) {
    const std::lock_guard lock(mutex_);
    if (queue_of(stream).is_blocking) left_.add(queue_of(stream).finished);
    queues_.erase(stream);
  }
  void record(CUevent event, CUstream stream) {
    const std::lock_guard lock(mutex_);
    Work& told = events_[event] = queue_of(stream).finished;
    told.add(implicit(stream));
  }
  void wait(CUstream stream, CUevent event) {
    const std::lock_guard lock(mutex_);
    queue_of(stream).finished.add(events_.at(event));
  }
  CUevent new_event() {
    const std::lock_guard lock(mutex_);
    const auto handle = reinterpret_cast<CUevent>(next_ += 64);
    events_[handle];
    return handle;
  }
  bool is_blocking(CUstream stream) {
    const std::lock_guard lock(mutex_);
    return queue_of(stream).is_blocking;
  }

 private:
  Queue& queue_of(CUstream stream) {
    return queues_.at(stream == nullptr ? GS_CU_STREAM_LEGACY : stream);
  }
  // What the driver's own legacy stream puts before the next piece of work.
  Work implicit(CUstream stream) {
    Work work;
    if (stream == nullptr || stream == GS_CU_STREAM_LEGACY) {
      work.add(left_);
      for (const auto& [handle, queue] : queues_)
        if (queue.is_blocking) work.add(queue.finished);
    } else if (queue_of(stream).is_blocking) {
      work.add(queues_.at(GS_CU_STREAM_LEGACY).finished);
    }
    return work;
  }

  std::mutex mutex_;  // protects what follows
  std::map<CUstream, Queue> queues_{{GS_CU_STREAM_LEGACY, {}},
                                    {GS_CU_STREAM_PER_THREAD, {.is_blocking = true}}};
  std::map<CUevent, Work> events_;
  Work left_;  // of blocking streams that are gone
  uintptr_t next_ = 0x10000;
};

std::unique_ptr<FakeGpu> the_gpu;
std::function<void()> other_threads;  // what they do in the middle of a step; empty: nothing

void meanwhile() {
  if (!other_threads) return;
  const auto theirs = std::exchange(other_threads, {});
  theirs();
  other_threads = theirs;
}

const auto kContext = reinterpret_cast<CUcontext>(uintptr_t{0x500});

constinit const Driver kDriver{
    .cuCtxGetCurrent = [](CUcontext* context) { return *context = kContext, CUDA_SUCCESS; },
    .cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_SUCCESS; },
    .cuCtxPopCurrent_v2 = [](CUcontext*) { return CUDA_SUCCESS; },
    .cuDeviceGetPCIBusId =
        [](char* pci, int, CUdevice) {
          pci[0] = 'x', pci[1] = 0;
          return CUDA_SUCCESS;
        },
    .cuEventCreate = [](CUevent* event,
                        unsigned) { return *event = the_gpu->new_event(), CUDA_SUCCESS; },
    .cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; },
    .cuEventQuery = [](CUevent) { return CUDA_SUCCESS; },
    .cuEventRecord =
        [](CUevent event, CUstream stream) {
          meanwhile();
          the_gpu->record(event, stream);
          meanwhile();
          return CUDA_SUCCESS;
        },
    .cuStreamWaitEvent =
        [](CUstream stream, CUevent event, unsigned) {
          the_gpu->wait(stream, event);
          meanwhile();
          return CUDA_SUCCESS;
        },
    .cuStreamCreate =
        [](CUstream* stream, unsigned flags) {
          return *stream = the_gpu->create(flags == CU_STREAM_DEFAULT), CUDA_SUCCESS;
        },
    .cuStreamQuery = [](CUstream) { return CUDA_SUCCESS; },
    .cuStreamDestroy_v2 = [](CUstream stream) { return the_gpu->destroy(stream), CUDA_SUCCESS; },
    .cuStreamGetFlags =
        [](CUstream stream, unsigned* flags) {
          *flags = the_gpu->is_blocking(stream) ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
          return CUDA_SUCCESS;
        },
    .cuStreamGetPriority = [](CUstream, int*) { return CUDA_SUCCESS; },
    .cuStreamIsCapturing =
        [](CUstream, CUstreamCaptureStatus* status) {
          return *status = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
        },
    .cuStreamCopyAttributes = [](CUstream, CUstream) { return CUDA_SUCCESS; },
    .cuDeviceGetDevResource = [](CUdevice, CUdevResource*,
                                 CUdevResourceType) { return CUDA_SUCCESS; },
    .cuDevSmResourceSplitByCount = [](CUdevResource*, unsigned* count, const CUdevResource*,
                                      CUdevResource*, unsigned,
                                      unsigned) { return *count = 16, CUDA_SUCCESS; },
    .cuDevResourceGenerateDesc = [](CUdevResourceDesc*, CUdevResource*,
                                    unsigned) { return CUDA_SUCCESS; },
    .cuGreenCtxCreate =
        [](CUgreenCtx* green, CUdevResourceDesc, CUdevice, unsigned) {
          *green = reinterpret_cast<CUgreenCtx>(uintptr_t{0x600});
          return CUDA_SUCCESS;
        },
    .cuGreenCtxDestroy = [](CUgreenCtx) { return CUDA_SUCCESS; },
    .cuGreenCtxStreamCreate = [](CUstream* stream, CUgreenCtx, unsigned,
                                 int) { return *stream = the_gpu->create(false), CUDA_SUCCESS; },
};

}  // namespace

const Driver* driver() { return &kDriver; }

namespace {

// --- the program --------------------------------------------------------------------------------

class StreamsTest : public testing::Test {
 protected:
  StreamsTest() { start_over(); }

  // A new process, and a GPU without work.
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
    // As what names no stream, or is too large for a partition.
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
  // As its wrapper does.
  void destroy(CUstream stream) {
    streams().before_destroy(stream);
    the_gpu->destroy(stream);
  }
  void move_to(uint64_t groups) { slot_->gpus[0].wanted = groups; }
  // A whole call; its number.
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

  std::map<CUstream, bool> is_blocking_;  // of the program's
  std::atomic<uint64_t> steps_{0};
  std::mutex mutex_;        // of the list
  std::deque<Told> calls_;  // each belongs to the thread that makes it
};

constexpr CUstream kLegacy = nullptr;

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

// Its call has begun; the driver has its work only after another thread's.
TEST_F(StreamsTest, WorkOfTheLegacyStreamIsWaitedForOnceItIsThere) {
  const CUstream stream = new_stream();
  move_to(1);
  launch(stream);
  launch(kLegacy);
  Call legacy(*this, kLegacy);
  launch(stream);
  legacy.put();
  legacy.end();
  const size_t later = launch(stream);
  EXPECT_TRUE(is_first(legacy.number(), later));
  EXPECT_EQ(broken(), std::vector<std::string>{});
}

TEST_F(StreamsTest, WorkOfABlockingStreamIsWaitedForOnceItIsThere) {
  const CUstream stream = new_stream();
  move_to(1);
  launch(stream);
  launch(kLegacy);
  Call blocking(*this, stream);
  launch(kLegacy);
  blocking.put();
  blocking.end();
  const size_t later = launch(kLegacy);
  EXPECT_TRUE(is_first(blocking.number(), later));
  EXPECT_EQ(broken(), std::vector<std::string>{});
}

// The legacy stream is at home with all others when its call begins, and not any more when it ends.
TEST_F(StreamsTest, AStreamThatLeavesMeanwhileWaitsForTheLegacyStream) {
  const CUstream stream = new_stream();
  for (const uint64_t groups : {1, 0}) {  // makes its place there, and all are at home again
    move_to(groups);
    launch(stream);
  }
  launch(kLegacy);
  Call legacy(*this, kLegacy);
  move_to(1);
  launch(stream);
  legacy.put();
  legacy.end();
  const size_t later = launch(stream);
  EXPECT_TRUE(is_first(legacy.number(), later));
  EXPECT_EQ(broken(), std::vector<std::string>{});
}

// The same, in the midst of leaving: the place it comes to waits only for what was there before.
TEST_F(StreamsTest, AStreamThatIsLeavingWaitsForTheLegacyStream) {
  const CUstream stream = new_stream();
  for (const uint64_t groups : {1, 0}) {
    move_to(groups);
    launch(stream);
  }
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

TEST_F(StreamsTest, OrderHoldsAcrossThreads) {
  constexpr uint64_t kSets = 4;
  std::vector<CUstream> handles{kLegacy};
  for (int i = 0; i < 5; ++i) handles.push_back(new_stream(i % 3 != 2));
  for (uint64_t groups = 0; groups < kSets; ++groups) {
    move_to(groups);
    for (const CUstream stream : handles) launch(stream);
  }
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      for (int i = 0; i < 400; ++i) {
        if (random() % 8 == 0) move_to(random() % kSets);
        const CUstream stream = handles[random() % handles.size()];
        random() % 4 == 0 ? copy(stream) : launch(stream);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(broken(), std::vector<std::string>{});
  EXPECT_GT(slot_->gpus[0].moves, 50u);
}

// Four threads, which are anywhere in a call when another one takes its next step.
class InterleavedTest : public StreamsTest {
 protected:
  ~InterleavedTest() override { other_threads = {}; }

  void begin(uint64_t seed) {
    start_over();
    random_.seed(seed);
    handles_ = {kLegacy, GS_CU_STREAM_PER_THREAD};
    for (int i = 0; i < 5; ++i) handles_.push_back(new_stream(i % 3 != 2));
    visit_all_sets();
    other_threads = [this] {
      const size_t who = random_() % kThreads;
      if (who == at_work_ || calls_of_[who] == nullptr) return;
      put_or_end(who);
      ++steps_between_;
    };
  }
  void step() {
    if (random_() % 8 == 0) move_to(random_() % kSets);
    if (random_() % 64 == 0) replace(handles_[random_() % handles_.size()]);
    if (random_() % 128 == 0) visit_all_sets();
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
  static constexpr uint64_t kSets = 4;

  void put_or_end(size_t who) {
    if (has_put_[who]) return calls_of_[who].reset();
    has_put_[who] = true;
    calls_of_[who]->put();
  }
  // Places in them are only made when nothing is in a call.
  void visit_all_sets() {
    end_all_calls();
    for (uint64_t groups = 0; groups < kSets; ++groups) {
      move_to(groups);
      for (const CUstream stream : handles_) launch(stream);
    }
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
  size_t at_work_ = kThreads;  // who is in the middle of a step
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
