// SPDX-License-Identifier: Apache-2.0
#include "tools/report/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "shmctl/plane/layout.h"
#include "shmctl/program/nearest.h"
#include "tools/base/format.h"

namespace gpushare {
namespace {

std::vector<ReportLine> lines_of(const std::map<std::string, UsageAmounts>& sums,
                                 uint64_t watched_ms) {
  std::vector<ReportLine> lines;
  for (const auto& [name, amounts] : sums) {
    ReportLine line{.name = name, .amounts = amounts};
    if (watched_ms > 0) {
      line.share = static_cast<double>(amounts.used_ms) / static_cast<double>(watched_ms);
      if (amounts.entitled_ms > 0)
        line.target = static_cast<double>(amounts.entitled_ms) / static_cast<double>(watched_ms);
    }
    lines.push_back(std::move(line));
  }
  std::ranges::sort(lines, [](const ReportLine& a, const ReportLine& b) {
    if (a.amounts.used_ms != b.amounts.used_ms) return a.amounts.used_ms > b.amounts.used_ms;
    return a.name < b.name;
  });
  return lines;
}

// The first of them, and how many more there are.
std::string list_text(const std::vector<std::string>& words) {
  if (words.empty()) return "none yet";
  constexpr size_t kMost = 12;
  const size_t shown = std::min(kMost, words.size());
  std::string text = fmt::format(
      "{}", fmt::join(words.begin(), words.begin() + static_cast<ptrdiff_t>(shown), ", "));
  if (words.size() > shown) text += fmt::format(" and {} more", words.size() - shown);
  return text;
}

std::string missing_tenant(const std::set<std::string>& known, const std::string& wanted) {
  const auto is_it = [&](const std::string& name) {
    return name == wanted || name.starts_with(wanted + "/");
  };
  if (std::ranges::any_of(known, is_it)) return "";
  const std::vector<std::string_view> names(known.begin(), known.end());
  const std::string_view near = nearest(wanted, names);
  std::vector<std::string> shown;
  shown.reserve(known.size());
  for (const std::string& name : known) shown.push_back(printable(name));
  return fmt::format("--tenant: this history has no tenant '{}'; {}it has: {}", printable(wanted),
                     near.empty() ? "" : fmt::format("did you mean '{}'? ", printable(near)),
                     list_text(shown));
}

std::string missing_gpu(const std::set<uint32_t>& known, uint32_t wanted) {
  if (known.contains(wanted)) return "";
  std::vector<std::string> shown;
  shown.reserve(known.size());
  for (const uint32_t gpu : known) shown.push_back(fmt::format("{}", gpu));
  return fmt::format("--gpu: this history has no GPU {}; it has: {}", wanted, list_text(shown));
}

}  // namespace

std::string missing_from(const UsageHistory& whole, const UsageWindow& window) {
  std::set<std::string> tenants;
  std::set<uint32_t> gpus;
  for (const auto& [number, about] : whole.gpus) gpus.insert(number);
  for (const UsageJobTotal& job : whole.jobs) tenants.insert(job.job.tenant);
  for (const auto& [start, sample] : whole.samples)
    for (const auto& [series, amounts] : sample.amounts) {
      tenants.insert(series.tenant);
      gpus.insert(series.gpu);
    }
  std::string missing = window.gpu ? missing_gpu(gpus, *window.gpu) : "";
  if (missing.empty() && window.tenant) missing = missing_tenant(tenants, *window.tenant);
  return missing;
}

ReportSummary summarize(const UsageHistory& history,
                        const std::function<std::string(int64_t uid)>& user_name) {
  ReportSummary summary;
  summary.history = &history;
  std::map<std::string, UsageAmounts> tenants, users, high;
  std::map<uint32_t, UsageGpu> gpus = history.gpus;
  std::map<int64_t, std::string> names;
  uint64_t watched_ms = 0;
  for (const auto& [start, sample] : history.samples) {
    watched_ms += sample.watched_ms;
    for (const auto& [series, amounts] : sample.amounts) {
      auto [name, is_new] = names.try_emplace(series.uid);
      if (is_new) name->second = series.uid == kNoUser ? "(not seen)" : user_name(series.uid);
      tenants[series.tenant] += amounts;
      users[name->second] += amounts;
      if (series.priority == static_cast<uint32_t>(Priority::kHigh)) high[series.tenant] += amounts;
      gpus.try_emplace(series.gpu);
      summary.used_ms += amounts.used_ms;
    }
  }
  summary.watched_hours = static_cast<double>(watched_ms) / 3.6e6;
  summary.tenants = lines_of(tenants, watched_ms);
  summary.users = lines_of(users, watched_ms);
  std::erase_if(summary.users, [](const ReportLine& line) { return line.amounts.used_ms == 0; });
  summary.high = lines_of(high, watched_ms);
  summary.jobs = history.jobs;
  std::ranges::sort(summary.jobs, [](const UsageJobTotal& a, const UsageJobTotal& b) {
    if (a.amounts.used_ms != b.amounts.used_ms) return a.amounts.used_ms > b.amounts.used_ms;
    return a.job < b.job;
  });

  const size_t named = std::min(kMostNamed, summary.tenants.size());
  const auto steps = static_cast<size_t>((history.until - history.since) / history.step);
  for (const auto& [number, about] : gpus) {
    ReportGpu gpu{.gpu = number, .about = about, .busy = 0, .shares = {}};
    std::map<std::string, size_t> place;
    for (size_t i = 0; i < named; ++i) {
      place[summary.tenants[i].name] = i;
      gpu.shares.emplace_back(summary.tenants[i].name, std::vector<double>(steps, -1));
    }
    if (summary.tenants.size() > named)
      gpu.shares.emplace_back("others", std::vector<double>(steps, -1));
    uint64_t used = 0;
    for (const auto& [start, sample] : history.samples) {
      const auto step = static_cast<size_t>((start - history.since) / history.step);
      if (step >= steps || sample.watched_ms == 0) continue;
      for (auto& [name, shares] : gpu.shares) shares[step] = 0;
      for (const auto& [series, amounts] : sample.amounts) {
        if (series.gpu != number) continue;
        used += amounts.used_ms;
        const auto at = place.find(series.tenant);
        gpu.shares[at == place.end() ? named : at->second].second[step] +=
            static_cast<double>(amounts.used_ms) / static_cast<double>(sample.watched_ms);
      }
    }
    if (watched_ms > 0) gpu.busy = static_cast<double>(used) / static_cast<double>(watched_ms);
    summary.gpus.push_back(std::move(gpu));
  }
  return summary;
}

}  // namespace gpushare
