// SPDX-License-Identifier: Apache-2.0
// The rule of streams_rig.h where a thread stands still between any two instructions of a call,
// while another thread makes whole calls. That one goes on as far as it can without the first
// (until it only yields, as it waits for a lock), and then both end. Beside CUDA's order: `applied`
// is not said while something runs elsewhere, what is counted is what there is, and no stream stays
// held, so that launches in all of them come through.
//
// GPUSHARE_TEST_STEPS=1 stands still at every instruction, =N at every N-th.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <thread>

#include "tests/intercept/shim/streams/streams_rig.h"
#include "tests/support/given.h"
#include "tests/support/sanitized.h"

namespace gpushare::shim {
namespace {

using namespace std::chrono_literals;

// A thread that has yielded so often waits for another one.
constexpr uint64_t kManyYields = 300;
constinit thread_local uint64_t yields = 0;
constinit thread_local const std::function<void()>* when_it_waits = nullptr;

}  // namespace
}  // namespace gpushare::shim

#if !GS_IS_SANITIZED
// The shim yields where it waits for another thread.
extern "C" int sched_yield() noexcept {
  using namespace gpushare::shim;
  if (++yields == kManyYields && when_it_waits != nullptr) (*when_it_waits)();
  return static_cast<int>(::syscall(SYS_sched_yield));
}
#endif

namespace gpushare::shim {
namespace {

class StepsTest : public StreamsTest {
 protected:
  struct World {
    uint64_t at;  // the partition that the streams are in; 0: none
    // So many streams are busy: `s`, and those that threads end. All that is launched from then on
    // runs on. 0: all ends at once.
    int busy;
    uint64_t wanted;  // by then, and the streams that are not busy are there
    bool is_small;    // there are only `s`, `t` and the legacy stream
  };
  struct Kind {
    const char* name;
    void (*call)(StepsTest&, size_t who);
  };

  // A new process touches few pages of a large table; large pages would all be cleared.
  StepsTest() { ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }
  ~StepsTest() override {
    forget_process();
    ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
  }

  // The streams are in place, all is done, and partitions 1 and 2 are there, 3 is not.
  void begin(const World& world) {
    forget_process();
    the_time = 1'000'000'000;
    start_over();
    destroyed_.clear();
    wrong_.clear();
    s_ = new_stream();
    t_ = new_stream();
    if (!world.is_small) {
      n_ = new_stream(false);
      for (CUstream& each : of_thread_) each = new_stream();
      for (CUstream& each : captures_) each = new_stream(false);
      blocking_capture_ = new_stream();
    }
    const std::vector<CUstream> all = handles();
    const uint64_t sets[] = {2, 1, world.at};
    // Another one first, so that a partition's place is its number.
    visit({{1}}, all);
    visit(sets, all);
    ASSERT_EQ(slot_->gpus[0].applied, world.at);
    if (world.busy > 0) {
      for (size_t i = calls(); i < kMostWork; ++i) the_gpu->running.add(i);
      launch(s_);
    }
    if (world.busy > 1)
      for (const CUstream each : of_thread_) launch(each);
    if (world.wanted != world.at) visit({{world.wanted}}, {{t_}});
    applied_ = slot_->gpus[0].applied;
  }

  std::vector<CUstream> handles() const {
    std::vector<CUstream> all{kLegacy, s_, t_};
    if (n_ == nullptr) return all;
    for (const CUstream each :
         {n_, of_thread_[0], of_thread_[1], captures_[0], captures_[1], blocking_capture_})
      all.push_back(each);
    return all;
  }

  // Stands still before that instruction of `a`, while another thread makes the calls `b`.
  void meet(const Kind& a, const Kind& b, Point where) {
    std::mutex mutex;
    std::condition_variable changed;
    enum class Turn : uint8_t { kFirst, kSecond, kBoth } turn = Turn::kFirst;
    int ended = 0;
    const auto give = [&](Turn next) {
      const std::lock_guard lock(mutex);
      turn = next;
      changed.notify_all();
    };
    const auto wait_for = [&](auto is_so) {
      std::unique_lock lock(mutex);
      return changed.wait_for(lock, kMostTime, is_so);
    };
    const auto run = [&](const std::function<void()>& body) {
      try {
        body();
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        wrong_.push_back(std::string("a call threw ") + error.what());
      }
      const std::lock_guard lock(mutex);
      ++ended;
      turn = Turn::kBoth;
      changed.notify_all();
    };
    std::thread first([&] {
      run([&] {
        has_stood_ = Stepping::stand_still([&] { a.call(*this, 0); }, where,
                                           [&] {
                                             give(Turn::kSecond);
                                             wait_for([&] { return turn == Turn::kBoth; });
                                           });
      });
    });
    std::thread second([&] {
      run([&] {
        wait_for([&] { return turn != Turn::kFirst; });
        const std::function<void()> let_go_on = [&] { give(Turn::kBoth); };
        yields = 0;
        when_it_waits = &let_go_on;
        b.call(*this, 1);
        when_it_waits = nullptr;
        check_applied();
      });
    });
    if (!wait_for([&] { return ended == 2; })) give_up();
    first.join();
    second.join();
    check_applied();
    check_counts();
  }

  // Launches in all streams, also in those that come where others were, and the streams come to
  // where they are wanted.
  void go_on() {
    std::mutex mutex;
    std::condition_variable changed;
    bool has_ended = false;
    std::thread third([&] {
      try {
        for (const CUstream each : std::exchange(destroyed_, {})) create_again(each);
        for (const CUstream each : handles()) launch(each);
        for (const CUstream each : handles()) launch(each);
        the_gpu->running = {};
        for (int i = 0; i < 3; ++i)
          for (const CUstream each : handles()) launch(each);
        if (slot_->gpus[0].applied != slot_->gpus[0].wanted)
          wrong_.push_back("it stays at " + std::to_string(slot_->gpus[0].applied) + ", not " +
                           std::to_string(slot_->gpus[0].wanted));
      } catch (const std::exception& error) {
        wrong_.push_back(std::string("a later call threw ") + error.what());
      }
      const std::lock_guard lock(mutex);
      has_ended = true;
      changed.notify_all();
    });
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, kMostTime, [&] { return has_ended; })) give_up();
    lock.unlock();
    third.join();
    check_counts();
    for (const std::string& each : broken()) wrong_.push_back(each);
  }

  // How many instructions each stretch of the call has.
  const std::vector<uint32_t>& counts_of(const World& world, const Kind& of) {
    auto& counts = counts_[{&world, &of}];
    if (counts.empty()) {
      begin(world);
      std::thread([&] { counts = Stepping::count([&] { of.call(*this, 0); }); }).join();
    }
    return counts;
  }

  // All instructions of `a`, or each `stride`-th, and `b` meanwhile. Returns what was wrong.
  std::vector<std::string> walk(const World& world, const Kind& a, const Kind& b, uint32_t stride,
                                uint32_t offset = 0) {
    const std::vector<uint32_t>& counts = counts_of(world, a);
    std::vector<std::string> found;
    uint32_t k = 0;
    for (uint32_t stretch = 0; stretch < counts.size(); ++stretch)
      for (uint32_t i = 0; i < counts[stretch]; ++i, ++k) {
        if (k % stride != offset % stride) continue;
        begin(world);
        meet(a, b, {stretch, i});
        go_on();
        stood_ += has_stood_ ? 1 : 0;
        ++walked_;
        if (!wrong_.empty())
          found.push_back("in " + std::to_string(world.at) + ", wanted " +
                          std::to_string(world.wanted) + ", busy " + std::to_string(world.busy) +
                          ": " + a.name + " at " + std::to_string(stretch) + ":" +
                          std::to_string(i) + " beside " + b.name + ": " + wrong_.front());
        if (found.size() == kEnough) return found;
      }
    return found;
  }

  // --- calls
  // --------------------------------------------------------------------------------------

  void call(CUstream stream, Use use = Use::kLaunch) {
    Call made(*this, stream, use);
    if (!made.is_refused()) made.put();
  }
  void call_at_home(CUstream stream) {
    Call made(*this, stream, Use::kOperation);
    if (!made.is_refused()) made.put_at_home();
  }
  void wait(CUstream stream) {
    {
      Call made(*this, stream, Use::kWait);
      if (!made.is_refused()) made.wait();
    }
    streams().after_wait();
  }
  void query(CUstream stream) {
    Call made(*this, stream, Use::kQuery);
    if (!made.is_refused()) made.query();
  }
  void end(size_t who) {
    destroy(of_thread_[who]);
    end_calls_in(of_thread_[who]);
    const std::lock_guard lock(mutex_);
    destroyed_.push_back(of_thread_[who]);
  }
  void create_again(CUstream handle) {
    the_gpu->create_again(handle);
    streams().on_created(handle);
  }
  void replace(size_t who) {
    destroy(of_thread_[who]);
    end_calls_in(of_thread_[who]);
    create_again(of_thread_[who]);
    call(of_thread_[who]);
  }
  // As the wrappers do.
  [[gnu::noinline]] void capture(CUstream stream) {
    Stream& known = *streams().find(stream, Flavor::kLegacy);
    for (int tries = 1;; ++tries) {
      streams().before_capture(known);
      const StreamUse use(stream, Flavor::kLegacy, Use::kOperation);
      if (tries < 1000 && !streams().is_at_captures(known)) continue;
      streams().begin_capture(known, [&] {
        the_gpu->begin_capture(use.physical());
        return CUDA_SUCCESS;
      });
      break;
    }
    {
      const StreamUse use(stream, Flavor::kLegacy, Use::kLaunch);
    }
    const StreamUse use(stream, Flavor::kLegacy, Use::kWait);
    the_gpu->end_capture(use.physical());
    streams().end_capture(known);
  }
  void announce(uint64_t groups) {
    slot_->soon[0].sets[0] = groups;
    wait(n_);
  }

  static constexpr World kBusy{1, 1, 1, false}, kBusySmall{1, 1, 1, true}, kIdle{1, 0, 1, false},
      kAtHome{0, 1, 0, false}, kAllBusy{1, 3, 1, false}, kLate{1, 1, 2, false},
      kLateSmall{1, 1, 2, true};
  static std::span<const Kind> kinds();
  static const Kind& kind(std::string_view name) {
    for (const Kind& each : kinds())
      if (each.name == name) return each;
    throw std::out_of_range(std::string(name));
  }

  // Each instruction of `a`, or only those in these functions (see Stepping).
  void expect_right(const World& world, std::string_view a, std::string_view b,
                    std::initializer_list<std::string_view> only_in = {});

  uint64_t walked_ = 0, stood_ = 0;  // stops that there were to be, and that there were

  CUstream s_ = nullptr, t_ = nullptr, n_ = nullptr;
  // By thread; those that end are blocking, those that capture are not.
  std::array<CUstream, 2> of_thread_{}, captures_{};
  CUstream blocking_capture_ = nullptr;
  std::vector<std::string> wrong_;

 private:
  static constexpr auto kMostTime = 30s;
  static constexpr size_t kEnough = 5;

  // So that thousands of processes have room.
  void forget_process() {
    if (Streams* const old = the_process.streams.exchange(nullptr); old != nullptr)
      ::munmap(old, sizeof(Streams));
  }
  // What the threads use must stay, and no other test can run beside them.
  [[noreturn]] static void give_up() {
    ADD_FAILURE() << "a thread is held for ever";
    std::fflush(stdout);
    std::_Exit(1);
  }
  void check_applied() {
    const uint64_t applied = slot_->gpus[0].applied, wanted = slot_->gpus[0].wanted;
    if (applied == applied_ || applied != wanted) return;
    for (const std::string& each : running_elsewhere(static_cast<uint8_t>(applied))) {
      const std::lock_guard lock(mutex_);
      wrong_.push_back("applied " + std::to_string(applied) + " while it runs: " + each);
    }
  }
  // No call is being made.
  void check_counts() {
    Device& device = *streams().device_in(nullptr);
    uint32_t away = 0;
    uint32_t there[1 + Partitions::kMost] = {};
    streams().for_each_used(device, [&](Stream& stream) {
      if (stream.users != 0) wrong_.push_back("a stream stays in use");
      away += stream.place != 0 ? 1 : 0;
      ++there[stream.place];
    });
    if (device.away != away)
      wrong_.push_back("away: " + std::to_string(device.away) + ", not " + std::to_string(away));
    for (int i = 1; i <= Partitions::kMost; ++i)
      if (device.inhabitants[i] != there[i])
        wrong_.push_back("at " + std::to_string(i) + ": " + std::to_string(device.inhabitants[i]) +
                         ", not " + std::to_string(there[i]));
    if (device.ending != 0) wrong_.push_back("a stream is ending for ever");
  }

  std::vector<CUstream> destroyed_;
  uint64_t applied_ = 0;
  bool has_stood_ = false;
  std::map<std::pair<const World*, const Kind*>, std::vector<uint32_t>> counts_;
  std::mutex mutex_;  // of wrong_ and destroyed_
};

std::span<const StepsTest::Kind> StepsTest::kinds() {
  static constexpr Kind kKinds[] = {
      {"a launch in s", [](StepsTest& test, size_t) { test.call(test.s_); }},
      {"a launch in s, then legacy work",
       [](StepsTest& test, size_t) { test.call(test.s_), test.call(kLegacy); }},
      {"legacy work", [](StepsTest& test, size_t) { test.call(kLegacy); }},
      {"legacy work, then a launch in s",
       [](StepsTest& test, size_t) { test.call(kLegacy), test.call(test.s_); }},
      {"legacy work, then a launch in t",
       [](StepsTest& test, size_t) { test.call(kLegacy), test.call(test.t_); }},
      {"a launch in n", [](StepsTest& test, size_t) { test.call(test.n_); }},
      {"a launch in t", [](StepsTest& test, size_t) { test.call(test.t_); }},
      {"a copy in s", [](StepsTest& test, size_t) { test.call_at_home(test.s_); }},
      {"a legacy copy", [](StepsTest& test, size_t) { test.call_at_home(kLegacy); }},
      {"a move of s to 2", [](StepsTest& test, size_t) { test.move_to(2), test.call(test.s_); }},
      {"a move of t to 2", [](StepsTest& test, size_t) { test.move_to(2), test.call(test.t_); }},
      {"a move of legacy work to 2",
       [](StepsTest& test, size_t) { test.move_to(2), test.call(kLegacy); }},
      {"a move of t home", [](StepsTest& test, size_t) { test.move_to(0), test.call(test.t_); }},
      {"a partition made for t",
       [](StepsTest& test, size_t) { test.move_to(3), test.call(test.t_); }},
      {"a query of the legacy stream", [](StepsTest& test, size_t) { test.query(kLegacy); }},
      {"a wait for the legacy stream", [](StepsTest& test, size_t) { test.wait(kLegacy); }},
      {"a wait for s", [](StepsTest& test, size_t) { test.wait(test.s_); }},
      {"the end of a stream", [](StepsTest& test, size_t who) { test.end(who); }},
      {"a stream at another's address", [](StepsTest& test, size_t who) { test.replace(who); }},
      {"a capture", [](StepsTest& test, size_t who) { test.capture(test.captures_[who]); }},
      {"a capture in a blocking stream",
       [](StepsTest& test, size_t) { test.capture(test.blocking_capture_); }},
      {"a launch in a thread's own stream",
       [](StepsTest& test, size_t) { test.call(GS_CU_STREAM_PER_THREAD); }},
      {"questions about s",
       [](StepsTest& test, size_t) {
         Stream& known = *streams().find(test.s_, Flavor::kLegacy);
         streams().is_empty(known);
         streams().is_leaving(known);
         streams().hand_over(known, the_gpu->new_event());
         streams().look_up();
       }},
      {"a partition announced", [](StepsTest& test, size_t) { test.announce(3); }},
  };
  return kKinds;
}

void StepsTest::expect_right(const World& world, std::string_view a, std::string_view b,
                             std::initializer_list<std::string_view> only_in) {
  if (!Stepping::is_possible()) GTEST_SKIP() << "no stepping here: sanitized, or not on x86-64";
  Stepping::count_only_in(only_in);
  EXPECT_EQ(walk(world, kind(a), kind(b), 1), std::vector<std::string>{});
  Stepping::count_only_in({});
  EXPECT_EQ(walked_, stood_);
  EXPECT_GT(stood_, 20u);
}

// Another thread that finds it dirty ends its call, and legacy work that comes next waits for it.
TEST_F(StepsTest, AStreamIsListedOnceItIsFoundDirty) {
  expect_right(kBusySmall, "legacy work, then a launch in s", "a launch in s, then legacy work");
}

TEST_F(StepsTest, AppliedIsNotSaidWhileAStreamIsAboutToLeave) {
  expect_right(kLateSmall, "a launch in s", "a launch in t", {"7Streams2goE", "7Streams4moveE"});
}

// It is held for a partition to be made, and another one comes with its handle.
TEST_F(StepsTest, AStreamThatEndsIsNotHeldForEver) {
  expect_right(kIdle, "a partition announced", "the end of a stream", {"7Streams12hold_at_restE"});
}

TEST_F(StepsTest, LegacyWorkWaitsForAStreamThatEndsWhileItIsAsked) {
  expect_right(kAllBusy, "a query of the legacy stream", "the end of a stream",
               {"7Streams6gatherE", "7Streams9has_endedE", "7Streams10is_at_restE"});
}

// An empty stream moves between the look whether it may be used as it is and its use.
TEST_F(StepsTest, AStreamThatMovesBeforeItsUseWaitsForLegacyWork) {
  expect_right(kAtHome, "legacy work, then a launch in t", "a move of s to 2");
}

// The driver captures before the shim knows it.
TEST_F(StepsTest, LegacyWorkIsInOrderBesideTheBeginOfACapture) {
  expect_right(kBusy, "a capture in a blocking stream", "legacy work",
               {"9StepsTest7captureE", "7Streams13begin_captureE"});
}

// Each pair of calls, at a few instructions.
TEST_F(StepsTest, AllPairs) {
  if (!Stepping::is_possible()) GTEST_SKIP() << "no stepping here: sanitized, or not on x86-64";
  const auto stride = static_cast<uint32_t>(test::number_given("GPUSHARE_TEST_STEPS", 9973));
  // The first instruction is another one in each pair.
  constexpr uint32_t kApart = 631;
  uint32_t offset = 0;
  for (const World* const world : {&kBusy, &kIdle, &kAtHome, &kAllBusy, &kLate})
    for (const Kind& a : kinds())
      for (const Kind& b : kinds())
        for (const std::string& each : walk(*world, a, b, stride, offset += kApart))
          ADD_FAILURE() << each;
  EXPECT_EQ(walked_, stood_);
  EXPECT_GT(stood_, 0u);
}

}  // namespace
}  // namespace gpushare::shim
