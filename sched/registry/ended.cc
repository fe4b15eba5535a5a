// SPDX-License-Identifier: Apache-2.0
#include "sched/registry/ended.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "shmctl/base/aside.h"
#include "shmctl/base/log.h"

namespace gpushare {
namespace {

constexpr Nanos kFirstAsk = std::chrono::milliseconds(10), kLongestAsk = std::chrono::seconds(1);

}  // namespace

EndedProcesses::EndedProcesses(Gpu& gpu, Registry& registry, const Clock& clock, DriverCalls calls)
    : gpu_(gpu), registry_(registry), clock_(clock), calls_(calls), gpus_(gpu.gpus().size()) {}

EndedProcesses::~EndedProcesses() {
  for (const OnGpu& one : gpus_)
    if (one.answer.valid()) one.answer.wait();
}

bool EndedProcesses::rest(Nanos patience) const {
  const auto until = std::chrono::steady_clock::now() + patience;
  return std::ranges::all_of(gpus_, [&](const OnGpu& one) {
    return !one.answer.valid() || one.answer.wait_until(until) == std::future_status::ready;
  });
}

std::set<ProcessId> EndedProcesses::on(uint32_t gpu) const {
  std::set<ProcessId> found;
  for (const pid_t pid : registry_.ended())
    if (registry_.is_on(pid, gpu)) found.insert(registry_.find(pid)->id);
  return found;
}

void EndedProcesses::look() {
  for (uint32_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    OnGpu& one = gpus_[gpu];
    if (one.answer.valid() && one.answer.wait_for(Nanos{}) == std::future_status::ready)
      take(gpu, one, one.answer.get());
    if (one.answer.valid() || registry_.ended().empty()) continue;
    std::set<ProcessId> ended = on(gpu);
    if (!std::ranges::includes(one.known, ended)) one.pause = {};  // there are new ones
    if (ended.empty() || (one.pause != Nanos{} && clock_.now() < one.next)) continue;
    if (gpu_.closed_because(gpu).empty()) ask(gpu, one, std::move(ended));
  }
  for (const pid_t pid :
       std::set<pid_t>(registry_.ended()))  // freed by whoever has its descriptors
    if (registry_.find(pid)->holders.empty()) registry_.close(registry_.find(pid)->id);
}

void EndedProcesses::ask(uint32_t gpu, OnGpu& one, std::set<ProcessId> ended) {
  one.known = one.asked = std::move(ended);
  one.pause = std::clamp(2 * one.pause, kFirstAsk, kLongestAsk);
  one.next = clock_.now() + one.pause;
  if (calls_ == DriverCalls::kOnThreads)
    one.answer = start_aside<Answer>([&driver = gpu_, gpu] { return driver.pids_on(gpu); });
  if (!one.answer.valid()) take(gpu, one, gpu_.pids_on(gpu));
}

// Where the driver cannot tell, a process is gone with its end.
void EndedProcesses::take(uint32_t gpu, OnGpu& one, const Answer& answer) {
  const std::set<ProcessId> asked = std::exchange(one.asked, {});
  const bool can_tell = answer || answer.error().code != std::errc::not_supported;
  if (!answer && can_tell) {
    if (!std::exchange(has_warned_, true))
      log_warning("GPU {}: what has ended may still be there: {}", gpu, answer.error().message());
    return;
  }
  for (const ProcessId& process : asked) {
    const Process* const known = registry_.find(process);
    if (known == nullptr || !known->ended) continue;  // it has got another program
    if (!can_tell || std::ranges::find(*answer, process.pid) == answer->end())
      registry_.gone_from(process, gpu);
  }
}

Time EndedProcesses::next() const {
  Time next = Time::max();
  if (registry_.ended().empty()) return next;
  for (const OnGpu& one : gpus_)
    if (!one.known.empty()) next = std::min(next, one.next);
  return next;
}

}  // namespace gpushare
