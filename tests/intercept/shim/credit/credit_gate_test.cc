// SPDX-License-Identifier: Apache-2.0
// Programs on the simulated GPU whose launches wait for credit on the GPU itself.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "shmctl/shim/credit.h"
#include "tests/intercept/shim/on_the_simulated_gpu.h"

namespace gpushare::test {
namespace {

using namespace std::chrono_literals;

class CreditGate : public OnTheSimulatedGpu {
 protected:
  static uint32_t read(ShimRig& rig, const Child& program,
                       std::atomic<uint32_t> ShimCredit::* word) {
    uint32_t value = 0;
    rig.with_slot(program.pid(), [&](ShimSlot& slot) { value = (slot.credit.*word).load(); });
    return value;
  }
  static ShimHeld held(ShimRig& rig, const Child& program) {
    auto held = ShimHeld::kUnknown;
    rig.with_slot(program.pid(), [&](ShimSlot& slot) { held = slot.credit.held.load(); });
    return held;
  }
  // The GPU lets nothing of the program start for a while, though there is something in line.
  static bool stands(ShimRig& rig, const Child& program) {
    return eventually([&] {
      const uint32_t before = read(rig, program, &ShimCredit::reached);
      std::this_thread::sleep_for(100ms);
      return read(rig, program, &ShimCredit::reached) == before &&
             read(rig, program, &ShimCredit::issued) > before + 10;
    });
  }
  static bool goes_on(ShimRig& rig, const Child& program) {
    const uint32_t before = read(rig, program, &ShimCredit::reached);
    return eventually([&] { return read(rig, program, &ShimCredit::reached) > before + 10; });
  }
  // Kernels back to back, so many always in line.
  std::unique_ptr<Child> start_spinning(ShimRig& rig, const char* depth = "256") {
    auto program = start({"spin", "--seconds", "600", "--ns-per-unit", "129", "--kernel-us", "2000",
                          "--depth", depth},
                         &rig);
    EXPECT_TRUE(rig.launches_beyond(300));
    EXPECT_EQ(held(rig, *program), ShimHeld::kOnGpu);
    return program;
  }
  // Opens, closes and deals out at random until the program ends, which finds its own result right.
  static void expect_right_under_random_credit(ShimRig& rig, Child& program, bool moves) {
    std::mt19937 random(1);
    bool was_on_gpu = false;
    while (!program.has_ended()) {
      rig.with_all_slots([&](ShimSlot& slot) {
        was_on_gpu |= slot.credit.held.load() == ShimHeld::kOnGpu;
        if (moves && random() % 4 == 0) slot.gpus[0].wanted.store(random() % 14);
        switch (random() % 4) {
          case 0:
            return close_credit(slot);
          case 1:
            return ShimHost::close_gate(slot);
          case 2:
            return set_credit(slot, slot.credit.issued.load() - random() % 8);
          default:
            ShimHost::open_gate(slot);
            return open_credit(slot);
        }
      });
      std::this_thread::sleep_for(300us);
    }
    rig.with_all_slots([](ShimSlot& slot) { ShimHost::open_gate(slot); });
    EXPECT_TRUE(was_on_gpu);
    const Outcome outcome = success_of(program);
    EXPECT_EQ(last_line(outcome)["verified"], true);
  }
};

constexpr uint32_t kCredit = kShimGate | kShimCredit;

TEST_F(CreditGate, ProgramsPrintTheSame) { expect_the_same_output(ShimRig(kCredit)); }

TEST_F(CreditGate, HoldsWhatIsInLine) {
  ShimRig rig(kCredit);
  const auto program = start_spinning(rig);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(rig.with_slot(program->pid(), ShimHost::close_gate));
    EXPECT_TRUE(stands(rig, *program));
    ASSERT_TRUE(rig.with_slot(program->pid(), ShimHost::open_gate));
    EXPECT_TRUE(goes_on(rig, *program));
  }
}

TEST_F(CreditGate, TheHostsGateAloneDoesNot) {
  ShimRig rig(kShimGate);
  const auto program = start(
      {"spin", "--seconds", "600", "--ns-per-unit", "129", "--kernel-us", "2000", "--depth", "256"},
      &rig);
  ASSERT_TRUE(rig.launches_beyond(300));
  EXPECT_EQ(held(rig, *program), ShimHeld::kUnknown);
  EXPECT_EQ(read(rig, *program, &ShimCredit::issued), 0u);
}

// The GPU says how far it is at every fourth wait at least.
TEST_F(CreditGate, DealsOutLaunchByLaunch) {
  ShimRig rig(kCredit);
  const auto program = start_spinning(rig);
  ASSERT_TRUE(rig.with_slot(program->pid(), close_credit));
  ASSERT_TRUE(stands(rig, *program));
  for (int i = 0; i < 5; ++i) {
    const uint32_t last = read(rig, *program, &ShimCredit::reached) + 8;
    rig.with_slot(program->pid(), [&](ShimSlot& slot) { set_credit(slot, last); });
    ASSERT_TRUE(eventually([&] { return read(rig, *program, &ShimCredit::reached) + 4 > last; }));
    std::this_thread::sleep_for(20ms);
    EXPECT_LE(read(rig, *program, &ShimCredit::reached), last) << "so many, and no more";
  }
}

TEST_F(CreditGate, OrderHoldsUnderRandomCredit) {
  ShimRig rig(kShimFeatures, {{kPci, 0}});
  for (int round = 0; round < 4; ++round) {
    const auto program =
        round % 2 == 0
            ? start({"hash", "--rounds", "60", "--words", "1024", "--streams", "6"}, &rig)
            : start(
                  {"order", "--seed", std::to_string(round), "--words", "1024", "--steps", "1000"},
                  &rig);
    expect_right_under_random_credit(rig, *program, round >= 2);
  }
}

TEST_F(CreditGate, ThreadsMayShareStreamsThatAreHeld) {
  ShimRig rig(kShimFeatures, {{kPci, 0}});
  for (int round = 0; round < 2; ++round) {
    const auto program =
        start({"crowd", "--launches", "500", "--seed", std::to_string(round)}, &rig);
    expect_right_under_random_credit(rig, *program, round == 1);
  }
}

TEST_F(CreditGate, CopiesAndFillsAreHeldAndRight) {
  ShimRig rig(kShimFeatures, {{kPci, 0}});
  for (const char* stream : {"legacy", "per-thread", "none"}) {
    const auto program =
        start({"within", "--bytes", "65536", "--rounds", "300", "--stream", stream}, &rig);
    expect_right_under_random_credit(rig, *program, false);
  }
}

// Its thread stands at the gate, and finds out there.
TEST_F(CreditGate, IsFreedByAThreadThatFindsTheAgentDead) {
  ShimRig rig(kCredit);
  const auto program = start_spinning(rig);
  ASSERT_TRUE(rig.with_slot(program->pid(), ShimHost::close_gate));
  ASSERT_TRUE(stands(rig, *program));
  rig.die();
  EXPECT_TRUE(goes_on(rig, *program));
}

// None of its threads runs any more, and nobody but itself is left.
TEST_F(CreditGate, IsFreedWhenAllThreadsWaitForTheGpuAndTheAgentDies) {
  ShimRig rig(kCredit);
  const auto program = start_spinning(rig, "48");
  ASSERT_TRUE(rig.with_slot(program->pid(), [](ShimSlot& slot) {
    set_credit(slot, slot.credit.issued.load());  // what comes is held; there is room for it
  }));
  ASSERT_TRUE(stands(rig, *program));
  EXPECT_TRUE(rig.with_slot(program->pid(), [](ShimSlot& slot) {
    EXPECT_EQ(slot.waiting.load(), 0u) << "a thread at the gate would find out";
  }));
  rig.hang();
  EXPECT_TRUE(goes_on(rig, *program));
}

// An agent in a process of its own, without a supervisor. Its beats lie an hour ahead: they do not
// tell anybody that it has died.
class AgentProcess {
 public:
  // Programs are held from their begin, or when hold() says so.
  AgentProcess(const std::string& path, uint32_t features, bool are_held) {
    void* const memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = new (memory) Shared;
    pid_ = ::fork();
    if (pid_ == 0) serve(path, features, are_held);
  }
  ~AgentProcess() {
    if (pid_ > 0) kill();
    ::munmap(shared_, sizeof(Shared));
  }
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;

  bool listens() const {
    return eventually([&] { return shared_->listens.load(); });
  }
  // A thread of a program stands at its gate.
  bool holds_at_gate() const {
    return eventually([&] { return shared_->waiting.load() != 0; });
  }
  // What a program has in line stands on the GPU, and none of its threads at the gate.
  bool holds_on_gpu() const {
    shared_->must_hold = true;
    return eventually([&] {
      const uint32_t reached = shared_->reached;
      std::this_thread::sleep_for(100ms);
      return shared_->is_holding && shared_->reached == reached &&
             shared_->issued != shared_->reached && shared_->waiting == 0;
    });
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  struct Shared {
    std::atomic<bool> listens = false, must_hold = false, is_holding = false;
    std::atomic<uint32_t> waiting = 0, issued = 0, reached = 0;
  };

  [[noreturn]] void serve(const std::string& path, uint32_t features, bool are_held) {
    auto host = ShimHost::listen(path, [&](const ProcessId&, uid_t) {
      return ShimRequest{.features = features, .is_closed = are_held, .gpus = {}};
    });
    if (!host) ::_exit(1);
    shared_->listens = true;
    while (true) {
      (*host)->serve();
      (*host)->beat(MonotonicClock().now() + 1h);
      for (const ProcessId& process : (*host)->processes()) {
        ShimSlot& slot = *(*host)->find(process);
        if (shared_->must_hold && !shared_->is_holding.exchange(true))
          set_credit(slot, slot.credit.issued.load());  // what comes is held; there is room for it
        shared_->issued = slot.credit.issued.load();
        shared_->reached = slot.credit.reached.load();
        shared_->waiting = slot.waiting.load();
      }
      ::usleep(200);
    }
  }

  Shared* shared_ = nullptr;
  pid_t pid_ = 0;
};

class AgentDeath : public CreditGate {
 protected:
  std::unique_ptr<Child> start_with_it(const std::vector<std::string>& arguments) {
    more_environment_ = {"LD_PRELOAD=" + build_folder() + "/lib/libgpushare.so",
                         "GPUSHARE_SHIM_SOCKET=" + path_};
    return start(arguments, nullptr);
  }
  const std::string path_ = folder() + "/shim.sock";
};

TEST_F(AgentDeath, IsSeenAtTheGateThoughNobodyIsLeftAndTheBeatIsNotOld) {
  AgentProcess agent(path_, kCredit, true);
  ASSERT_TRUE(agent.listens());
  const auto program = start_with_it({"hash", "--rounds", "5"});
  ASSERT_TRUE(agent.holds_at_gate());
  agent.kill();
  EXPECT_EQ(status_of(*program), 0);
}

TEST_F(AgentDeath, FreesWhatWaitsOnTheGpuThoughNobodyIsLeftAndTheBeatIsNotOld) {
  AgentProcess agent(path_, kCredit, false);
  ASSERT_TRUE(agent.listens());
  const auto program = start_with_it(
      {"spin", "--seconds", "2", "--ns-per-unit", "129", "--kernel-us", "2000", "--depth", "48"});
  ASSERT_TRUE(agent.holds_on_gpu());
  agent.kill();
  EXPECT_EQ(status_of(*program), 0);
}

// Four have a queue, and the others launch one kernel after the other and rest in between. Each has
// its slot and has launched before the next one starts: a program waits for its slot for a second
// at most and is never held if it has none then, and a busy machine takes longer for forty at once.
TEST_F(CreditGate, OfFortyHeldTenantsOnlyWhatIsInLineWaitsOnTheGpu) {
  constexpr uint32_t kTenants = 40, kQueueing = 4, kDepth = 32, kInFlight = 2;
  ShimRig rig(kCredit);
  const std::vector<std::string> queues{"spin",          "--seconds", "600",
                                        "--ns-per-unit", "129",       "--kernel-us",
                                        "300",           "--depth",   std::to_string(kDepth)};
  const std::vector<std::string> rests{"meet", "--launches", "1000000000", "--blocks",
                                       "1",    "--pause-us", "3000"};
  std::vector<std::unique_ptr<Child>> all;
  while (all.size() < kTenants) {
    const auto& program = all.emplace_back(start(all.size() < kQueueing ? queues : rests, &rig));
    ASSERT_TRUE(eventually([&] { return read(rig, *program, &ShimCredit::issued) > 2; }, 5min))
        << all.size() << ": " << read(rig, *program, &ShimCredit::issued)
        << (rig.with_slot(program->pid(), [](ShimSlot&) {}) ? "" : ", without a slot");
  }
  rig.with_all_slots(ShimHost::close_gate);
  uint32_t at_gate = 0;
  for (uint32_t i = 0; i < kTenants; ++i) {
    uint32_t in_line = 0, waiting = 0;
    EXPECT_TRUE(eventually([&] {  // its thread stands at the gate, or waits for what is in line
      rig.with_slot(all[i]->pid(), [&](ShimSlot& slot) {
        in_line = slot.credit.issued.load() - slot.credit.reached.load();
        waiting = slot.waiting.load();
      });
      return waiting != 0 || in_line != 0;
    })) << i;
    // What has just ended may not have been said yet.
    EXPECT_LE(in_line, (i < kQueueing ? kDepth : kInFlight) + 1) << i;
    at_gate += waiting;
  }
  EXPECT_GT(at_gate, 0u);
  rig.with_all_slots(ShimHost::open_gate);
  for (const auto& program : all) EXPECT_TRUE(goes_on(rig, *program));
}

TEST_F(CreditGate, IsFreedWhenTheAgentStopsInOrder) {
  auto rig = std::make_unique<ShimRig>(kCredit);
  const auto program = start(
      {"spin", "--seconds", "3", "--ns-per-unit", "129", "--kernel-us", "2000", "--depth", "64"},
      rig.get());
  ASSERT_TRUE(rig->launches_beyond(100));
  ASSERT_TRUE(rig->with_slot(program->pid(), ShimHost::close_gate));
  rig.reset();
  EXPECT_EQ(status_of(*program), 0);
}

TEST_F(CreditGate, AProgramThatIsKilledWhileItIsHeldLeavesNothingBehind) {
  ShimRig rig(kCredit);
  auto program = start_spinning(rig);
  ASSERT_TRUE(rig.with_slot(program->pid(), ShimHost::close_gate));
  ASSERT_TRUE(stands(rig, *program));
  EXPECT_TRUE(rig.has_no_slot_after_kill(std::move(program)));
  const Outcome next = run({"hash", "--rounds", "5"}, &rig);
  EXPECT_EQ(next.status, 0) << next.err;
}

// A process that writes over its slot harms itself alone.
TEST_F(CreditGate, WhoLiesHoldsNobodyElse) {
  ShimRig rig(kCredit);
  const auto liar = start_spinning(rig), other = start({"hash", "--rounds", "200"}, &rig);
  std::mt19937 random(1);
  while (!other->has_ended()) {
    rig.with_slot(liar->pid(), [&](ShimSlot& slot) {
      slot.credit.issued.store(random());
      slot.credit.reached.store(random());
      slot.credit.word.store(random());
      slot.credit.held.store(static_cast<ShimHeld>(random() % 7));
    });
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(status_of(*other), 0);
}

}  // namespace
}  // namespace gpushare::test
