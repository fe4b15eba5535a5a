// SPDX-License-Identifier: Apache-2.0
// This process as one with the shim.
#include "sched/shim/shim_link.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <set>

#include "sched/step/views.h"
#include "shmctl/base/proc_stat.h"
#include "shmctl/base/unix_socket.h"
#include "shmctl/shim/credit.h"
#include "shmctl/shim/protocol.h"
#include "shmctl/shim/published.h"
#include "tests/sched/mps/fake_mps_host.h"
#include "tests/sched/orders/jobs.h"
#include "tests/sched/support/fake_proc_reader.h"
#include "tests/sched/support/policies.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr const char* kSpatial = "[gpu.0]\nsharing = 'spatial'\n";
constexpr const char* kByTarget = "[gpu.0]\nsharing = 'spatial'\npolicy = 'slo'\n";

ShimSlot* map_slot(const Fd& file) {
  void* const mapped =
      ::mmap(nullptr, kShimSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<ShimSlot*>(mapped);
}

// Another process with the shim, whose slot this one reads and writes: it has connected, by a
// socket that both have.
class OtherProcess {
 public:
  explicit OtherProcess(const std::string& path) : socket_(unix_socket()) {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const sockaddr_un address = address_of(path);
      (void)::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
      while (true) ::pause();
    }
  }
  ~OtherProcess() {
    if (slot_ != nullptr) ::munmap(slot_, kShimSlotBytes);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ProcessId id() const { return {pid_, start_ticks_of(pid_)}; }
  // `serve`: has the agent answer who has connected.
  void connect(const std::function<void()>& serve) {
    DescriptorMessage message;
    do {
      serve();
      ::poll(nullptr, 0, 1);
    } while (::recvmsg(socket_.get(), message.get(), MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1);
    const auto taken = message.taken();
    const Fd file(taken.slot), wake(taken.wake);
    slot_ = map_slot(file);
    ASSERT_NE(slot_, nullptr);
  }
  ShimSlot* slot() const { return slot_; }

 private:
  static Fd unix_socket() { return Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
  static sockaddr_un address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    return address;
  }

  const Fd socket_;
  pid_t pid_ = 0;
  ShimSlot* slot_ = nullptr;
};

class ShimLinkTest : public ::testing::Test {
 protected:
  ~ShimLinkTest() override {
    if (slot_ != nullptr) ::munmap(slot_, kShimSlotBytes);
  }
  // Our slot; nullptr: we got none.
  ShimSlot* connect() {
    const auto socket = connect_to_socket(path_, "ask for a slot");
    if (!socket) return nullptr;
    link_->serve();
    DescriptorMessage message;
    if (::recvmsg(socket->get(), message.get(), MSG_CMSG_CLOEXEC) != 1) return nullptr;
    const auto taken = message.taken();
    const Fd file(taken.slot);
    wake_ = Fd(taken.wake);
    slot_ = map_slot(file);
    return slot_;
  }
  // Of now on, as a configuration says.
  void share(std::string_view text) {
    const Config config = test::parse(text).value();
    link_->set_gpus(gpus_, config);
    gpu_.is_spatial = config.gpu(0).is_spatial;
    policy_ = config.gpu(0).policy.make(gpu_);
  }
  void step() {
    const Time now = MonotonicClock().now();
    link_->read(now, Registry(gpus_));
    Views views;
    views.join(link_->views(0));
    views.add_tenants(0, tenants_, *region_, link_.get());
    plan_ = policy_->plan(views.snapshot(now, gpu_));
    link_->apply(now, 0, plan_, views.processes());
    link_->finish(now);
  }
  uint32_t entitled() const { return link_->partition(kDefaultTenant, 0).entitled; }
  bool is_closed() const { return (slot_->gate & 1) != 0; }
  // The program's first launch, which is counted before it comes to the gate.
  void launch() { slot_->stripes[0].launches.fetch_add(1, std::memory_order_relaxed); }
  void give_default_a_part() {
    const std::vector<Setting> half{{"sm_percent", "50"}};
    ASSERT_TRUE(tenants_.set(kDefaultTenantName, half, false));
  }

  const std::string path_ = ::testing::TempDir() + "/shim-link-" + std::to_string(::getpid());
  const std::vector<GpuInfo> gpus_{{.index = 0,
                                    .instance = 0,
                                    .uuid = {},
                                    .name = {},
                                    .pci = "0000:1b:00.0",
                                    .sm_count = 132,
                                    .memory_bytes = 0}};
  const SystemProcReader processes_;
  Tenants tenants_;
  const std::unique_ptr<Region> region_ = std::make_unique<Region>();
  std::unique_ptr<ShimLink> link_ = ShimLink::listen(path_, tenants_, processes_, *region_).value();
  GpuView gpu_{};
  std::unique_ptr<Policy> policy_;
  Plan plan_;
  ShimSlot* slot_ = nullptr;
  Fd wake_{-1};  // by which the program wakes the agent
};

TEST_F(ShimLinkTest, WhoseTenantHasNoPartGetsNoSlot) {
  share(kSpatial);
  EXPECT_EQ(connect(), nullptr);
}

// So that it is known what a program that starts has launched (sched/account/lone_context.h).
TEST_F(ShimLinkTest, WhereGpusAreSharedByTimeItSaysWhatItLaunchesAndNobodyIsHeld) {
  share("");
  ASSERT_NE(connect(), nullptr);
  EXPECT_EQ(slot_->head.features, uint32_t{kShimGate});
  EXPECT_FALSE(is_closed());
  step();
  EXPECT_FALSE(is_closed());
  EXPECT_TRUE(read_slot(*slot_).shows_work);
}

TEST_F(ShimLinkTest, CreditIsAskedForWhereTheGateIsOnTheGpu) {
  share("[gpu.0]\nsharing = 'spatial'\ngate = 'credit'\n");
  EXPECT_EQ(connect(), nullptr) << "a program without a part is left alone";
  give_default_a_part();
  ASSERT_NE(connect(), nullptr);
  EXPECT_EQ(slot_->head.features, kShimGate | kShimPartitions | kShimCredit);
  EXPECT_EQ(slot_->credit.most_ahead_us, Spatial::kMostAheadUs);
  share(kSpatial);
  ASSERT_NE(connect(), nullptr);
  EXPECT_EQ(slot_->head.features, kShimGate | kShimPartitions);
  EXPECT_EQ(slot_->credit.most_ahead_us, 0U);
}

TEST_F(ShimLinkTest, WithOverlapAProgramWithoutAPartRunsAtOnceToo) {
  share("[gpu.0]\nsharing = 'spatial'\noverlap = true\n");
  ASSERT_NE(connect(), nullptr);
  EXPECT_EQ(slot_->head.features, kShimGate | kShimPartitions);
  EXPECT_EQ(slot_->gpus[0].wanted, 0U) << "the whole GPU";
}

// Its launch was counted in the slot of an agent that has died.
TEST_F(ShimLinkTest, WhoWaitsForCreditWithoutALaunchIsLetIn) {
  share("[gpu.0]\nsharing = 'spatial'\ngate = 'credit'\n");
  give_default_a_part();
  ASSERT_NE(connect(), nullptr);
  for (int i = 0; i < 3; ++i) step();
  EXPECT_TRUE(is_closed());
  slot_->waiting = 1;
  for (int i = 0; i < 3; ++i) step();
  EXPECT_FALSE(is_closed());
  EXPECT_TRUE(is_credit_open(*slot_));
}

// /proc can be made to name another one (PR_SET_DUMPABLE).
TEST_F(ShimLinkTest, WhoseProcessItIsTheKernelSays) {
  test::FakeProcReader processes;
  const ProcessId own{::getpid(), start_ticks_of(::getpid())};
  processes.add(own, "program", ::geteuid() + 1);
  link_.reset();
  link_ = ShimLink::listen(path_, tenants_, processes, *region_).value();
  const std::string user = std::to_string(::geteuid());
  const std::vector<Setting> half{{"sm_percent", "50"}};
  ASSERT_TRUE(tenants_.reload({.tenants = {{"user", half}}, .rules = {{"user", {}, user, {}}}}));
  share(kSpatial);
  EXPECT_NE(connect(), nullptr);
  step();
  EXPECT_EQ(link_->partition(*tenants_.find("user"), 0).entitled, 64U);
  link_.reset();
}

TEST_F(ShimLinkTest, AProcessIsLetInWithItsTenantsPart) {
  give_default_a_part();
  share(kSpatial);
  ASSERT_NE(connect(), nullptr);
  EXPECT_TRUE(is_closed());
  step();
  EXPECT_TRUE(is_closed()) << "nothing was launched";
  launch();
  step();
  EXPECT_FALSE(is_closed());
  EXPECT_EQ(slot_->gpus[0].wanted, 0u) << "alone it has the whole GPU, for now";
  EXPECT_EQ(entitled(), 64u);
}

TEST_F(ShimLinkTest, WherePartsGoByTargetTimesEveryoneIsConfinedAndMeasured) {
  share(kByTarget);
  ASSERT_NE(connect(), nullptr);
  // The agent asks nobody for credit.
  EXPECT_EQ(slot_->head.features, uint32_t{kShimGate | kShimPartitions | kShimIterations});
  launch();
  step();
  EXPECT_FALSE(is_closed());
  ASSERT_EQ(plan_.statuses.size(), 1u);
  EXPECT_EQ(plan_.statuses[0].state, SloState::kRest);
  EXPECT_EQ(slot_->gpus[0].sms, 132u);
  EXPECT_NE(entitled(), 0u);
  EXPECT_EQ(slot_->gpus[0].sms_entitled, entitled()) << "its program may read it";
}

TEST_F(ShimLinkTest, AnotherPolicyTakesOverTheProcessesThatAreThere) {
  give_default_a_part();
  share(kSpatial);
  ASSERT_NE(connect(), nullptr);
  step();
  ASSERT_EQ(entitled(), 64u);
  share(kByTarget);
  step();
  EXPECT_FALSE(plan_.statuses.empty());
  EXPECT_NE(entitled(), 0u) << "its place is not lost";
}

TEST_F(ShimLinkTest, WhoStandsAtTheGateWhenTheGpusChangeGoesIn) {
  give_default_a_part();
  share(kSpatial);
  ASSERT_NE(connect(), nullptr);
  EXPECT_TRUE(is_closed());
  share("");
  EXPECT_FALSE(is_closed());
}

TEST_F(ShimLinkTest, AProgramIsShownThePartitionThatItsTenantAsksFor) {
  const std::vector<Setting> shown{{"sm_percent", "50"}, {"sm_min", "60"}, {"sm_shown", "true"}};
  ASSERT_TRUE(tenants_.set(kDefaultTenantName, shown, false));
  share(kSpatial);
  ASSERT_NE(connect(), nullptr);
  EXPECT_EQ(slot_->head.features, uint32_t{kShimGate | kShimPartitions | kShimShown});
  EXPECT_EQ(slot_->sms_shown[0], 80u) << "60 % in whole groups";
  const std::vector<Setting> less{{"sm_percent", "10"}, {"sm_min", "0"}, {"sm_shown", "false"}};
  ASSERT_TRUE(tenants_.set(kDefaultTenantName, less, false));
  launch();
  step();
  EXPECT_EQ(entitled(), 80u) << "what it was shown holds for as long as it runs";
}

TEST_F(ShimLinkTest, APartitionIsWidenedForWhatTheDriverHasRefused) {
  const std::vector<Setting> quarter{{"sm_percent", "25"}};
  ASSERT_TRUE(tenants_.set(kDefaultTenantName, quarter, false));
  share(kSpatial);
  ASSERT_NE(connect(), nullptr);
  launch();
  step();
  EXPECT_EQ(entitled(), 32u);
  slot_->needs[0].refused_sms = 100;
  step();
  EXPECT_EQ(entitled(), 104u);
  const ProcessId own{::getpid(), start_ticks_of(::getpid())};
  EXPECT_NE(link_->note(own).find("100 SMs"), std::string::npos) << link_->note(own);
  slot_->needs[0].refused_sms = 1'000'000;
  step();
  EXPECT_EQ(entitled(), 104u) << "no GPU has as many";
  ASSERT_NE(connect(), nullptr) << "as one that was started again by the same command";
  launch();
  step();
  EXPECT_EQ(entitled(), 104u);
}

// For half a second a program of higher priority stood behind their kernels (H100).
TEST_F(ShimLinkTest, WhoHasBegunToLaunchTakesTurnsBeforeItsServerHasNamedIt) {
  share("[gpu.0]\nsharing = 'spatial'\ngate = 'credit'\n");
  const std::vector<Setting> all{{"sm_percent", "50"}, {"sm_min", "100"}};
  std::vector<Setting> urgent = all;
  urgent.push_back({"priority", "high"});
  ASSERT_TRUE(tenants_.set(kDefaultTenantName, all, false));
  ASSERT_TRUE(tenants_.set("urgent", urgent, true));
  MpsLink mps(std::make_unique<test::FakeMpsHost>(),
              [](const ProcessId& process) { return MpsClient{process, "a", "spin"}; });
  mps.want("", true);
  for (Time now{1s}; mps.status().state != MpsState::kRunning; now += 1ms) mps.step(now);
  link_->set_mps(&mps);
  OtherProcess other(path_);
  ASSERT_TRUE(tenants_.attach(other.id(), "urgent"));
  other.connect([&] { link_->serve(); });
  ASSERT_NE(other.slot(), nullptr);
  ASSERT_NE(connect(), nullptr);
  for (ShimSlot* slot : {slot_, other.slot()}) {
    slot->stripes[0].launches = 1;
    slot->credit.held = ShimHeld::kOnGpu;
  }
  step();
  step();
  EXPECT_FALSE(is_closed());
  other.slot()->waits = 1;
  step();
  EXPECT_EQ(other.slot()->credit.tells, 1u);
  EXPECT_TRUE(is_closed());
}

TEST_F(ShimLinkTest, APlanHoldsAProcessAtAnIterationAndLetsItGo) {
  class Holds final : public Policy {
   public:
    Plan plan(const Snapshot& snapshot) override {
      Plan plan;
      for (const ProcessView& process : snapshot.processes)
        if (holds) plan.decisions.push_back({.process = process.id, .run_until = 7});
      return plan;
    }
    bool holds = true;
  };
  share(kByTarget);
  ASSERT_NE(connect(), nullptr);
  auto policy = std::make_unique<Holds>();
  Holds* const holds = policy.get();
  policy_ = std::move(policy);
  launch();
  step();
  EXPECT_EQ(slot_->iterations.run_until, 7u);
  EXPECT_FALSE(is_closed()) << "nothing was planned for its tenant";
  slot_->iterations.run_until = 9;
  step();
  EXPECT_EQ(slot_->iterations.run_until, 7u);
  holds->holds = false;
  step();
  EXPECT_EQ(slot_->iterations.run_until, 0u);
}

// Another GPU was opened late, because its driver hung.
TEST_F(ShimLinkTest, WhereAGpuJoinsLaterProgramsGoOnBeingMovedAndThereAsWell) {
  give_default_a_part();
  std::vector<GpuInfo> all = gpus_;
  all.push_back(gpus_[0]);
  all[1].index = 1;
  all[1].pci = "0000:0a:00.0";
  std::swap(all[0], all[1]);  // the one that joins comes first in the list
  const Config config =
      test::parse("[gpu.0]\nsharing = 'spatial'\n[gpu.1]\nsharing = 'spatial'\n").value();
  share(kSpatial);
  ASSERT_NE(connect(), nullptr);
  launch();
  step();
  ASSERT_FALSE(is_closed());
  link_->set_gpus(all, config);
  EXPECT_FALSE(is_closed());
  ASSERT_EQ(slot_->head.gpu_count, 2U);
  EXPECT_STREQ(slot_->gpus[0].pci, "0000:1b:00.0") << "GPUs keep their places";
  EXPECT_STREQ(slot_->gpus[1].pci, "0000:0a:00.0");
  step();
  EXPECT_EQ(entitled(), 64u) << "its part is not lost";
  EXPECT_EQ(slot_->gpus[0].sms_entitled, 64u);
}

// A program that does not move between partitions is nobody's, and nobody holds it.
TEST_F(ShimLinkTest, WhereTheFirstSpatialGpuJoinsLaterWhoDoesNotMoveGoesIn) {
  share("");
  ASSERT_NE(connect(), nullptr);
  slot_->gate = 1;
  share(kSpatial);
  EXPECT_EQ(slot_->head.gpu_count, 0U);
  EXPECT_FALSE(is_closed());
}

// Who is between two requests lends, and its next launch wakes the agent: nobody looks for it.
TEST_F(ShimLinkTest, AProgramThatLendsStandsAtItsGateAndWakesTheAgent) {
  share("[gpu.0]\nsharing = 'spatial'\npolicy = 'tpot'\n");
  const std::vector<Setting> prefill{{"phase", "prefill"}};
  ASSERT_TRUE(tenants_.set(kDefaultTenantName, prefill, false));
  ASSERT_NE(connect(), nullptr);
  launch();
  step();
  ASSERT_FALSE(is_closed());
  EXPECT_EQ(link_->hear(MonotonicClock().now()), Time::max());
  const Time end = MonotonicClock().now() + 20s;
  while (!is_closed() && MonotonicClock().now() < end) step();
  ASSERT_TRUE(is_closed()) << "4 ms after its launch";
  EXPECT_EQ(slot_->iterations.run_until, UINT64_MAX) << "so that its gate wakes us";
  step();
  EXPECT_TRUE(is_closed());
  launch();
  slot_->waiting = 1;
  const uint64_t one = 1;
  ASSERT_EQ(::write(wake_.get(), &one, sizeof one), ssize_t{sizeof one});
  const Time now = MonotonicClock().now();
  EXPECT_EQ(link_->hear(now), now) << "a step is due";
  step();
  EXPECT_FALSE(is_closed());
  EXPECT_EQ(slot_->iterations.run_until, 0u);
  EXPECT_EQ(link_->hear(now), Time::max());
}

// A program that writes to its descriptor all the time does not keep the agent at its steps.
TEST_F(ShimLinkTest, WakesAskForNoMoreStepsThanOneEachTwoMilliseconds) {
  share(kByTarget);
  ASSERT_NE(connect(), nullptr);
  Time now = MonotonicClock().now();
  const Time begin = now;
  std::set<Time> due;
  for (int i = 0; i < 1000; ++i, now += 20us) {
    const uint64_t one = 1;
    ASSERT_EQ(::write(wake_.get(), &one, sizeof one), ssize_t{sizeof one});
    due.insert(link_->hear(now));
  }
  EXPECT_EQ(*due.begin(), begin);
  EXPECT_LE(due.size(), 12u) << "in 20 ms";
}

// Nobody would wait at the gate, and the work would never end.
TEST_F(ShimLinkTest, WhoHasWorkInLineThatWaitsOnTheGpuDoesNotLend) {
  share("[gpu.0]\nsharing = 'spatial'\npolicy = 'tpot'\ngate = 'credit'\n");
  const std::vector<Setting> prefill{{"phase", "prefill"}};
  ASSERT_TRUE(tenants_.set(kDefaultTenantName, prefill, false));
  ASSERT_NE(connect(), nullptr);
  slot_->credit.held = ShimHeld::kOnGpu;
  slot_->credit.issued = 7;
  slot_->credit.reached = 5;
  launch();
  step();
  ASSERT_FALSE(is_closed());
  const Time later = MonotonicClock().now() + 30ms;  // long after 4 ms
  while (MonotonicClock().now() < later) {
    step();
    ASSERT_FALSE(is_closed());
  }
  slot_->credit.reached = 7;
  const Time end = MonotonicClock().now() + 20s;
  while (!is_closed() && MonotonicClock().now() < end) step();
  EXPECT_TRUE(is_closed());
}

// Where a GPU shared by time takes turns. No policy of the real ones needs to be there for it.
class ShimLinkTurnsTest : public ShimLinkTest {
 protected:
  ShimLinkTurnsTest() {
    Config config =
        parse_config("[gpu.0]\npolicy = 'scripted'\n", "gpushare.toml", policies_).value();
    link_->set_gpus(gpus_, config);
    policy_ = config.gpu(0).policy.make(gpu_);
  }
  const ProcessId own_{::getpid(), start_ticks_of(::getpid())};
  const std::vector<PolicyEntry> policies_{
      *find_policy(test::every_policy(), "fair"),
      test::ScriptedPolicy::entry("scripted", [](const Snapshot&) { return Plan{}; })};
};

TEST_F(ShimLinkTurnsTest, AProcessWaitsAtItsGateForItsFirstTurn) {
  ASSERT_NE(connect(), nullptr);
  EXPECT_EQ(slot_->head.features, kShimGate | kShimIterations);
  EXPECT_TRUE(is_closed()) << "from the start";
  step();
  EXPECT_TRUE(is_closed());
  link_->hold({.process = own_, .run_until = 1, .is_gate_closed = true});
  step();
  EXPECT_TRUE(is_closed());
  EXPECT_EQ(slot_->iterations.run_until, 1u);
  link_->hold({.process = own_});
  EXPECT_FALSE(is_closed()) << "at once, without a step";
  EXPECT_EQ(slot_->iterations.run_until, 0u);
  slot_->gate.fetch_add(1);
  slot_->iterations.run_until = 9;
  step();
  EXPECT_FALSE(is_closed()) << "what it writes itself lasts until the next step";
  EXPECT_EQ(slot_->iterations.run_until, 0u);
}

// Nothing tells that it is on a GPU: the observer is blind, or it came through another door.
TEST_F(ShimLinkTurnsTest, OneThatIsSeenOnNoGpuIsNotKeptForEver) {
  ASSERT_NE(connect(), nullptr);
  step();
  slot_->waiting = 1;
  const Time end = MonotonicClock().now() + 20s;
  while (is_closed() && MonotonicClock().now() < end) step();
  EXPECT_FALSE(is_closed());
}

TEST_F(ShimLinkTurnsTest, WhereNobodyTakesTurnsAnyMoreAllGoIn) {
  ASSERT_NE(connect(), nullptr);
  step();
  ASSERT_TRUE(is_closed());
  share("");
  step();
  EXPECT_FALSE(is_closed());
}

TEST_F(ShimLinkTurnsTest, WhatItSaysIsSeenBetweenTwoSteps) {
  ASSERT_NE(connect(), nullptr);
  step();
  publish(slot_->iterations, {.source = ShimSource::kRecognised, .begun = 7, .began_ns = 99});
  slot_->iterations.waiting_since_ns = 123;
  slot_->waiting = 2;
  const SlotReading said = link_->look(own_).value();
  EXPECT_EQ(said.begun, 7u);
  EXPECT_EQ(said.began, Time{99ns});
  EXPECT_EQ(said.at_boundary, Time{123ns});
  EXPECT_TRUE(said.is_at_gate);
  EXPECT_FALSE(link_->look({1, 1}));
}

TEST_F(ShimLinkTest, WhyAProgramIsHeldOnTheHostAloneIsSaid) {
  give_default_a_part();
  share("[gpu.0]\nsharing = 'spatial'\ngate = 'credit'\n");
  ASSERT_NE(connect(), nullptr);
  const ProcessId own{::getpid(), start_ticks_of(::getpid())};
  for (const ShimHeld none : {ShimHeld::kUnknown, ShimHeld::kOnGpu, ShimHeld{77}}) {
    slot_->credit.held = none;
    EXPECT_EQ(link_->note(own), "");
  }
  slot_->credit.held = ShimHeld::kCollectives;
  EXPECT_EQ(link_->note(own), "held on the host alone: it launches collectives");
  share(kSpatial);
  ASSERT_NE(connect(), nullptr);
  slot_->credit.held = ShimHeld::kCollectives;
  EXPECT_EQ(link_->note(own), "") << "nobody asked it for credit";
}

TEST_F(ShimLinkTest, IterationsThatCannotBeAreNotBelievedAndThatIsSaid) {
  share(kByTarget);
  ASSERT_NE(connect(), nullptr);
  PublishedIterations said{.source = ShimSource::kAnnounced, .confidence = 1000};
  for (int i = 0; i < 4; ++i) {
    said.ended = ++said.begun;
    said.busy_ns = said.latency_ns += 3'600'000'000'000;
    publish(slot_->iterations, said);
    step();
  }
  ASSERT_EQ(link_->views(0).size(), 1u);
  EXPECT_FALSE(link_->views(0)[0].iterations);
  EXPECT_NE(link_->note(link_->views(0)[0].process).find("not believed"), std::string::npos);
}

}  // namespace
}  // namespace gpushare
