// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/program/thaw_all.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sched/daemon/gpus/backend.h"
#include "sched/daemon/program/module_hold.h"
#include "sched/enforce/recovery.h"
#include "shmctl/base/last_threads.h"
#include "shmctl/base/log.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kPatience = 5s, kPause = 500ms;
constexpr Nanos kToFindOne = 200ms;  // what a program has, at most

// Outlives those who wait for it.
struct Found {
  std::shared_ptr<Gpu> gpu;
  AllPrograms programs;
};
using Shared = std::shared_ptr<const Found>;

bool is_there_none(const Error& error) {
  constexpr std::array kNone{std::errc::no_such_file_or_directory, std::errc::no_such_device,
                             std::errc::no_such_device_or_address, std::errc::connection_refused};
  return std::ranges::any_of(kNone, [&](std::errc code) { return error.code == code; });
}

// nullopt in place of an answer: there is none yet.
template <class T>
Result<T> or_late(std::optional<Result<T>> answer, const char* who) {
  return answer ? std::move(*answer)
                : make_error(std::errc::timed_out, "thaw everything",
                             fmt::format("{} does not answer", who));
}

Result<Shared> find(const std::optional<std::string>& simulation) {
  Opening<std::shared_ptr<Gpu>> opening([] {});
  const MonotonicClock clock;
  opening.begin(
      [simulation]() -> Result<std::shared_ptr<Gpu>> {
        name_all_gpus_thread();
        auto gpu = list_gpus(simulation);
        if (!gpu) return std::unexpected(gpu.error());
        return std::shared_ptr<Gpu>(std::move(*gpu));
      },
      clock.now());
  auto gpu = or_late(opening.take(kPatience), "the driver");
  if (!gpu) return std::unexpected(gpu.error());

  Opening<std::vector<pid_t>> counting([] {});
  counting.begin([gpu = *gpu] { return gpu->users(); }, clock.now());
  const auto users = or_late(counting.take(kPatience), "the list of programs");
  if (!users) return std::unexpected(users.error());

  Opening<Shared> finding([] {});
  finding.begin(
      [gpu = *gpu]() -> Result<Shared> {
        name_all_gpus_thread();
        auto programs = find_all_programs(*gpu);
        if (!programs) return std::unexpected(programs.error());
        return std::make_shared<const Found>(Found{gpu, std::move(*programs)});
      },
      clock.now());
  const Nanos patience = kPatience + kToFindOne * static_cast<int64_t>(users->size());
  return or_late(finding.take(patience), "the driver");
}

Result<> thaw(const Shared& found) {
  const MonotonicClock clock;
  std::map<uint32_t, Opening<bool>> thaws;
  for (const GpuInfo& info : found->gpu->gpus())
    thaws.try_emplace(info.index, [] {})
        .first->second.begin(
            [found, index = info.index]() -> Result<bool> {
              name_gpu_thread(index);
              const auto thawed = thaw_all(*found->gpu, index, found->programs);
              if (!thawed) return std::unexpected(thawed.error());
              return true;
            },
            clock.now());
  Result<> first = found->programs.is_complete;
  const Time until = clock.now() + kPatience;
  for (auto& [index, asked] : thaws) {
    const auto thawed = or_late(asked.take(std::max(until - clock.now(), Nanos{})),
                                fmt::format("GPU {}", index).c_str());
    if (!thawed && first) first = std::unexpected(thawed.error());
  }
  return first;
}

void name_the_stopped(const std::vector<pid_t>& users) {
  for (const pid_t pid : users) {
    const auto stat = read_proc_stat(pid);
    if (stat && stat->state == 'T')
      log_warning(
          "process {} ({}) is stopped: if nobody did that by hand, gpushare may have; "
          "'kill -CONT {}' lets it go on",
          pid, stat->command, pid);
  }
}

}  // namespace

Result<> thaw_all_programs(const AgentOptions& options) {
  const auto module = hold_module(options);
  const MonotonicClock clock;
  const Time until = clock.now() + kPatience;
  for (;;) {
    const auto found = find(options.simulation);
    if (!found && is_there_none(found.error())) {
      log_info("there is no driver, so that nothing is frozen: {}", found.error().message());
      return {};
    }
    const Result<> thawed = found ? thaw(*found) : std::unexpected(found.error());
    if (thawed) {
      log_info("{} programs thawed, in case that they were frozen",
               (*found)->programs.channels.size());
      name_the_stopped((*found)->programs.users);
      return {};
    }
    if (clock.now() >= until) return thawed;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace gpushare
