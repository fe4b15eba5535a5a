// SPDX-License-Identifier: Apache-2.0
// What waits for what when streams move, call by call (streams_rig.h has the rule).
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <random>
#include <thread>

#include "tests/intercept/shim/streams/streams_rig.h"

namespace gpushare::shim {
namespace {

using Place = Partitions::Place;

// From now on the calling thread may not ask for others. False: the kernel knows no such rule.
bool refuse_tgkill() {
  sock_filter rule[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = std::size(rule), .filter = rule};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

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

// Natively it never blocks, and the recording of an event may, beside another thread's cuMemFree.
TEST_F(StreamsTest, AQueryOfTheLegacyStreamPutsNothingInLine) {
  const auto query = [] {
    return StreamUse(kLegacy, Flavor::kLegacy, Use::kQuery).answer(CUDA_SUCCESS);
  };
  struct Row {
    const char* description;
    bool is_legacy_away, is_work_away;
  };
  for (const Row& row :
       {Row{"both away", true, true}, Row{"the legacy stream at home", false, true},
        Row{"the work at home", true, false}}) {
    SCOPED_TRACE(row.description);
    start_over();
    const CUstream away = new_stream(), home = new_stream();
    visit(kSets, {{kLegacy, away}});
    if (!row.is_legacy_away) {
      move_to(0);
      launch(kLegacy);
      move_to(3);
      launch(away);
    }
    EXPECT_EQ(query(), CUDA_SUCCESS);
    Call call(*this, row.is_work_away ? away : home, Use::kOperation);
    ASSERT_EQ(call.is_away(), row.is_work_away);
    call.put();
    call.end();
    the_gpu->running.add(call.number());
    int calls = 0;
    other_threads = [&] { ++calls; };
    for (int i = 0; i < 3; ++i) EXPECT_EQ(query(), CUDA_ERROR_NOT_READY);
    other_threads = {};
    EXPECT_EQ(calls, 0);
    EXPECT_TRUE(is_first(call.number(), copy(kLegacy))) << "it is waited for later";
    the_gpu->running = {};
    EXPECT_EQ(query(), CUDA_SUCCESS);
    EXPECT_EQ(broken(), std::vector<std::string>{});
  }
}

// At each moment of its end.
TEST_F(StreamsTest, TheLegacyStreamWaitsForAStreamThatIsBeingDestroyed) {
  for (const bool is_legacy_away : {false, true})
    for (int when = 1;; ++when) {
      SCOPED_TRACE(when);
      start_over();
      const CUstream stream = new_stream(), other = new_stream();
      visit(kSets, {{kLegacy, stream, other}});
      if (!is_legacy_away) {
        move_to(0);
        launch(kLegacy);
        move_to(3);
        for (const CUstream each : {stream, other}) launch(each);
      }
      const size_t left = launch(stream);
      size_t legacy = 0;
      int times = 0;
      other_threads = [&] {
        if (++times != when) return;
        std::thread([&] {
          Call call(*this, kLegacy, Use::kOperation);
          call.put();
          legacy = call.number();
        }).join();
      };
      destroy(stream);
      other_threads = {};
      if (legacy == 0) {
        EXPECT_GT(when, 2);
        break;
      }
      EXPECT_TRUE(is_first(left, legacy));
      EXPECT_EQ(broken(), std::vector<std::string>{});
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
// A stream that captures ends with its context, so that its capture does, too.
TEST_F(StreamsTest, ACaptureInAContextThatIsGoneIsOver) {
  const CUstream stream = new_stream();
  launch(stream);
  streams().begin_capture(*streams().find(stream, Flavor::kLegacy));
  EXPECT_TRUE(streams().is_any_capturing());
  streams().before_release(0, true);
  EXPECT_FALSE(streams().is_any_capturing());
  the_gpu->destroy(stream);
  streams().on_retained(0, kContext);
  launch_in_partition();
}

// A stream that another thread uses while the capture begins stays where it is. It goes when it
// waits for an event of the capture, and so joins it, but not for another event.
TEST_F(StreamsTest, AStreamThatJoinsACaptureIsWhereItIs) {
  const CUstream captures = new_stream(false), joins = new_stream(false);
  Stream& capturing = *streams().find(captures, Flavor::kLegacy);
  Stream& joining = *streams().find(joins, Flavor::kLegacy);
  const CUevent captured = the_gpu->new_event(), other = the_gpu->new_event();
  visit(kSets, std::array{captures, joins});
  for (const uint64_t groups : {1, 2}) {  // the first is where the process captures from now on
    move_to(groups);
    for (const CUstream stream : {captures, joins}) launch(stream);
    {
      Call call(*this, joins);
      call.put();
      streams().before_capture(capturing);
    }
    streams().begin_capture(capturing);
    ASSERT_TRUE(streams().is_at_captures(capturing)) << groups;
    ASSERT_EQ(streams().is_at_captures(joining), groups == 1);
    streams().note_recorded(nullptr, captured);
    streams().before_joining(joining, other);
    EXPECT_EQ(streams().is_at_captures(joining), groups == 1);
    streams().before_joining(joining, captured);
    EXPECT_TRUE(streams().is_at_captures(joining)) << groups;
    streams().end_capture(capturing);
  }
  EXPECT_EQ(broken(), std::vector<std::string>{});
}

// A kernel that is too large for the partition. It would run at once, beside the graph.
TEST_F(StreamsTest, WhatIsRefusedInACaptureThatIsInvalidRunsNowhere) {
  const CUstream stream = new_stream(false);
  visit(kSets, {{stream}});
  StreamUse use(stream, Flavor::kLegacy, Use::kLaunch);
  ASSERT_TRUE(use.is_away());
  int launches = 0;
  const auto launch_there = [&](CUstream there) {
    EXPECT_EQ(there, stream);
    ++launches;
    return CUDA_SUCCESS;
  };
  record_answer = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  EXPECT_EQ(use.at_home(launch_there, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
            CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  record_answer = CUDA_SUCCESS;
  EXPECT_EQ(launches, 0);
  EXPECT_EQ(slot_->home_launches[0], 0u);
  EXPECT_EQ(use.at_home(launch_there, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES), CUDA_SUCCESS)
      << "in a capture that goes on home joins it";
  EXPECT_EQ(launches, 1);
}

// `joining` waits for an event that was recorded in the capture.
void capture_with(Streams& all, Stream& capturing, Stream& joining) {
  all.before_capture(capturing);
  all.begin_capture(capturing);
  const CUevent captured = the_gpu->new_event();
  all.note_recorded(nullptr, captured);
  all.before_joining(joining, captured);
  all.end_capture(capturing);
}

// Only the partitions where it captures are kept for its graphs, not each in which some stream is.
TEST_F(StreamsTest, AProgramThatCapturesGoesOnFollowing) {
  const CUstream captures = new_stream(false), joins = new_stream(false);
  Stream& capturing = *streams().find(captures, Flavor::kLegacy);
  Stream& joining = *streams().find(joins, Flavor::kLegacy);
  for (uint64_t groups = 1; groups <= 2 * Partitions::kMost; ++groups) {
    move_to(groups);
    for (int i = 0; i < 50 && slot_->gpus[0].applied != groups; ++i)
      for (const CUstream stream : {kLegacy, captures, joins}) launch(stream);
    ASSERT_EQ(slot_->gpus[0].applied, groups);
    capture_with(streams(), capturing, joining);
  }
}

// A stream that another thread uses all the time stays where it is, and so do its kernels.
TEST_F(StreamsTest, APartitionWhoseStreamHasJoinedACaptureIsKept) {
  const CUstream captures = new_stream(false), joins = new_stream(false);
  Stream& capturing = *streams().find(captures, Flavor::kLegacy);
  Stream& joining = *streams().find(joins, Flavor::kLegacy);
  visit(kSets, std::array{captures, joins});
  move_to(1);
  launch(captures);
  streams().before_capture(capturing);
  move_to(2);
  launch(joins);
  {
    Call call(*this, joins);
    call.put();
    capture_with(streams(), capturing, joining);
  }
  const uint32_t both = joining.device->captured;
  EXPECT_EQ(std::popcount(both), 2);
  EXPECT_NE(both >> joining.place & 1, 0u);
  EXPECT_NE(both >> capturing.place & 1, 0u);
}

// More than are remembered, of which none is taken for one that is not of a capture.
TEST_F(StreamsTest, AStreamThatJoinsByOneOfManyEventsIsWhereTheCaptureIs) {
  const CUstream captures = new_stream(false), joins = new_stream(false);
  Stream& capturing = *streams().find(captures, Flavor::kLegacy);
  Stream& joining = *streams().find(joins, Flavor::kLegacy);
  visit(kSets, std::array{captures, joins});
  streams().before_capture(capturing);
  move_to(1);
  for (const CUstream stream : {captures, joins}) launch(stream);
  {
    Call call(*this, joins);
    call.put();
    streams().before_capture(capturing);
  }
  streams().begin_capture(capturing);
  ASSERT_FALSE(streams().is_at_captures(joining));
  CUevent last = nullptr;
  for (uint32_t i = 0; i < 2 * Streams::kMostCapturedEvents; ++i)
    streams().note_recorded(nullptr, last = the_gpu->new_event());
  streams().before_joining(joining, last);
  EXPECT_TRUE(streams().is_at_captures(joining));
}

TEST_F(StreamsTest, AsManyStreamsAsEverComeOneAfterTheOther) {
  for (int i = 0; i < 200'000; ++i) destroy(new_stream());
  EXPECT_EQ(streams().listed(), 0u) << "those that are gone cost nothing when the others move";
  const CUstream stream = new_stream();
  move_to(1);
  launch(stream);
  Call call(*this, stream);
  EXPECT_TRUE(call.is_away());
  EXPECT_EQ(slot_->gpus[0].applied, 1u);
}

// It waits for the streams that have work, and looks at no others.
TEST_F(StreamsTest, AnOperationOfTheLegacyStreamCostsTheSameWithManyStreams) {
  const auto calls_with = [&](int streams) {
    start_over();
    move_to(1);
    std::vector<CUstream> made;
    for (int i = 0; i < streams; ++i) made.push_back(new_stream());
    for (const CUstream stream : made) launch(stream);
    launch(kLegacy);
    int calls = 0;
    other_threads = [&] { ++calls; };
    for (int i = 0; i < 8; ++i) {
      launch(made[0]);
      launch(kLegacy);
    }
    other_threads = {};
    return calls;
  };
  const int with_few = calls_with(2);
  EXPECT_GT(with_few, 0);
  EXPECT_EQ(calls_with(1000), with_few);
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

TEST_F(StreamsTest, AGpuThatTheNewSlotLacksIsTheProgramsAsAWhole) {
  const CUstream stream = new_stream(), idle = new_stream();
  move_to(1);
  for (const CUstream each : {stream, idle}) launch(each);
  const std::unique_ptr<ShimSlot> next = std::make_unique<ShimSlot>();
  next->head.gpu_count = 1;
  next->gpus[0].pci[0] = 'y';
  next->gpus[0].wanted = 2;
  the_process.slot = next.get();
  streams().look_up();
  EXPECT_EQ(streams().find(idle, Flavor::kLegacy)->place, 0) << "without a launch";
  {
    Call call(*this, stream);
    EXPECT_FALSE(call.is_away());
  }
  EXPECT_EQ(next->gpus[0].applied, 0u);
  EXPECT_EQ(next->gpus[0].follows, ShimFollows::kUnknown);
  next->gpus[1].pci[0] = 'x';  // it is shared after all
  next->gpus[1].wanted = 1;
  next->head.gpu_count = 2;
  streams().look_up();
  launch(stream);
  EXPECT_EQ(next->gpus[1].applied, 1u);
  the_process.slot = slot_.get();
}

// The agent has opened it late, and adds it to the slots that are there.
TEST_F(StreamsTest, AGpuThatJoinsLaterIsFound) {
  start_over();
  slot_->head.gpu_count = 0;
  streams().before_release(0, false);
  streams().on_retained(0, kContext);
  const CUstream stream = new_stream();
  move_to(1);
  launch(stream);
  streams().look_up();
  EXPECT_EQ(slot_->gpus[0].applied, 0u);
  slot_->head.gpu_count = 1;
  streams().look_up();
  launch(stream);
  EXPECT_EQ(slot_->gpus[0].applied, 1u);
}

// That may last, and says nothing of how long the work in line does.
TEST_F(StreamsTest, ALaunchThatIsHeldGoesOnWhenAnotherThreadCaptures) {
  const CUstream stream = new_stream(), captures = new_stream(false);
  Stream& capturing = *streams().find(captures, Flavor::kLegacy);
  for (const CUstream each : {stream, captures}) launch(each);
  int looks = 0;
  the_gpu->is_busy = [&] {
    if (++looks == 10) streams().begin_capture(capturing);
    return true;
  };
  move_to(1);
  const uint64_t begin = the_time;
  launch(stream);
  EXPECT_GE(looks, 10) << "it was held";
  EXPECT_LT(the_time - begin, Drain::kLeastPatienceNs);
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kWaitsForRest) << "and does not pause";
  streams().end_capture(capturing);
  the_gpu->is_busy = {};
  launch(stream);
  EXPECT_EQ(slot_->gpus[0].applied, 1u);
}

// Beside another thread whose stream is never empty, so that there is no rest.
TEST_F(StreamsTest, AStreamThatLacksItsStandInKeepsNoPartitionFromBeingMade) {
  const CUstream busy = new_stream();
  visit({{1}}, {{busy}});
  the_gpu->is_busy = [] { return true; };
  launch(busy);
  int held = 0;
  const auto goes = [&] {
    const CUstream stream = new_stream(false);
    const uint64_t begin = the_time;
    const Call call(*this, stream);
    held += the_time - begin >= Drain::kLeastPatienceNs;
    return call.is_away();
  };
  int away = 0;
  while (away < 100 && goes()) ++away;
  EXPECT_EQ(away, Device::kSpares);
  EXPECT_EQ(held, 1) << "the last one, for which nothing is made while others run";
  EXPECT_EQ(slot_->gpus[0].wanted, slot_->gpus[0].applied);
  // A rest that never came for it keeps no partition from being made.
  the_gpu->is_busy = {};
  move_to(2);
  launch(busy);
  EXPECT_EQ(slot_->gpus[0].applied, 2u);
  EXPECT_TRUE(goes());
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

// It may last for minutes, in which each launch would take the lock and ask the driver.
TEST_F(StreamsTest, WhatIsInTheWayIsAskedForOnceInAWhile) {
  const CUstream stream = new_stream();
  launch(stream);
  streams().count_other_contexts(1);
  move_to(1);
  launch(stream);
  the_step_ns = 1000;
  launch(stream);
  const size_t before = mode_changes;
  for (int i = 0; i < 100; ++i) launch(stream);
  EXPECT_EQ(mode_changes, before);
  the_time += Streams::kHinderedNs;
  launch(stream);
  EXPECT_GT(mode_changes, before);
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kOwnContexts);
  streams().count_other_contexts(-1);
  launch(stream);
  EXPECT_EQ(slot_->gpus[0].applied, 1u) << "at once when nothing is in the way";
  // A kernel that waits for the host.
  the_step_ns = kUsualStepNs;
  the_gpu->is_busy = [] { return true; };
  move_to(2);
  launch(stream);
  ASSERT_EQ(slot_->gpus[0].follows, ShimFollows::kPauses);
  the_step_ns = 1000;
  launch(stream);
  move_to(0);
  const Call call(*this, stream);
  EXPECT_FALSE(call.is_away()) << "at once to where it can go";
  the_gpu->is_busy = {};
}

// PyCUDA and others have no primary context at all, or give it back.
TEST_F(StreamsTest, AProgramWithContextsOfItsOwnAloneIsInNoPartitionAndSaysWhy) {
  launch_in_partition();
  streams().before_release(0, false);
  streams().count_other_contexts(1);
  current_context = reinterpret_cast<CUcontext>(uintptr_t{0x501});
  const CUstream own = new_stream();
  launch(own);
  launch(kLegacy);
  EXPECT_EQ(slot_->gpus[0].applied, 0u);
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kOwnContexts);
  EXPECT_EQ(slot_->home_launches[0], 2u);
  current_context = kContext;
}

// The context that was in the partition is gone, and nothing can be made in the next one.
TEST_F(StreamsTest, ANewContextIsNotWhereTheOneBeforeWas) {
  launch_in_partition();
  streams().before_release(0, true);
  streams().count_other_contexts(1);
  streams().on_retained(0, kContext);
  launch(new_stream());
  EXPECT_EQ(slot_->gpus[0].applied, 0u);
  EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kOwnContexts);
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

// The stream itself cannot be asked any more.
TEST_F(StreamsTest, ItIsNotInThePartitionWhileADestroyedStreamsWorkRunsElsewhere) {
  for (const bool has_moved : {false, true}) {
    start_over();
    const CUstream stays = new_stream(false), ends = new_stream(false);
    visit(kThereAndHome, {{stays, ends}});
    the_gpu->running.add(launch(ends));
    if (has_moved) {
      move_to(1);
      launch(ends);  // and waits there
      EXPECT_EQ(slot_->gpus[0].applied, 0u);
    }
    destroy(ends);
    move_to(1);
    launch(stays);
    launch(stays);
    EXPECT_EQ(slot_->gpus[0].applied, 0u) << has_moved;
    EXPECT_EQ(slot_->gpus[0].follows, ShimFollows::kWorkRemains) << has_moved;
    the_gpu->running = {};
    launch(stays);
    EXPECT_EQ(slot_->gpus[0].applied, 1u) << has_moved;
  }
}

TEST_F(StreamsTest, WhatADestroyedStreamHasLeftInThePartitionIsThere) {
  const CUstream stays = new_stream(false), ends = new_stream(false);
  visit(kThereAndHome, {{stays, ends}});
  move_to(1);
  launch(stays);
  the_gpu->running.add(launch(ends));
  destroy(ends);
  launch(stays);
  EXPECT_EQ(slot_->gpus[0].applied, 1u);
  move_to(0);
  launch(stays);
  EXPECT_EQ(slot_->gpus[0].applied, 1u) << "and not where the process is to be now";
  the_gpu->running = {};
  launch(stays);
  EXPECT_EQ(slot_->gpus[0].applied, 0u);
}

TEST_F(StreamsTest, APartitionWhereADestroyedStreamsWorkRunsStays) {
  const CUstream stays = new_stream(false), ends = new_stream(false);
  Device& device = *streams().find(stays, Flavor::kLegacy)->device;
  for (uint64_t groups = 1; groups <= Partitions::kMost; ++groups) {
    move_to(groups);
    for (const CUstream stream : {stays, ends}) launch(stream);
  }
  move_to(1);
  launch(ends);
  the_gpu->running.add(launch(ends));
  const Place place = streams().find(ends, Flavor::kLegacy)->place;
  const CUcontext context = streams().context_of(device, place);
  ASSERT_NE(context, nullptr);
  destroy(ends);
  move_to(2);
  for (int i = 0; i < 40; ++i) launch(stays);
  move_to(Partitions::kMost + 1);
  for (int i = 0; i < 40; ++i) launch(stays);
  EXPECT_EQ(streams().context_of(device, place), context);
  the_gpu->running = {};
  for (int i = 0; i < 40; ++i) launch(stays);
  EXPECT_EQ(slot_->gpus[0].applied, Partitions::kMost + 1u);
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

// A program that has a new thread for each piece of work would have more and more stand-ins.
TEST_F(StreamsTest, AThreadHasTheStreamOfOneThatHasEnded) {
  visit(kSets, {{kLegacy}});
  size_t after_a_few = 0;
  for (int i = 0; i < 200; ++i) {
    std::thread([&] {
      move_to(1 + i % 3);
      for (int j = 0; j < 3; ++j) launch(GS_CU_STREAM_PER_THREAD);
    }).join();
    launch(kLegacy);
    if (i == 10) after_a_few = the_gpu->created();
  }
  EXPECT_EQ(the_gpu->created(), after_a_few);
  EXPECT_EQ(broken(), std::vector<std::string>{});
  EXPECT_GT(slot_->gpus[0].moves, 200u);
}

// Nothing would move any more, and calls of the legacy stream would be refused.
TEST_F(StreamsTest, TheCaptureOfAThreadThatHasEndedIsOver) {
  const CUstream stream = new_stream();
  visit({{1}}, {{stream}});
  for (const bool is_away : {true, false}) {
    SCOPED_TRACE(is_away);
    move_to(is_away ? 1 : 0);
    launch(stream);
    CUstream there = nullptr;
    std::thread([&] {
      launch(GS_CU_STREAM_PER_THREAD);
      Stream& own = *streams().find(GS_CU_STREAM_PER_THREAD, Flavor::kLegacy);
      streams().begin_capture(own);
      there = own.physical();
      launch(GS_CU_STREAM_PER_THREAD);
      EXPECT_TRUE(streams().is_any_capturing()) << "while it lives";
    }).join();
    ended_capture = nullptr;
    launch(stream);
    EXPECT_FALSE(streams().is_any_capturing());
    EXPECT_EQ(ended_capture, is_away ? there : nullptr);
    move_to(2);
    launch(stream);
    EXPECT_EQ(slot_->gpus[0].applied, 2u);
  }
}

// Work in line in a stand-in would hold up what has nothing to do with it.
TEST_F(StreamsTest, NobodyHasTheStreamOfAThreadThatLivesOrWhoseWorkRuns) {
  visit({{1}}, {{kLegacy, GS_CU_STREAM_PER_THREAD}});
  the_gpu->is_busy = [] { return true; };
  size_t last = launch(GS_CU_STREAM_PER_THREAD);
  int away = 0;
  for (int i = 0; i < 20; ++i)
    std::thread([&] {
      Call call(*this, GS_CU_STREAM_PER_THREAD);
      call.put();
      away += call.is_away();
      EXPECT_FALSE(is_first(last, call.number()));
      last = call.number();
    }).join();
  EXPECT_GT(away, 0) << "in stand-ins that were there; nothing can be made";
  EXPECT_LE(away, Device::kSpares);
  the_gpu->is_busy = {};
}

// A sandbox may refuse the question whether a thread lives. Were its stream taken away from one
// that does, its work at home would not be seen any more by those that move the stream.
TEST_F(StreamsTest, NobodyHasTheStreamOfAThreadOfWhichNothingIsKnown) {
  launch(GS_CU_STREAM_PER_THREAD);
  Stream* const mine = streams().find(GS_CU_STREAM_PER_THREAD, Flavor::kLegacy);
  std::thread([&] {
    ASSERT_TRUE(refuse_tgkill());
    EXPECT_NE(streams().find(GS_CU_STREAM_PER_THREAD, Flavor::kLegacy), mine);
  }).join();
}

TEST_F(StreamsTest, OrderHoldsWhileThreadsComeAndGo) {
  visit(kSets, {{kLegacy}});
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      for (int i = 0; i < 40; ++i)
        std::thread([&] {
          for (uint64_t j = 1 + random() % 8; j > 0; --j) {
            if (random() % 8 == 0) move_to(random() % std::size(kSets));
            launch(random() % 4 == 0 ? kLegacy : GS_CU_STREAM_PER_THREAD);
          }
        }).join();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(broken(), std::vector<std::string>{});
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

// More threads than processors, so that now and then one of them stands still inside a call while
// the others use the same stream.
TEST_F(StreamsTest, OrderHoldsBesideThreadsThatStandStill) {
  constexpr int kRounds = 60, kThreads = 16, kCalls = 50;
  for (int round = 0; round < kRounds; ++round) {
    start_over();
    const CUstream stream = new_stream();
    visit({{1}}, {{kLegacy, stream}});
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        for (int j = 0; j < kCalls; ++j) launch((i + j) % 2 == 0 ? stream : kLegacy);
      });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(broken(), std::vector<std::string>{}) << "round " << round;
  }
}

// An address is one of a stream of another device, whose legacy stream had not waited for it.
TEST_F(StreamsTest, OrderHoldsInAStreamWhoseAddressAnotherDeviceHad) {
  const CUstream stream = new_stream();
  visit({{1}}, {{kLegacy, stream}});
  launch(stream);
  destroy(stream);
  const CUcontext other = reinterpret_cast<CUcontext>(uintptr_t{0x600});
  streams().on_retained(1, other);
  current_context = other;
  the_gpu->create_again(stream);
  streams().on_created(stream);
  visit(kThereAndHome, {{kLegacy, stream}});
  move_to(1);
  for (const CUstream each : {stream, kLegacy, stream, kLegacy}) {
    Call call(*this, each);
    call.put();
    EXPECT_TRUE(call.is_away());
  }
  EXPECT_EQ(broken(), std::vector<std::string>{});
  current_context = kContext;
}

}  // namespace
}  // namespace gpushare::shim
