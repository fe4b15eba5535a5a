// SPDX-License-Identifier: Apache-2.0
#include "sched/policies/length_store.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "sched/orders/trace.h"
#include "shmctl/base/log.h"
#include "shmctl/program/state_file.h"

namespace gpushare {
namespace {

constexpr size_t kMostBytes = 1 << 20;
constexpr uint64_t kMib = 1 << 20;

// The words of an error may be those of the file.
std::string for_the_log(std::string text) {
  text.resize(std::min<size_t>(text.size(), 400));
  std::ranges::replace_if(text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

// Moves a file of which nothing can be made out of the way, for its owner to look at.
Result<> set_aside(const std::string& path, const Error& why) {
  const std::string aside = path + ".bad";
  if (std::rename(path.c_str(), aside.c_str()) != 0) return errno_error("set aside", path);
  log_warning("lengths of jobs are learnt anew: {}; the file is {} now", for_the_log(why.message()),
              aside);
  return {};
}

}  // namespace

std::string history_text(const LengthHistory& history) {
  TraceJobs jobs;
  for (const LengthHistory::Finished& one : history.all())
    jobs.push_back({.name = one.name.empty() ? "?" : one.name,
                    .model = one.command,
                    .submit = std::max(one.arrived, Nanos{}),
                    .length = one.length,
                    .iterations = std::max<uint64_t>(one.iterations, 1),
                    .persistent_mib = (one.memory_bytes + kMib - 1) / kMib,
                    .gpus = std::max(one.gpus, 1U),
                    .user = one.user});
  return trace_text(jobs);
}

Result<LengthHistory> parse_history(std::string_view text, std::string_view file) {
  auto jobs = parse_trace(text, file);
  if (!jobs) return std::unexpected(std::move(jobs.error()));
  const size_t excess = jobs->size() - std::min(jobs->size(), LengthHistory::kMost);
  jobs->erase(jobs->begin(), jobs->begin() + static_cast<ptrdiff_t>(excess));
  LengthHistory history;
  for (TraceJob& job : *jobs)
    history.add({.command = std::move(job.model),
                 .length = job.length,
                 .name = std::move(job.name),
                 .arrived = job.submit,
                 .iterations = job.iterations,
                 .memory_bytes = job.persistent_mib * kMib,
                 .gpus = job.gpus,
                 .user = job.user});
  return history;
}

Result<LengthStore> LengthStore::open(const std::string& path) {
  LengthStore store;
  store.is_kept_ = true;
  auto text = read_state_file(path, kMostBytes);
  if (!text && text.error().code != std::errc::file_too_large)
    return std::unexpected(std::move(text.error()));
  if (text && text->empty()) return store;
  auto history = text ? parse_history(*text, path) : std::unexpected(std::move(text.error()));
  if (!history) {
    if (auto moved = set_aside(path, history.error()); !moved)
      return std::unexpected(std::move(moved.error()));
    return store;
  }
  store.history_ = std::move(*history);
  store.saved_ = store.history_.generation();
  return store;
}

std::optional<std::string> LengthStore::take_text() {
  if (!is_changed()) return std::nullopt;
  saved_ = history_.generation();
  return history_text(history_);
}

Result<> LengthStore::write(const std::string& path, const std::string& text) {
  return replace_state_file(path, text, 0600);
}

}  // namespace gpushare
