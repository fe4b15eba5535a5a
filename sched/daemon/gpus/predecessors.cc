// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/gpus/predecessors.h"

#include <fmt/core.h>

#include <charconv>

#include "shmctl/base/last_threads.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

// Takes a number from the front, and the character behind it unless the text ends there.
template <class Number>
bool take(std::string_view& text, char behind, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text.empty()) return true;
  if (text.front() != behind) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

void Predecessors::add(const ProcessId& process) {
  std::erase_if(all_, [](const ProcessId& one) { return life_of(one) == Life::kEnded; });
  all_.push_back(process);
}

Result<> Predecessors::have_left(uint32_t gpu) const {
  for (const ProcessId& process : all_)
    if (may_ask_gpu(process, gpu))
      return make_error(std::errc::device_or_resource_busy, "wait for an earlier call",
                        fmt::format("a thread of process {} is still in one", process.pid));
  return {};
}

std::string Predecessors::text() const {
  std::string text;
  for (const ProcessId& process : all_)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", process.pid, process.start_ticks);
  return text;
}

std::optional<std::vector<ProcessId>> Predecessors::parse(std::string_view text) {
  std::vector<ProcessId> all;
  while (!text.empty()) {
    ProcessId process;
    if (!take(text, ':', process.pid) || text.empty() || !take(text, ',', process.start_ticks) ||
        process.pid <= 0)
      return std::nullopt;
    all.push_back(process);
  }
  return all;
}

}  // namespace gpushare
