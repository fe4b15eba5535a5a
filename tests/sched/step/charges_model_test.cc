// SPDX-License-Identifier: Apache-2.0
// Whatever happens, in random order and in virtual time: each tenant is charged for what its
// programs did on each GPU, and once. Beside the agent runs a model that asks the simulated GPUs at
// each millisecond what every program has got done, and knows in which tenant it was. More seeds:
// GPUSHARE_TEST_CHARGE_SEEDS.
//
// What is allowed to differ is counted with what happens: a turn's restore and save, the time
// between a move and the step that sees it, what the log has lost, and what an agent that died had
// not published.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>
#include <string>

#include "sched/enforce/recovery.h"
#include "sched/step/publisher.h"
#include "tests/sched/account/lossy_gpu.h"
#include "tests/sched/enforce/late_line.h"
#include "tests/sched/support/scheduler_rig.h"
#include "tests/support/given.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kGpus = 2;

struct Program {
  ProcessId process{};
  uint32_t client = 0;
  std::string tenant;  // by what the test has said
  struct Work {
    uint32_t gpu = 0, context = 0;
    uint64_t sequence = 0;
    Nanos amount{}, executed{};  // amount 0: endless
    bool is_over = false;
  };
  std::vector<Work> works;
  bool is_short = false;
};

// What goes wrong in a run.
enum class Kind {
  kCalm,
  kIdle,         // some programs do nothing
  kTenants,      // they come and go
  kTree,         // some are below others, whose caps hold for them too
  kEventsLost,   // of the drivers' calls of programs
  kRestarts,     // of the agent, killed or asked to stop
  kUnreadable,   // the log, now and then
  kRecordsLost,  // of the log
  kLateDriver,
  kStalls,  // of the agent
};
constexpr int kKinds = static_cast<int>(Kind::kStalls) + 1;

struct ChargesCase {
  uint32_t seed = 0;
  Kind kind{};
};

class ChargesModel : public ::testing::TestWithParam<ChargesCase> {
 protected:
  ChargesModel() : machine_(kGpus), sim_gpu_(machine_.model), observer_(machine_.model) {
    machine_.run_for(1s);
    parts_.make_line = test::late_lines(delay_);
    truths_["default"] = {};
    for (const char* name : {"a", "b", "c"}) make(name);
    if (GetParam().kind == Kind::kTree)
      for (const char* name : {"a/x", "a/x/y", "b/z"}) make(name);
  }
  ~ChargesModel() override { parts_.kill(); }

  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  // --- the agent
  void start() {
    parts_.start(gpu_, &observer_, clock_);
    quiet_until_ = machine_.model.now() + 5s;
    next_ = machine_.model.now();
  }
  void step() {
    const Time began = machine_.model.now();
    stepped_ = parts_.tenants.generation();
    next_ = std::max(parts_.scheduler->step(), began + 1ms);
  }
  void run_for(Nanos time) {
    const Time end = machine_.model.now() + time;
    while (machine_.model.now() < end) {
      machine_.model.advance_to(std::min(end, machine_.model.now() + 1ms));
      watch();
      pollfd events{.fd = observer_.fd(), .events = POLLIN, .revents = 0};
      const bool is_due = machine_.model.now() >= next_ || ::poll(&events, 1, 0) > 0 ||
                          stepped_ != parts_.tenants.generation();
      if (machine_.model.now() >= stalls_until_ && is_due) step();
      watch();
    }
  }

  // --- the truth
  struct Use {
    Nanos done{};          // by its programs
    Nanos with_below{};    // and by those of tenants below it
    Nanos less{}, more{};  // by so much the charge may differ
    Nanos tokens{};        // of the cap's bucket, if it were charged at once
  };
  struct Truth {
    std::array<Use, kGpus> use;
    std::optional<Cap> cap;
    bool was_capped = false;
  };

  // The tenant and those above it.
  std::vector<Truth*> line(std::string_view tenant) {
    std::vector<Truth*> all;
    for (; !tenant.empty(); tenant = name_above(tenant))
      all.push_back(&truths_.at(std::string(tenant)));
    return all;
  }
  void note(Program& program) {
    const std::vector<Truth*> truths = line(program.tenant);
    for (Program::Work& work : program.works) {
      if (work.is_over) continue;
      work.is_over = ended_.contains(work.sequence);
      const Nanos executed =
          work.is_over ? work.amount
                       : Nanos(machine_.model.progress(program.client, work.sequence).executed_ns);
      truths.front()->use[work.gpu].done += executed - work.executed;
      for (Truth* const truth : truths) {
        truth->use[work.gpu].with_below += executed - work.executed;
        truth->use[work.gpu].tokens -= executed - work.executed;
      }
      work.executed = executed;
      // What has nothing to do would be resident all the same, for as long as it is alone.
      if (work.is_over) (void)machine_.model.destroy_context(program.client, work.context);
    }
  }
  // What has happened since the last look.
  void watch() {
    const Nanos passed = machine_.model.now() - watched_;
    watched_ = machine_.model.now();
    for (auto& [name, truth] : truths_) {
      if (!truth.cap) continue;
      for (Use& use : truth.use)
        use.tokens = std::min<Nanos>(
            use.tokens +
                Nanos(static_cast<int64_t>(kMostOfCap * passed.count() * truth.cap->fraction())),
            truth.cap->quota);
    }
    for (const sim::Completion& one : std::exchange(machine_.finished, {}))
      ended_.insert(one.sequence);
    for (auto& program : programs_) note(*program);
    std::vector<Program*> over;
    for (auto& program : programs_)
      if (program->is_short && std::ranges::all_of(program->works, &Program::Work::is_over))
        over.push_back(program.get());
    for (Program* const program : over) end(*program);
    for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
      const Nanos lost = gpu_.take_lost_time(gpu);
      if (lost == 0ns) continue;
      for (auto& [name, truth] : truths_) {
        truth.use[gpu].less += lost + kInferred;
        truth.use[gpu].more += kOfLoss;
      }
      // Who is there then and does nothing may be taken for the one that works, until it is
      // sampled.
      for (auto& program : programs_)
        if (program->works.empty()) truths_.at(program->tenant).use[gpu].more += kSampled;
    }
  }
  // Over any time no tenant has more than its cap, once the bucket, what its programs do until they
  // are frozen, and what is not charged of those that are alone.
  void expect_capped() {
    const Kind kind = GetParam().kind;
    if (kind != Kind::kCalm && kind != Kind::kIdle && kind != Kind::kTenants && kind != Kind::kTree)
      return;
    for (const auto& [name, truth] : truths_)
      for (uint32_t gpu = 0; gpu < kGpus && truth.cap; ++gpu)
        EXPECT_GE(truth.use[gpu].tokens, -kUntilFrozen - sampling(name, gpu))
            << "tenant " << name << ", GPU " << gpu;
  }
  // One that is alone and frozen now and then is known by samples.
  Nanos sampling(const std::string& tenant, uint32_t gpu) {
    const std::vector<Truth*> truths = line(tenant);
    return std::ranges::any_of(truths, [](const Truth* one) { return one->was_capped; })
               ? truths.front()->use[gpu].with_below / 20 + 60ms
               : Nanos{};
  }
  void differ(const std::string& tenant, Nanos by) {
    for (Use& use : truths_.at(tenant).use) {
      use.less += by;
      use.more += by;
    }
  }

  // --- what happens
  void make(const std::string& name) {
    ASSERT_TRUE(parts_.tenants.set(name, {}, /*create=*/true));
    truths_[name] = {};
  }
  void set_cap(const std::string& name, uint32_t percent) {
    const std::string value = percent == 0 ? "max" : std::to_string(percent) + "%";
    ASSERT_TRUE(parts_.tenants.set(name, std::vector<Setting>{{"max", value}}, false));
    Truth& truth = truths_.at(name);
    truth.cap.reset();
    truth.was_capped |= percent > 0;
    if (percent > 0) truth.cap = Cap{Micros(percent * 1000), Micros(100'000)};
    for (Use& use : truth.use) use.tokens = Nanos(Micros(percent * 1000));
  }
  std::string any_tenant() {
    return std::next(truths_.begin(), below(static_cast<uint32_t>(truths_.size())))->first;
  }
  Program& begin(const std::string& tenant, std::optional<Nanos> work, uint32_t on_gpus,
                 std::optional<pid_t> pid = {}) {
    auto program = std::make_unique<Program>();
    program->process = {pid.value_or(next_pid_++), ++starts_};
    program->tenant = tenant;
    program->is_short = work.has_value();
    parts_.processes.dead.erase(program->process.pid);
    parts_.processes.add(program->process, "program");
    EXPECT_TRUE(parts_.tenants.attach(program->process, tenant));
    program->client = machine_.model.open_client(program->process, {.command = "program"});
    for (uint32_t gpu = 0; gpu < kGpus; ++gpu)
      if ((on_gpus & 1U << gpu) != 0) add_work(*program, gpu, work);
    differ(tenant, kOfProgram);
    programs_.push_back(std::move(program));
    return *programs_.back();
  }
  void add_work(Program& program, uint32_t gpu, std::optional<Nanos> work) {
    const auto context = machine_.model.create_context(program.client, gpu).value();
    const uint64_t sequence = machine_.next_sequence++;
    machine_.model.submit(program.client,
                          {.sequence = sequence,
                           .context = context.context,
                           .queue = 0,
                           .kind = work ? sim::WorkKind::kKernel : sim::WorkKind::kEndless,
                           .direction = sim::Direction::kNone,
                           .amount = static_cast<uint64_t>(work.value_or(0ns).count()),
                           .sm_ppm = sim::kAllSms,
                           .ranks = 0,
                           .communicator = 0});
    program.works.push_back({.gpu = gpu,
                             .context = context.context,
                             .sequence = sequence,
                             .amount = work.value_or(0ns)});
  }
  void end(Program& program) {
    note(program);
    machine_.model.close_client(program.client, 0);
    parts_.processes.dead[program.process.pid] = true;
    if (program.works.empty()) --idle_;
    std::erase_if(programs_, [&](const auto& one) { return one.get() == &program; });
  }
  void move(Program& program, const std::string& tenant) {
    watch();
    if (tenant == program.tenant) return;
    // What the agent has not accounted yet goes along.
    for (const std::string& name : {program.tenant, tenant})
      differ(name, behind() + delay_ + stall_left() + 110ms);
    EXPECT_TRUE(parts_.tenants.attach(program.process, tenant));
    program.tenant = tenant;
  }
  // How far the agent's accounts are.
  Nanos behind() const {
    Nanos behind{};
    for (const Accounting& account : parts_.scheduler->state().accounting)
      behind = std::max(behind, machine_.model.now() - account.known_until());
    return std::min<Nanos>(behind, 3s);
  }
  Nanos stall_left() const { return std::max(stalls_until_ - machine_.model.now(), Nanos{}); }

  void act() {
    const uint32_t what = below(100);
    switch (what) {
      case 0 ... 29:
        if (programs_.size() < 12)
          begin(any_tenant(), std::optional(1ms * (1 + below(60))), 1 + below(3));
        break;
      case 30 ... 39:
        if (programs_.size() < 8) begin(any_tenant(), std::nullopt, 1 + below(3));
        break;
      case 40 ... 49:
        if (!programs_.empty()) end(any_program());
        break;
      case 50 ... 56:
        if (!programs_.empty()) {  // its pid has another bearer at once
          Program& old = any_program();
          const pid_t pid = old.process.pid;
          end(old);
          begin(any_tenant(), std::optional(1ms * (1 + below(60))), 1 + below(3), pid);
        }
        break;
      case 57 ... 63:
        if (!programs_.empty()) move(any_program(), any_tenant());
        break;
      case 64 ... 69:
        set_cap(any_tenant(), std::array{0U, 5U, 10U, 30U, 50U}[below(5)]);
        break;
      case 70 ... 74:
        (void)parts_.tenants.set(
            any_tenant(), std::vector<Setting>{{"weight", std::to_string(1 + below(1000))}}, false);
        break;
      case 75 ... 79:
        act_badly();
        break;
      default:
        break;
    }
  }
  void act_badly() {
    switch (GetParam().kind) {
      case Kind::kCalm:
      case Kind::kTree:
        return;
      case Kind::kIdle:
        return begin_idle(any_tenant());
      case Kind::kTenants:
        return below(3) == 0 && truths_.size() < 6 ? make(fmt::format("t{}", next_tenant_++))
                                                   : remove(any_tenant());
      case Kind::kEventsLost:
        return lose_events();
      case Kind::kRestarts:
        return restart(/*is_clean=*/below(2) == 0);
      case Kind::kUnreadable:
        return gpu_.fail(below(kGpus), 1 + static_cast<int>(below(4)));
      case Kind::kRecordsLost:
        return gpu_.lose(below(kGpus), 1 + below(8));
      case Kind::kLateDriver:
        delay_ = 1ms * (below(2) * below(300));
        return;
      case Kind::kStalls:
        return stall(1ms * below(400));
    }
  }
  // The agent is busy elsewhere.
  void stall(Nanos time) { stalls_until_ = machine_.model.now() + time; }
  // Who is on the GPUs is found again after a while, and not charged until then.
  void lose_events() {
    observer_.lose_pending();
    for (auto& [name, truth] : truths_)
      for (Use& use : truth.use) use.less += kFoundAgain;
  }
  void restart(bool is_clean) {
    std::map<std::string, std::array<Nanos, kGpus>> before;
    for (const auto& [name, truth] : truths_)
      for (uint32_t gpu = 0; gpu < kGpus; ++gpu) before[name][gpu] = charged(name, gpu);
    if (is_clean) parts_.scheduler->stop();
    watch();
    parts_.kill();
    recover(gpu_, *parts_.region, parts_.processes);
    watch();
    start();
    for (auto& [name, truth] : truths_)
      for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
        const Nanos now = charged(name, gpu);
        EXPECT_LE(now, before[name][gpu]) << name;
        const Nanos lost = is_clean ? kOfProgram : kUnpublished + kUntold;
        EXPECT_GE(now, before[name][gpu] - lost) << name;
        Use& use = truth.use[gpu];
        use.done = now;
        use.less = use.more = kOfProgram;
        use.less += kFoundAgain;
        if (truth.cap) use.tokens = truth.cap->quota;
      }
    for (auto& program : programs_)
      if (program->works.empty())
        for (Use& use : truths_.at(program->tenant).use) use.more += kSampled;
  }
  void remove(const std::string& name) {
    if (truths_.size() <= 2 || name == "default") return;
    watch();
    ASSERT_TRUE(parts_.tenants.remove(name));
    truths_.erase(name);
    for (auto& program : programs_)
      if (program->tenant == name) program->tenant = "default";
    differ("default", behind() + delay_ + stall_left() + 110ms);
  }
  void begin_idle(const std::string& tenant) {
    if (idle_ >= 3) return;
    ++idle_;
    begin(tenant, std::nullopt, 0);
    Program& program = *programs_.back();
    (void)machine_.model.create_context(program.client, below(kGpus)).value();
    // While no log has told of anybody it may be taken for one that was there before.
    for (Use& use : truths_.at(tenant).use)
      if (machine_.model.now() < quiet_until_) use.more += kSampled;
  }
  Program& any_program() { return *programs_[below(static_cast<uint32_t>(programs_.size()))]; }

  // --- what must be
  Nanos charged(const std::string& tenant, uint32_t gpu) const {
    const auto& uses = parts_.scheduler->state().tenant_use;
    const auto use = uses.find(*parts_.tenants.find(tenant));
    return use == uses.end() ? Nanos{} : use->second.used[gpu] + use->second.presumed[gpu];
  }
  uint64_t freezes(const std::string& tenant) const {
    const auto& uses = parts_.scheduler->state().tenant_use;
    const auto use = uses.find(*parts_.tenants.find(tenant));
    return use == uses.end() ? 0 : use->second.freezes;
  }
  void expect_charged(const std::string& after) {
    for (const auto& [name, truth] : truths_) {
      for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
        const Use& use = truth.use[gpu];
        const Nanos is = charged(name, gpu);
        const double done = std::chrono::duration<double>(use.done).count();
        const double rate =
            0.01 * done + std::chrono::duration<double>(freezes(name) * kOfFreeze).count();
        const double s = std::chrono::duration<double>(is).count();
        EXPECT_GE(
            s, done - rate - std::chrono::duration<double>(sampling(name, gpu) + use.less).count())
            << "tenant " << name << ", GPU " << gpu << ", after " << after;
        EXPECT_LE(s, done + rate + std::chrono::duration<double>(use.more).count())
            << "tenant " << name << ", GPU " << gpu << ", after " << after;
      }
    }
  }

  // Of each program: its first turns, before its slice is set.
  static constexpr Nanos kOfProgram = 3ms;
  static constexpr Nanos kInferred = 400ms, kSampled = 2500ms, kOfLoss = 5ms;
  static constexpr double kMostOfCap = 1.1;
  static constexpr Nanos kUntilFrozen = 20ms;
  // Of each freeze: the turn that it cuts.
  static constexpr Nanos kOfFreeze = 400us;
  // How long it takes until programs are known again after events were lost, or the agent died: the
  // search takes 0.1 s for each of them.
  static constexpr Nanos kFoundAgain = 3s;
  // What an agent that dies has accounted and not published, of a log that may be late as well.
  static constexpr Nanos kUnpublished = Publisher::kInterval + 400ms;
  // A killed agent has not said what it presumed of those that were alone.
  static constexpr Nanos kUntold = 700ms;

  std::minstd_rand random_{GetParam().seed + 1};
  sim::Machine machine_;
  sim::SimGpu sim_gpu_;
  test::LossyGpu gpu_{sim_gpu_};
  sim::ModelObserver observer_;
  sim::ModelClock clock_{machine_.model};
  Nanos delay_{};
  test::SchedulerParts parts_;
  std::vector<std::unique_ptr<Program>> programs_;
  std::set<uint64_t> ended_;
  std::map<std::string, Truth> truths_;
  Time next_{}, watched_{}, stalls_until_{}, quiet_until_{};
  pid_t next_pid_ = 100;
  int next_tenant_ = 0, idle_ = 0;
  uint64_t starts_ = 1000, stepped_ = 0;
};

TEST_P(ChargesModel, EachTenantIsChargedForWhatItsProgramsDid) {
  start();
  for (int action = 0; action < 200 && !HasFailure(); ++action) {
    act();
    run_for(1ms * (1 + below(80)));
    expect_capped();
    if (action % 20 == 19) {
      delay_ = {};
      run_for(1s);
      for (int i = 0; i < 3; ++i) {  // all that has been is in the log, and read
        step();
        run_for(1ms);
      }
      step();
      watch();
      expect_charged(fmt::format("action {}", action));
    }
  }
}

std::vector<ChargesCase> cases() {
  const int seeds = test::number_given("GPUSHARE_TEST_CHARGE_SEEDS", 2);
  std::vector<ChargesCase> all;
  for (int seed = 0; seed < seeds; ++seed)
    for (int kind = 0; kind < kKinds; ++kind)
      all.push_back({static_cast<uint32_t>(seed), static_cast<Kind>(kind)});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Seeds, ChargesModel, ::testing::ValuesIn(cases()), [](const auto& info) {
  return fmt::format("{}_{}", static_cast<int>(info.param.kind), info.param.seed);
});

}  // namespace
}  // namespace gpushare
