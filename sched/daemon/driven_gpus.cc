// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/driven_gpus.h"

#include <fmt/core.h>
#include <sys/eventfd.h>

#include <utility>

#include "sched/tenants/takeover.h"
#include "shmctl/base/log.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

// Searches take 0.2 s at most.
constexpr Nanos kToRest = 500ms;

constexpr const char* kNoAnswer = "the driver does not answer: it has been opened without an end";

}  // namespace

DrivenGpus::DrivenGpus(const Parts& parts)
    : parts_(parts),
      answered_(std::make_shared<Fd>(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))),
      opening_([answered = answered_] { ::eventfd_write(answered->get(), 1); }) {}

bool DrivenGpus::find(const Config& config, ShimProcesses* shims, Nanos patience) {
  KmodObserver* const module = parts_.options.simulation ? nullptr : parts_.module.observer();
  if (!opening_.is_under_way())
    opening_.begin([simulation = parts_.options.simulation,
                    module] { return open_backend(simulation, module); },
                   parts_.clock.now());
  auto backend = opening_.take(patience);
  eventfd_t answers = 0;
  ::eventfd_read(answered_->get(), &answers);
  if (!backend) {
    if (parts_.clock.now() - opening_.since() >= DriverLine::kStuck) return say_why_not(kNoAnswer);
    if (no_gpu_reason_.empty()) no_gpu_reason_ = "the driver is being opened";
    publish_none();
    return false;
  }
  if (!*backend) return say_why_not(backend->error().message());
  if (no_gpu_reason_ == kNoAnswer) log_info("the driver answers again");
  no_gpu_reason_.clear();
  driven_ = Driven{.backend = std::move(**backend), .scheduler = nullptr};
  if (module != nullptr)
    if (const auto asked = module->replay(); !asked) log_error("{}", asked.error().message());
  driven_->scheduler =
      std::make_unique<Scheduler>(Surroundings{.gpu = *driven_->backend.gpu,
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

bool DrivenGpus::say_why_not(std::string reason) {
  if (reason != std::exchange(no_gpu_reason_, reason)) log_warning("no GPU: {}", reason);
  publish_none();
  return false;
}

bool DrivenGpus::lose() {
  if (driven_ && !driven_->scheduler->rest(kToRest)) return false;
  driven_.reset();
  return true;
}

void DrivenGpus::log_found(const Config& config) const {
  const GpuSupport& support = driven_->backend.gpu->support();
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
  if (reason == kNoAnswer)
    reason += fmt::format(" for {} s", (parts_.clock.now() - opening_.since()) / 1s);
  reason.copy(record.observe_only_reason, sizeof record.observe_only_reason - 1);
  write_record(parts_.region.agent, record);
}

const char* DrivenGpus::observer_name() const {
  if (parts_.options.simulation) return "the simulation";
  return own_observer() != nullptr ? "the eBPF probe" : "the kernel module";
}

}  // namespace gpushare
