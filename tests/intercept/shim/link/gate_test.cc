// SPDX-License-Identifier: Apache-2.0
// The gate, and what happens to a program when the agent dies or hangs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "shmctl/base/fd.h"
#include "shmctl/base/unix_socket.h"
#include "shmctl/shim/credit.h"
#include "shmctl/shim/protocol.h"
#include "tests/intercept/shim/shim_rig.h"

namespace gpushare::test {
namespace {

using namespace std::chrono_literals;

// A program that launches `count` times, a millisecond apart.
std::unique_ptr<Child> start_launching(ShimRig& rig, int count = 1'000'000,
                                       const char* way = "slow") {
  auto program = rig.start("shim_probe", {way, std::to_string(count)});
  EXPECT_TRUE(rig.launches_beyond(3));
  return program;
}

// What its slot says; 0: it has none.
uint64_t read(ShimRig& rig, const Child& program, uint64_t (*what)(const ShimSlot&)) {
  uint64_t read = 0;
  rig.with_slot(program.pid(), [&](ShimSlot& slot) { read = what(slot); });
  return read;
}

uint64_t waiting(ShimRig& rig, const Child& program) {
  return read(rig, program, [](const ShimSlot& slot) { return uint64_t{slot.waiting.load()}; });
}

uint64_t gave_up(ShimRig& rig, const Child& program) {
  return read(rig, program, [](const ShimSlot& slot) { return slot.gave_up.load(); });
}

uint64_t last_beat(ShimRig& rig, const Child& program) {
  return read(rig, program, [](const ShimSlot& slot) { return slot.beat_ns.load(); });
}

bool goes_on(ShimRig& rig) { return rig.launches_beyond(rig.launches_of_all() + 3); }

// Closes its gate. False: no launch has stopped there.
bool is_held(ShimRig& rig, const Child& program) {
  return rig.with_slot(program.pid(), ShimHost::close_gate) &&
         eventually([&] { return waiting(rig, program) == 1; });
}

// Another agent comes: the program has a slot of it, and is held there.
void expect_it_obeys_the_next_agent(ShimRig& rig, const Child& program) {
  rig.come_back();
  EXPECT_TRUE(goes_on(rig)) << "it has a slot of the next agent's";
  EXPECT_TRUE(is_held(rig, program));
}

bool launches_nothing(ShimRig& rig, std::chrono::nanoseconds during) {
  const uint64_t before = rig.launches_of_all();
  std::this_thread::sleep_for(during);
  return rig.launches_of_all() == before;
}

TEST(Gate, ClosedHoldsLaunchesUntilItOpens) {
  ShimRig rig(kShimGate);
  const auto program = start_launching(rig);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(is_held(rig, *program));
    uint32_t seen = 0, gate = 1;
    rig.with_slot(program->pid(), [&](ShimSlot& slot) {
      seen = slot.seen_gate.load();
      gate = slot.gate.load();
    });
    EXPECT_EQ(seen, gate) << "the agent knows which closing the program stands at";
    EXPECT_TRUE(launches_nothing(rig, 20ms));
    ASSERT_TRUE(rig.with_slot(program->pid(), ShimHost::open_gate));
    EXPECT_TRUE(goes_on(rig));
    EXPECT_EQ(waiting(rig, *program), 0u);
  }
  EXPECT_EQ(gave_up(rig, *program), 0u);
}

TEST(Gate, WhoComesToStandWakesAnAgentThatGivesTurns) {
  ShimRig rig(kShimGate | kShimIterations);
  const auto program = start_launching(rig);
  ASSERT_TRUE(is_held(rig, *program));
  EXPECT_EQ(rig.wakes(program->pid()), 0u) << "a cap closed it: nobody waits for the news";
  for (uint64_t round = 1; round <= 3; ++round) {
    ASSERT_TRUE(rig.with_slot(program->pid(), ShimHost::open_gate));
    ASSERT_TRUE(goes_on(rig));
    rig.with_slot(program->pid(), [](ShimSlot& slot) { ShimHost::set_run_until(slot, 1); });
    ASSERT_TRUE(is_held(rig, *program));
    EXPECT_TRUE(eventually([&] { return rig.wakes(program->pid()) == round; }));
    EXPECT_TRUE(launches_nothing(rig, 120ms)) << "it looks at the beat meanwhile";
    EXPECT_EQ(rig.wakes(program->pid()), round) << "once for each time";
  }
}

// It would be taken for one that waits for work for as long as it lives.
TEST(Gate, AThreadThatIsCancelledInAWaitWaitsNoMore) {
  ShimRig rig(kShimGate);
  const auto program = start_launching(rig, 1'000'000, "cancelled");
  EXPECT_EQ(read(rig, *program, [](const ShimSlot& slot) { return uint64_t{slot.waits.load()}; }),
            0u);
  EXPECT_TRUE(goes_on(rig));
}

// Launches that there had been when it said that its work is done; 0: it has not.
uint64_t done_at(ShimRig& rig, const Child& program) {
  return read(rig, program, [](const ShimSlot& slot) { return slot.done_at.load(); });
}

TEST(Gate, AContextThatIsNotDestroyedIsStillThere) {
  ShimRig rig(kShimGate | kShimIterations);
  const auto program = start_launching(rig, 1'000'000, "contexts");
  ASSERT_TRUE(rig.launches_beyond(20));
  EXPECT_EQ(done_at(rig, *program), 0u) << "one is left, in which it works";
}

// Between the driver's call and our count comes another thread's release of what seems to be the
// last: all that the program has in partitions would be gone.
TEST(Gate, APrimaryContextThatIsTakenMeanwhileIsStillThere) {
  ShimRig rig(kShimGate | kShimIterations | kShimPartitions);
  const auto program = rig.start("shim_probe", {"taken-apart", "20"});
  success_of(*program);
  EXPECT_EQ(rig.launches_of_all(), 23u);
}

TEST(Gate, AContextThatIsTakenMeanwhileIsStillThereWhereNothingIsDivided) {
  ShimRig rig(kShimGate | kShimIterations);
  const auto program = rig.start("shim_probe", {"taken", "1000000"});
  ASSERT_TRUE(rig.launches_beyond(20));
  EXPECT_EQ(done_at(rig, *program), 0u) << "its work is not done";
}

TEST(Gate, WhoExitsSaysThatItsWorkIsDoneAndALaunchTakesThatBack) {
  ShimRig rig(kShimGate | kShimIterations);
  const auto program = rig.start("shim_probe", {"lingering", "5"});
  ASSERT_TRUE(eventually([&] { return done_at(rig, *program) == 5; }));
  EXPECT_EQ(read(rig, *program, [](const ShimSlot& slot) { return launches_of(slot); }), 5u);
  EXPECT_TRUE(eventually([&] { return rig.wakes(program->pid()) == 1; }));
  program->signal(SIGUSR1);
  ASSERT_TRUE(rig.launches_beyond(5)) << "its gate is open";
  EXPECT_EQ(done_at(rig, *program), 5u) << "which says no more that it is done";
  program->signal(SIGUSR1);
  success_of(*program);
}

// What it is told at its end holds for it as before.
TEST(Gate, WhoLaunchesAtItsExitWaitsAtAClosedGate) {
  ShimRig rig(kShimGate | kShimIterations);
  const auto program = rig.start("shim_probe", {"lingering", "5"});
  ASSERT_TRUE(eventually([&] { return done_at(rig, *program) == 5; }));
  ASSERT_TRUE(rig.with_slot(program->pid(), ShimHost::close_gate));
  program->signal(SIGUSR1);
  ASSERT_TRUE(eventually([&] { return waiting(rig, *program) == 1; }));
  ASSERT_TRUE(rig.with_slot(program->pid(), ShimHost::open_gate));
  program->signal(SIGUSR1);
  success_of(*program);
}

TEST(Gate, NothingIsWrittenWhereTheAgentsDescriptorWas) {
  ShimRig rig(kShimGate | kShimIterations);
  const auto program = start_launching(rig, 2000, "slow-among-own-files");
  rig.with_slot(program->pid(), [](ShimSlot& slot) { ShimHost::set_run_until(slot, 1); });
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(is_held(rig, *program));
    ASSERT_TRUE(rig.with_slot(program->pid(), ShimHost::open_gate));
    ASSERT_TRUE(goes_on(rig));
  }
  success_of(*program);
}

TEST(Gate, HoldsCopiesOnTheGpu) {
  ShimRig rig(kShimGate);
  const auto program = start_launching(rig, 1'000'000, "slow-on-gpu");
  ASSERT_TRUE(is_held(rig, *program));
  EXPECT_TRUE(launches_nothing(rig, 20ms));
  ASSERT_TRUE(rig.with_slot(program->pid(), ShimHost::open_gate));
  EXPECT_TRUE(goes_on(rig));
}

TEST(Gate, DoesNotHoldCopiesBetweenHostAndGpu) {
  ShimRig rig(kShimFeatures);
  const auto program = rig.start("shim_probe", {"slow-from-host", "2000"});
  ASSERT_TRUE(eventually([&] { return rig.with_slot(program->pid(), ShimHost::close_gate); }));
  EXPECT_TRUE(eventually([&] { return program->has_ended(); }));
  EXPECT_EQ(status_of(*program), 0);
  EXPECT_EQ(rig.launches_of_all(), 0u);
}

TEST(Gate, StaysClosedAsLongAsTheAgentLives) {
  ShimRig rig(kShimGate);
  const auto program = start_launching(rig);
  ASSERT_TRUE(is_held(rig, *program));
  EXPECT_TRUE(launches_nothing(rig, std::chrono::nanoseconds(2 * kShimBeatTimeoutNs)));
  EXPECT_EQ(gave_up(rig, *program), 0u);
}

TEST(Gate, OpensWhenTheAgentDies) {
  ShimRig rig(kShimGate);
  const auto program = start_launching(rig, 2000);
  ASSERT_TRUE(is_held(rig, *program));
  const Time died = MonotonicClock().now();
  rig.die();
  ASSERT_TRUE(eventually([&] { return gave_up(rig, *program) == 1; }));
  EXPECT_LE(MonotonicClock().now() - died, kFreedAfterDeath);
  success_of(*program);
}

TEST(Gate, ObeysTheNextAgent) {
  ShimRig rig(kShimGate);
  const auto program = start_launching(rig);
  rig.die();
  std::this_thread::sleep_for(std::chrono::nanoseconds(kShimBeatTimeoutNs));
  expect_it_obeys_the_next_agent(rig, *program);
}

// Its closings are numbered like those of the last one, of which one was passed.
TEST(Gate, ObeysTheNextAgentAlsoWhereTheLastOneHasLeftItClosed) {
  ShimRig rig(kShimGate);
  const auto program = start_launching(rig);
  ASSERT_TRUE(is_held(rig, *program));
  rig.die();
  ASSERT_TRUE(eventually([&] { return gave_up(rig, *program) == 1; }));
  expect_it_obeys_the_next_agent(rig, *program);
}

// The agent is there and accepts connections, like one that is stopped or swapped out.
TEST(Gate, AnAgentThatHangsDelaysNothing) {
  ShimRig rig(kShimGate);
  const auto program = start_launching(rig);
  ShimSlot* first = nullptr;
  rig.with_slot(program->pid(), [&](ShimSlot& slot) { first = &slot; });
  ASSERT_TRUE(is_held(rig, *program));
  rig.hang();
  ASSERT_TRUE(eventually([&] { return gave_up(rig, *program) == 1; }));
  // A millisecond apart. One of 64 looks for another agent, once a second at most; where that
  // waited for a second, these would take 20.
  const uint64_t before = read(rig, *program, launches_of);
  EXPECT_TRUE(eventually([&] { return read(rig, *program, launches_of) > before + 1280; }));

  const uint64_t beat = last_beat(rig, *program);
  rig.go_on();
  ASSERT_TRUE(eventually([&] { return last_beat(rig, *program) > beat; }));
  ASSERT_TRUE(rig.with_slot(program->pid(), ShimHost::open_gate));
  EXPECT_TRUE(is_held(rig, *program));
  rig.with_slot(program->pid(),
                [&](ShimSlot& slot) { EXPECT_EQ(&slot, first) << "it has kept its slot"; });
}

// Nobody but the agent says that the gate is open.
TEST(Gate, AnAgentThatHungHoldsAgainWhoHasGivenUp) {
  ShimRig rig(kShimGate);
  const auto program = start_launching(rig);
  for (uint64_t round = 1; round <= 2; ++round) {
    ASSERT_TRUE(is_held(rig, *program));
    rig.hang();
    ASSERT_TRUE(eventually([&] { return gave_up(rig, *program) == round; }));
    const uint64_t before = read(rig, *program, launches_of);
    ASSERT_TRUE(eventually([&] { return read(rig, *program, launches_of) > before + 3; }));
    rig.go_on();
  }
  EXPECT_TRUE(eventually([&] { return waiting(rig, *program) == 1; }));
  EXPECT_TRUE(launches_nothing(rig, 20ms));
  ASSERT_TRUE(rig.with_slot(program->pid(), ShimHost::open_gate));
  EXPECT_TRUE(goes_on(rig));
}

// How often it has slept.
uint64_t sleeps(const Child& program) {
  std::ifstream status("/proc/" + std::to_string(program.pid()) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("voluntary_ctxt_switches:")) return std::stoull(line.substr(24));
  return 0;
}

TEST(Gate, SignalsDoNotKeepAProgramFromItsSlot) {
  ShimRig rig(kShimGate);
  rig.hang();
  const auto program = rig.start("shim_probe", {"slow-with-signals", "1000000"});
  ASSERT_TRUE(eventually([&] { return rig.is_asked_in_vain(); }));
  const uint64_t before = sleeps(*program);
  ASSERT_TRUE(eventually([&] { return sleeps(*program) > before + 3; }));
  rig.go_on();
  EXPECT_TRUE(goes_on(rig)) << "it was woken from waiting for its slot, and has none";
}

TEST(Gate, AnAgentThatStopsInOrderOpensIt) {
  auto rig = std::make_unique<ShimRig>(kShimGate);
  const auto program = start_launching(*rig, 2000);
  ASSERT_TRUE(is_held(*rig, *program));
  rig.reset();
  EXPECT_EQ(status_of(*program), 0);
}

TEST(Gate, AKilledProgramLeavesNothingBehind) {
  ShimRig rig(kShimGate);
  auto program = start_launching(rig);
  ASSERT_TRUE(rig.with_slot(program->pid(), ShimHost::close_gate));
  EXPECT_TRUE(rig.has_no_slot_after_kill(std::move(program)));
}

// Asks for a slot as a process does, in this process.
Fd descriptor_over(const Fd& socket) {
  DescriptorMessage message;
  if (::recvmsg(socket.get(), message.get(), MSG_CMSG_CLOEXEC) != 1) return Fd();
  return Fd(message.taken().slot);
}

Fd descriptor_from(const std::string& path) {
  const auto socket = connect_to_socket(path, "ask for a slot");
  return socket ? descriptor_over(*socket) : Fd();
}

TEST(Slot, IsAPageThatAProcessCannotCutOrGrow) {
  ShimRig rig(kShimGate);
  const Fd page = descriptor_from(rig.socket());
  ASSERT_TRUE(page.is_open());
  EXPECT_EQ(::lseek(page.get(), 0, SEEK_END), static_cast<off_t>(kShimSlotBytes));
  EXPECT_NE(::ftruncate(page.get(), 0), 0);
  EXPECT_NE(::ftruncate(page.get(), 2 * kShimSlotBytes), 0);
  EXPECT_NE(::fcntl(page.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(Slot, IsOnesOwn) {
  ShimRig rig(kShimGate);
  const Fd first = descriptor_from(rig.socket());
  const auto program = start_launching(rig);
  void* const mine =
      ::mmap(nullptr, kShimSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED, first.get(), 0);
  ASSERT_NE(mine, MAP_FAILED);
  std::memset(mine, 0xFF, kShimSlotBytes);  // the gate closed, all counters at their end
  EXPECT_EQ(waiting(rig, *program), 0u);
  EXPECT_TRUE(goes_on(rig)) << "what one process writes reaches no other";
  ::munmap(mine, kShimSlotBytes);
}

TEST(Slot, IsRefusedWhereNothingIsWanted) {
  ShimRig rig(0);
  EXPECT_FALSE(descriptor_from(rig.socket()).is_open());
}

// As a process may open its own word, and as its shim does while the agent hangs.
TEST(Host, AWordThatIsOpenedIsClosedAgainAsLongAsTheGateIs) {
  const auto slot = std::make_unique<ShimSlot>();
  ShimHost::close_gate(*slot);
  EXPECT_FALSE(is_credit_open(*slot));
  const uint32_t gate = slot->gate;
  open_credit(*slot);
  ShimHost::close_gate(*slot);
  EXPECT_FALSE(is_credit_open(*slot));
  EXPECT_EQ(slot->gate, gate);
  set_credit(*slot, slot->credit.issued + 3);
  ShimHost::close_gate(*slot);
  EXPECT_EQ(slot->credit.word, slot->credit.issued + 3) << "what is dealt out stays";
}

TEST(Host, DecidesNothingForWhoHasHungUp) {
  const ShimRig rig(0);
  const std::string path = rig.socket() + ".host";
  int asked = 0;
  const auto host = ShimHost::listen(path, [&](const ProcessId&, uid_t) {
    ++asked;
    return ShimRequest{.features = kShimGate, .gpus = {}};
  });
  ASSERT_TRUE(host.has_value());
  ASSERT_TRUE(connect_to_socket(path, "ask for a slot").has_value());  // and closed again
  const auto waits = connect_to_socket(path, "ask for a slot");
  ASSERT_TRUE(waits.has_value());
  (*host)->serve();
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(descriptor_over(*waits).is_open());
}

TEST(Host, RefusesASocketThatIsInUse) {
  ShimRig rig(kShimGate);
  const auto second =
      ShimHost::listen(rig.socket(), [](const ProcessId&, uid_t) { return ShimRequest{}; });
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, std::errc::address_in_use);
}

}  // namespace
}  // namespace gpushare::test
