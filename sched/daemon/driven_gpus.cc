// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/driven_gpus.h"

#include <fmt/core.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "sched/tenants/takeover.h"
#include "shmctl/base/log.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

// Searches take 0.2 s at most.
constexpr Nanos kToRest = 500ms;

// At a start, for those that are slower than the first one.
constexpr Nanos kForTheOthers = 300ms;

constexpr const char* kNoAnswer = "the driver does not answer: it has been opened without an end";

}  // namespace

DrivenGpus::DrivenGpus(const Parts& parts)
    : parts_(parts),
      before_(parts.options.left),
      answered_(std::make_shared<Fd>(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))),
      opening_([answered = answered_] { ::eventfd_write(answered->get(), 1); }) {
  // Its threads may still undo what an agent before us has left.
  if (const auto supervisor = static_cast<pid_t>(parts.options.supervisor_pid); supervisor > 0)
    before_.add({supervisor, start_ticks_of(supervisor)});
}

bool DrivenGpus::find(const Config& config, ShimProcesses* shims, Nanos patience) {
  const Time until = parts_.clock.now() + patience;
  if (!driven_ && !find_driver(patience)) return false;
  if (!find_one(std::clamp(until - parts_.clock.now(), Nanos{}, kForTheOthers))) return false;
  no_gpu_reason_.clear();
  KmodObserver* const module = parts_.options.simulation ? nullptr : parts_.module.observer();
  if (module != nullptr)
    if (const auto asked = module->replay(); !asked) log_error("{}", asked.error().message());
  driven_->gpus->settle_support();
  driven_->scheduler =
      std::make_unique<Scheduler>(Surroundings{.gpu = *driven_->gpus,
                                               .observer = driven_->backend.observer,
                                               .region = parts_.region,
                                               .processes = parts_.processes,
                                               .clock = parts_.clock,
                                               .tenants = parts_.tenants,
                                               .shims = shims,
                                               .mps = &parts_.mps,
                                               .listener = &parts_.listener,
                                               .lengths = &parts_.lengths,
                                               .driver_calls = DriverCalls::kOnThreads},
                                  parts_.identity, config);
  parts_.module.start_over(gpus(), config, driven_->scheduler->state());
  log_found(config);
  return true;
}

// Returns false while it is being opened, and when it cannot be.
bool DrivenGpus::find_driver(Nanos patience) {
  KmodObserver* const module = parts_.options.simulation ? nullptr : parts_.module.observer();
  if (!opening_.is_under_way())
    opening_.begin([simulation = parts_.options.simulation,
                    module] { return open_backend(simulation, module); },
                   parts_.clock.now());
  auto backend = opening_.take(patience);
  forget_answers();
  if (!backend) {
    no_gpu_since_ = opening_.since();
    const bool is_stuck = parts_.clock.now() - opening_.since() >= DriverLine::kStuck;
    return is_stuck ? say_why_not(kNoAnswer) : say_what_is_known();
  }
  if (!*backend) return say_why_not(backend->error().message());
  if (no_gpu_reason_ == kNoAnswer) {
    log_info("the driver answers again");
    no_gpu_reason_.clear();
  }
  no_gpu_since_ = parts_.clock.now();
  driven_ =
      Driven{.backend = std::move(**backend), .gpus = nullptr, .scheduler = nullptr, .expected = 0};
  driven_->gpus = std::make_unique<JoiningGpus>(
      driven_->backend.gpu, parts_.clock, [this](uint32_t gpu) { return before_.have_left(gpu); },
      [answered = answered_] { ::eventfd_write(answered->get(), 1); });
  return true;
}

// Returns false while none is open. The first one is enough, but at a start all come together.
bool DrivenGpus::find_one(Nanos patience) {
  forget_answers();
  driven_->gpus->wait(patience);
  (void)driven_->gpus->look();
  if (driven_->gpus->has_one()) return true;
  const bool is_over = driven_->gpus->has_none();
  const std::string problem = driven_->gpus->first_problem();
  (void)(problem.empty() ? say_what_is_known() : say_why_not(problem));
  // All refuse: the driver's files are opened anew, as it may have been loaded again since. Those
  // that are only to be left alone for now are looked at again soon.
  if (is_over && driven_->gpus->next() > parts_.clock.now() + JoiningGpus::kAgainSoon)
    driven_.reset();
  return false;
}

bool DrivenGpus::find_more() {
  forget_answers();
  const std::vector<uint32_t> joined = driven_->gpus->look();
  for (const uint32_t gpu : joined) driven_->scheduler->join(gpu);
  const auto expected =
      std::ranges::count_if(gpus(), [&](const GpuInfo& gpu) { return is_expected(gpu.index); });
  return std::exchange(driven_->expected, expected) != expected || !joined.empty();
}

void DrivenGpus::forget_answers() {
  eventfd_t answers = 0;
  ::eventfd_read(answered_->get(), &answers);
}

bool DrivenGpus::say_why_not(std::string reason) {
  if (reason != std::exchange(no_gpu_reason_, reason)) log_warning("no GPU: {}", reason);
  publish_none();
  return false;
}

// While the driver or the GPUs are being opened: why the last try has failed.
bool DrivenGpus::say_what_is_known() {
  if (no_gpu_reason_.empty()) no_gpu_reason_ = "the driver is being opened";
  publish_none();
  return false;
}

bool DrivenGpus::lose() {
  if (are_there() && !driven_->scheduler->rest(kToRest)) return false;
  driven_.reset();
  return true;
}

void DrivenGpus::log_found(const Config& config) const {
  const GpuSupport& support = driven_->gpus->support();
  log_info("{} GPU{}, driver {}, policy {}", gpus().size(), gpus().size() == 1 ? "" : "s",
           support.driver_version, config.policy_names(gpus().size()));
  if (!support.reason.empty()) log_warning("not everything is enforced: {}", support.reason);
  if (!driven_->backend.warning.empty()) log_warning("{}", driven_->backend.warning);
  if (!parts_.options.simulation && driven_->backend.observer != nullptr)
    log_info("programs are seen by {}", observer_name());
}

// The tools see an agent that lives and has nothing to drive.
void DrivenGpus::publish_none() {
  clear_gpus(parts_.region);
  AgentRecord record = record_of(parts_.identity, parts_.clock.now());
  record.tick_us = static_cast<uint32_t>(std::chrono::duration_cast<Micros>(kLookAgain).count());
  std::string reason = no_gpu_reason_;
  if (reason.contains("does not answer"))
    reason += fmt::format(" for {} s", (parts_.clock.now() - no_gpu_since_) / 1s);
  reason.copy(record.observe_only_reason, sizeof record.observe_only_reason - 1);
  write_record(parts_.region.agent, record);
}

const char* DrivenGpus::observer_name() const {
  if (parts_.options.simulation) return "the simulation";
  return own_observer() != nullptr ? "the eBPF probe" : "the kernel module";
}

}  // namespace gpushare
