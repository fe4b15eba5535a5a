// SPDX-License-Identifier: Apache-2.0
#include "tools/view/queue_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tools/base/users.h"
#include "tools/view/plain_view.h"
#include "tools/view/process_table.h"

namespace gpushare {
namespace {

constexpr std::array<const char*, 4> kLeftBy{"unknown", "learnt", "said", "announced"};

// Policies of ours that order jobs, also while none is there; one of another file shows it by them.
constexpr std::array<std::string_view, 3> kOrders{"turns", "fifo", "srtf"};

std::string policy_of(const GpuRecord& gpu) { return printable({gpu.policy, sizeof gpu.policy}); }

bool takes_turns(const PlaneSnapshot& snapshot, const GpuRecord& gpu) {
  return std::ranges::find(kOrders, policy_of(gpu)) != kOrders.end() ||
         gpu.gaps + gpu.gaps_missed > 0 ||
         std::ranges::any_of(snapshot.processes, [&](const Numbered<ProcessRecord>& process) {
           return process.record.gpu == gpu.index && process.record.turn != TurnState::kFree;
         });
}

std::string list(const std::vector<uint32_t>& numbers) {
  std::string text;
  for (const uint32_t number : numbers)
    text += (text.empty() ? "" : ",") + fmt::format("{}", number);
  return text;
}

std::string age_text(uint64_t since_ns, uint64_t now_ns) {
  return since_ns == 0 || since_ns > now_ns ? kUnknownText
                                            : duration_text(Nanos(now_ns - since_ns));
}

std::string waiting_gpu_text(const WaitingRecord& waiting) {
  return waiting.gpu == kUnknown32 ? "any" : fmt::format("{}", waiting.gpu);
}

// Those who may come to this GPU.
std::vector<WaitingRecord> waiting_for(const PlaneSnapshot& snapshot, std::optional<uint32_t> gpu) {
  std::vector<WaitingRecord> list;
  for (const WaitingRecord& waiting : snapshot.waiting)
    if (!gpu || waiting.gpu == kUnknown32 || waiting.gpu == *gpu) list.push_back(waiting);
  return list;
}

// Below the jobs, because it has no place in the order of a GPU yet.
void add_waiting(std::vector<std::string>& lines, const std::vector<WaitingRecord>& waiting,
                 uint64_t now_ns, const Screen& screen) {
  if (waiting.empty()) return;
  if (!lines.empty()) lines.emplace_back();
  Table table({{"WAITS", 5, 5, Align::kRight, 40},
               {"PID", 7, 10, Align::kLeft, Column::kAlways},
               {"USER", 8, 16, Align::kLeft, 50},
               {"SINCE", 6, 12, Align::kRight, 70},
               {"GPU", 3, 4, Align::kLeft, 60},
               {"MEMORY", 6, 8, Align::kRight, 75},
               {"LENGTH", 6, 12, Align::kRight, 35},
               {"WHY", 10, 64, Align::kLeft, 80},
               {"COMMAND", 8, 40, Align::kLeft, 30}});
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    const WaitingRecord& one = waiting[i];
    const std::string command = printable({one.command, sizeof one.command});
    table.add({fmt::format("{}", i + 1), fmt::format("{}", one.pid), user_name(one.uid),
               age_text(one.since_ns, now_ns), waiting_gpu_text(one), bytes_text(one.memory_bytes),
               one.length_us == kUnknown64 ? kUnknownText : micros_text(one.length_us),
               printable({one.why, sizeof one.why}),
               command.empty() ? "-" : without_folder(command)});
  }
  add_table(lines, table, screen);
}

Table job_table(const std::vector<QueuedJob>& jobs, uint64_t now_ns) {
  Table table({{"PLACE", 5, 5, Align::kRight, 60},
               {"JOB", 8, 16, Align::kLeft, Column::kAlways},
               {"TENANT", 7, 16, Align::kLeft, 70},
               {"STATE", 8, 8, Align::kLeft, Column::kAlways},
               {"ARRIVED", 7, 12, Align::kRight, 50},
               {"RECEIVED", 8, 12, Align::kRight, 65},
               {"LEFT", 6, 20, Align::kLeft, 85},
               {"GPU", 3, 7, Align::kLeft, 55},
               {"WHY", 10, 48, Align::kLeft, 80},
               {"COMMAND", 8, 40, Align::kLeft, 30}});
  for (const QueuedJob& job : jobs)
    table.add({job.place == 0 ? "-" : fmt::format("{}", job.place), job.name, job.tenant,
               turn_text(job.record.turn), age_text(job.record.job_arrived_ns, now_ns),
               duration_text(Nanos(job.record.job_service_ns)),
               left_text(job.record.job_left_us, job.record.job_left_by), list(job.gpus),
               job.why.empty() ? "-" : job.why, job.command});
  return table;
}

const char* left_word(uint32_t left_by) {
  return left_by < kLeftBy.size() ? kLeftBy[left_by] : kLeftBy[0];
}

}  // namespace

std::vector<QueuedJob> queued_jobs(const PlaneSnapshot& snapshot, std::optional<uint32_t> gpu) {
  std::map<uint64_t, QueuedJob> jobs;
  for (const ProcessRow& row : process_rows(snapshot)) {
    const ProcessRecord& process = row.record;
    if (process.job == 0) continue;
    QueuedJob& job = jobs[process.job];
    if (job.id == 0) {
      job = {.id = process.job,
             .name = job_name(process.run, process.pid),
             .tenant = row.tenant,
             .command = field_text(row, Field::kCommand, Glyphs::kAscii),
             .record = process};
    }
    const std::string note = printable({process.note, sizeof(process.note)});
    if (job.why.empty()) job.why = note;
    const bool is_first = job.gpus.empty() || process.gpu < job.gpus.front();
    if (gpu ? process.gpu == *gpu : is_first) job.place = process.job_place;
    if (std::ranges::find(job.gpus, process.gpu) == job.gpus.end()) {
      job.gpus.push_back(process.gpu);
      std::ranges::sort(job.gpus);
    }
    if (std::ranges::find(job.pids, process.pid) == job.pids.end()) job.pids.push_back(process.pid);
  }
  std::vector<QueuedJob> list;
  for (auto& [id, job] : jobs)
    if (!gpu || std::ranges::find(job.gpus, *gpu) != job.gpus.end()) list.push_back(std::move(job));
  std::ranges::sort(list, {}, [&](const QueuedJob& job) {
    return std::tuple(gpu.value_or(job.gpus.front()), job.place, job.id);
  });
  return list;
}

std::vector<std::string> queue_lines(const Status& status, const Screen& screen,
                                     std::optional<uint32_t> gpu) {
  const PlaneSnapshot& snapshot = status.snapshot;
  std::vector<std::string> lines;
  const auto now = stored_ns(status.taken);
  const auto with_waiting = [&] {
    add_waiting(lines, waiting_for(snapshot, gpu), now, screen);
    return lines;
  };
  // What a dead agent left does not say who takes turns now.
  if (!status.health.is_live()) {
    add_head(lines, status, screen);
    if (const std::vector<QueuedJob> last = queued_jobs(snapshot, gpu); !last.empty())
      add_table(lines, job_table(last, now), screen);
    return with_waiting();
  }
  for (const GpuRecord& each : snapshot.gpus) {
    if ((gpu && each.index != *gpu) || !takes_turns(snapshot, each)) continue;
    std::string line = fmt::format("GPU {}: policy {}", each.index, policy_of(each));
    if (each.gaps > 0)
      line += fmt::format(", {} hand-overs measured, gap p50 {}, p99 {}", each.gaps,
                          micros_text(each.gap_p50_us), micros_text(each.gap_p99_us));
    lines.push_back(clipped(line, screen.width));
  }
  if (gpu && lines.empty()) {
    const auto asked = std::ranges::find(snapshot.gpus, *gpu, &GpuRecord::index);
    if (asked != snapshot.gpus.end())
      lines.push_back(
          clipped(fmt::format("GPU {} takes no turns (its policy is {})", *gpu, policy_of(*asked)),
                  screen.width));
    return with_waiting();
  }
  const std::vector<QueuedJob> jobs = queued_jobs(snapshot, gpu);
  if (!jobs.empty())
    add_table(lines, job_table(jobs, now), screen);
  else
    lines.push_back(lines.empty() ? "no GPU takes turns (policy = \"turns\", \"fifo\" or \"srtf\" "
                                    "in the configuration)"
                                  : "no job is on a GPU that takes turns");
  return with_waiting();
}

std::string queue_json(const PlaneSnapshot& snapshot, std::optional<uint32_t> gpu) {
  using Json = nlohmann::ordered_json;
  const auto maybe = [](uint64_t value, uint64_t unknown) {
    return value == unknown ? Json() : Json(value);
  };
  Json gpus = Json::array(), jobs = Json::array(), waiting = Json::array();
  for (const GpuRecord& each : snapshot.gpus) {
    if (gpu && each.index != *gpu) continue;
    gpus.push_back({{"gpu", each.index},
                    {"policy", policy_of(each)},
                    {"takes_turns", takes_turns(snapshot, each)},
                    {"gaps", each.gaps},
                    {"gaps_missed", each.gaps_missed},
                    {"gap_p50_us", maybe(each.gap_p50_us, kUnknown32)},
                    {"gap_p99_us", maybe(each.gap_p99_us, kUnknown32)}});
  }
  for (const QueuedJob& job : queued_jobs(snapshot, gpu))
    jobs.push_back({{"place", maybe(job.place, 0)},
                    {"job", job.name},
                    {"id", job.id},
                    {"tenant", job.tenant},
                    {"state", turn_text(job.record.turn)},
                    {"state_since_ns", job.record.turn_since_ns},
                    {"arrived_ns", job.record.job_arrived_ns},
                    {"received_ns", job.record.job_service_ns},
                    {"iterations", job.record.job_iterations},
                    {"left_us", maybe(job.record.job_left_us, kUnknown64)},
                    {"left_by", left_word(job.record.job_left_by)},
                    {"gpus", job.gpus},
                    {"pids", job.pids},
                    {"why", job.why},
                    {"command", job.command}});
  for (const WaitingRecord& one : waiting_for(snapshot, gpu))
    waiting.push_back({{"pid", one.pid},
                       {"uid", one.uid},
                       {"since_ns", one.since_ns},
                       {"gpu", maybe(one.gpu, kUnknown32)},
                       {"memory_bytes", one.memory_bytes},
                       {"length_us", maybe(one.length_us, kUnknown64)},
                       {"why", printable({one.why, sizeof one.why})},
                       {"command", printable({one.command, sizeof one.command})}});
  return Json{{"gpus", std::move(gpus)}, {"jobs", std::move(jobs)}, {"waiting", std::move(waiting)}}
      .dump();
}

}  // namespace gpushare
