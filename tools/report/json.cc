// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/base/table.h"
#include "tools/report/output.h"

namespace gpushare {
namespace {

using Json = nlohmann::ordered_json;

Json line_json(const char* what, const ReportLine& line) {
  const UsageAmounts& had = line.amounts;
  Json json{{what, line.name},
            {"gpu_hours", static_cast<double>(had.used_ms) / 3.6e6},
            {"share", line.share},
            {"target", line.target ? Json(*line.target) : Json()},
            {"waiting_s", static_cast<double>(had.waiting_ms) / 1e3},
            {"throttled_s", static_cast<double>(had.throttled_ms) / 1e3},
            {"stopped_s", static_cast<double>(had.stopped_ms) / 1e3},
            {"iterations", nullptr},
            {"iteration_mean_us", nullptr},
            {"iteration_p99_us", nullptr},
            {"iteration_target_us", nullptr}};
  if (had.iterations > 0) {
    json["iterations"] = had.iterations;
    json["iteration_mean_us"] = had.iterations_us / had.iterations;
  }
  if (had.p99_us != 0) json["iteration_p99_us"] = had.p99_us;
  if (had.target_us != 0) json["iteration_target_us"] = had.target_us;
  return json;
}

Json job_json(const UsageJob& job) {
  return {{"job", job.name},
          {"command", job.command},
          {"tenant", job.tenant},
          {"uid", job.uid == kNoUser ? Json(nullptr) : Json(job.uid)}};
}

}  // namespace

std::string report_json(const ReportSummary& summary) {
  const UsageHistory& history = *summary.history;
  Json json{{"since", history.since},
            {"until", history.until},
            {"step_s", history.step},
            {"watched_hours", summary.watched_hours},
            {"gpu_hours", static_cast<double>(summary.used_ms) / 3.6e6},
            {"broken_samples", history.broken}};
  for (const char* list : {"tenants", "users", "high", "jobs", "freezes", "gpus"})
    json[list] = Json::array();
  for (const ReportLine& line : summary.tenants)
    json["tenants"].push_back(line_json("tenant", line));
  for (const ReportLine& line : summary.users) json["users"].push_back(line_json("user", line));
  for (const ReportLine& line : summary.high) json["high"].push_back(line_json("tenant", line));
  for (const UsageJobTotal& total : summary.jobs) {
    Json job = job_json(total.job);
    job["gpu_hours"] = static_cast<double>(total.amounts.used_ms) / 3.6e6;
    job["waiting_s"] = static_cast<double>(total.amounts.waiting_ms) / 1e3;
    job["throttled_s"] = static_cast<double>(total.amounts.throttled_ms) / 1e3;
    job["first"] = total.first;
    job["last"] = total.last;
    json["jobs"].push_back(std::move(job));
  }
  for (const UsageFreeze& freeze : history.freezes) {
    Json one = job_json(freeze.job);
    one["pid"] = freeze.pid;
    one["gpu"] = freeze.gpu;
    one["reason"] = freeze.reason;
    one["start_ms"] = freeze.start_ms;
    one["duration_ms"] = freeze.duration_ms;
    json["freezes"].push_back(std::move(one));
  }
  for (const ReportGpu& gpu : summary.gpus) {
    Json one{{"gpu", gpu.gpu},
             {"uuid", gpu.about.uuid},
             {"name", gpu.about.name},
             {"used", gpu.busy},
             {"shares", Json::object()}};
    for (const auto& [name, shares] : gpu.shares) {
      Json& list = one["shares"][name] = Json::array();
      for (const double share : shares) list.push_back(share < 0 ? Json(nullptr) : Json(share));
    }
    json["gpus"].push_back(std::move(one));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string report_text(const ReportSummary& summary) {
  const UsageHistory& history = *summary.history;
  std::string out =
      fmt::format("{} to {}: the agent watched {:.2f} hours, {:.2f} GPU hours were used\n",
                  wall_text(history.since), wall_text(history.until), summary.watched_hours,
                  static_cast<double>(summary.used_ms) / 3.6e6);
  constexpr int kAlways = Column::kAlways;
  const auto add = [&out](std::string_view title, const std::vector<ReportLine>& lines) {
    Table table({{title, 8, 40, Align::kLeft, kAlways},
                 {"GPU HOURS", 9, 12, Align::kRight, kAlways},
                 {"SHARE", 6, 8, Align::kRight, kAlways},
                 {"TARGET", 6, 8, Align::kRight, kAlways},
                 {"WAITING", 8, 14, Align::kRight, 50},
                 {"THROTTLED", 9, 14, Align::kRight, 40}});
    for (const ReportLine& line : lines)
      table.add({printable(line.name),
                 fmt::format("{:.3f}", static_cast<double>(line.amounts.used_ms) / 3.6e6),
                 fmt::format("{:.1f}%", line.share * 100),
                 line.target ? fmt::format("{:.1f}%", *line.target * 100) : "-",
                 duration_text(std::chrono::milliseconds(line.amounts.waiting_ms)),
                 duration_text(std::chrono::milliseconds(line.amounts.throttled_ms))});
    if (table.is_empty()) return;
    out += '\n';
    for (const std::string& line : table.lines(kUncut)) out += line + '\n';
  };
  add("TENANT", summary.tenants);
  add("USER", summary.users);
  return out;
}

}  // namespace gpushare
