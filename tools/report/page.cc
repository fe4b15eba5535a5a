// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "tools/base/format.h"
#include "tools/report/output.h"

namespace gpushare {
namespace {

constexpr size_t kMostJobs = 50, kMostFreezes = 20;

// Colours that stand apart on light and dark ground alike, also for who sees red and green as one
// (Okabe and Ito); the last is of the others.
constexpr std::array<const char*, kMostNamed + 1> kColours = {"#0072b2", "#e69f00", "#009e73",
                                                              "#cc79a7", "#56b4e9", "#d55e00",
                                                              "#b8a800", "#8466c0", "#999999"};

constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{0}</title><style>
:root{{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--faint:#667;--rule:#d5d9df;--row:#f5f6f8}}
@media(prefers-color-scheme:dark){{:root{{--ink:#e4e7eb;--paper:#14171b;--faint:#98a1ad;--rule:#333a43;--row:#1c2026}}}}
body{{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1000px;margin:2em auto;padding:0 1em}}
h1{{font-size:1.5em;margin:0}}h2{{font-size:1.15em;margin:2em 0 .5em}}p,figcaption{{color:var(--faint);margin:.3em 0}}
table{{border-collapse:collapse;width:100%}}th,td{{padding:.25em .6em;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}}
th:first-child,td:first-child{{text-align:left;white-space:normal;overflow-wrap:anywhere}}th{{color:var(--faint);font-weight:600}}tr:nth-child(even) td{{background:var(--row)}}
td.l,th.l{{text-align:left}}figure{{margin:1em 0}}svg{{width:100%;height:auto;display:block}}
svg text{{fill:var(--faint);font:11px system-ui,sans-serif}}.grid{{stroke:var(--rule)}}.key i{{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 .9em}}
.meter{{width:160px;height:14px}}.wide{{overflow-x:auto}}
</style></head><body><h1>{0}</h1>
)";

std::string hours(uint64_t ms) { return fmt::format("{:.3f}", static_cast<double>(ms) / 3.6e6); }
std::string percent(double part) { return fmt::format("{:.1f}%", part * 100); }
std::string duration(uint64_t ms) { return duration_text(std::chrono::milliseconds(ms)); }
std::string millis(uint64_t us) { return fmt::format("{:.2f} ms", static_cast<double>(us) / 1e3); }

// A bar for the share and a line for the target, both of one GPU.
std::string meter(const ReportLine& line, double most) {
  const double scale = 160 / std::max(most, 1e-9);
  const std::string mark =
      line.target ? fmt::format(R"(<rect x="{:.1f}" width="2" height="14" fill="currentColor"/>)",
                                std::min(*line.target * scale, 158.0))
                  : "";
  return fmt::format(
      R"(<svg class="meter" viewBox="0 0 160 14"><rect width="{:.1f}" height="10" y="2" fill="{}"/>)"
      "{}</svg>",
      line.share * scale, kColours[0], mark);
}

void add_lines(std::string& out, const char* title, const char* what,
               const std::vector<ReportLine>& lines, bool has_targets) {
  double most = 0;
  for (const ReportLine& line : lines) most = std::max({most, line.share, line.target.value_or(0)});
  out += fmt::format(
      "<h2>{}</h2><div class=\"wide\"><table><tr><th>{}<th>GPU hours<th>share{}"
      "<th>waiting<th>throttled<th>stopped</tr>\n",
      title, what, has_targets ? "<th>target<th class=\"l\">share | target" : "");
  for (const ReportLine& line : lines)
    out += fmt::format(
        "<tr><td>{}<td>{}<td>{}{}<td>{}<td>{}<td>{}</tr>\n", markup_text(line.name),
        hours(line.amounts.used_ms), percent(line.share),
        has_targets ? fmt::format("<td>{}<td class=\"l\">{}",
                                  line.target ? percent(*line.target) : "-", meter(line, most))
                    : "",
        duration(line.amounts.waiting_ms), duration(line.amounts.throttled_ms),
        duration(line.amounts.stopped_ms));
  out += "</table></div>\n";
}

void add_jobs(std::string& out, const ReportSummary& summary) {
  out += "<h2>By job</h2>";
  if (summary.jobs.size() > kMostJobs)
    out += fmt::format("<p>The {} of {} with most GPU time.</p>", kMostJobs, summary.jobs.size());
  out +=
      "<div class=\"wide\"><table><tr><th>job<th class=\"l\">program<th class=\"l\">tenant<th>GPU "
      "hours"
      "<th>waiting<th>throttled<th>first seen<th>last seen</tr>\n";
  for (size_t i = 0; i < std::min(kMostJobs, summary.jobs.size()); ++i) {
    const UsageJobTotal& job = summary.jobs[i];
    out += fmt::format(
        "<tr><td>{}<td class=\"l\">{}<td class=\"l\">{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>\n",
        markup_text(job.job.name), markup_text(job.job.command), markup_text(job.job.tenant),
        hours(job.amounts.used_ms), duration(job.amounts.waiting_ms),
        duration(job.amounts.throttled_ms), wall_text(job.first), wall_text(job.last));
  }
  out += "</table></div>\n";
}

void add_high(std::string& out, const ReportSummary& summary) {
  out += "<h2>Latency of <code>high</code></h2>";
  if (summary.high.empty()) {
    out += "<p>No tenant had the priority high.</p>\n";
    return;
  }
  out +=
      "<div class=\"wide\"><table><tr><th>tenant<th>iterations<th>mean<th>longest "
      "p99<th>target<th>waiting</tr>\n";
  for (const ReportLine& line : summary.high) {
    const UsageAmounts& had = line.amounts;
    const bool is_known = had.iterations > 0;
    out += fmt::format("<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>\n", markup_text(line.name),
                       is_known ? fmt::format("{}", had.iterations) : "not measured",
                       is_known ? millis(had.iterations_us / had.iterations) : "-",
                       had.p99_us != 0 ? millis(had.p99_us) : "-",
                       had.target_us != 0 ? millis(had.target_us) : "-", duration(had.waiting_ms));
  }
  out += "</table></div><p>Iterations are measured where a GPU's policy needs them (slo).</p>\n";
}

void add_freezes(std::string& out, const ReportSummary& summary) {
  const auto& freezes = summary.history->freezes;
  out += "<h2>Longest freezes</h2>";
  if (freezes.empty()) {
    out += "<p>No process was seen to stand still for a second.</p>\n";
    return;
  }
  out +=
      "<div class=\"wide\"><table><tr><th>job<th class=\"l\">program<th "
      "class=\"l\">tenant<th>process<th>GPU"
      "<th>why<th>began<th>lasted</tr>\n";
  for (size_t i = 0; i < std::min(kMostFreezes, freezes.size()); ++i) {
    const UsageFreeze& freeze = freezes[i];
    out += fmt::format(
        "<tr><td>{}<td class=\"l\">{}<td class=\"l\">{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>\n",
        markup_text(freeze.job.name), markup_text(freeze.job.command),
        markup_text(freeze.job.tenant), freeze.pid, freeze.gpu, markup_text(freeze.reason),
        wall_text(freeze.start_ms / 1000), duration(freeze.duration_ms));
  }
  out += "</table></div>\n";
}

}  // namespace

std::string wall_text(WallSeconds time) {
  const std::time_t seconds = time;
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  return fmt::format("{:%Y-%m-%d %H:%M}", parts);
}

std::string share_chart(const ReportGpu& gpu, WallSeconds since, WallSeconds step) {
  constexpr double kLeft = 40, kWidth = 950, kTop = 6, kHeight = 150;
  const size_t steps = gpu.shares.empty() ? 0 : gpu.shares.front().second.size();
  std::string out = fmt::format(
      R"(<svg viewBox="0 0 1000 180" role="img" aria-label="shares of GPU {}">)", gpu.gpu);
  for (const int part : {0, 25, 50, 75, 100}) {
    const double y = kTop + kHeight * (1 - part / 100.0);
    out += fmt::format(R"(<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>)"
                       R"(<text x="{3}" y="{4:.1f}" text-anchor="end">{5}%</text>)",
                       kLeft, kLeft + kWidth, y, kLeft - 6, y + 4, part);
  }
  std::vector<double> below(steps, 0);
  for (size_t tenant = 0; tenant < gpu.shares.size(); ++tenant) {
    const auto& shares = gpu.shares[tenant].second;
    std::string path;
    const double wide = steps == 0 ? 0 : kWidth / static_cast<double>(steps);
    for (size_t i = 0; i < steps; ++i) {
      if (shares[i] <= 0) continue;
      const double part = std::min(shares[i], std::max(0.0, 1 - below[i]));
      const double y = kTop + kHeight * (1 - below[i]);
      path += fmt::format("M{:.1f} {:.1f}h{:.2f}v{:.2f}h-{:.2f}z",
                          kLeft + wide * static_cast<double>(i), y, wide, -kHeight * part, wide);
      below[i] += part;
    }
    if (!path.empty())
      out += fmt::format(R"(<path fill="{}" d="{}"/>)",
                         kColours[std::min(tenant, kColours.size() - 1)], path);
  }
  for (int i = 0; i <= 4; ++i) {
    const WallSeconds at = since + static_cast<WallSeconds>(steps) * step * i / 4;
    out += fmt::format(R"(<text x="{:.1f}" y="174" text-anchor="{}">{}</text>)",
                       kLeft + kWidth * i / 4,
                       i == 0   ? "start"
                       : i == 4 ? "end"
                                : "middle",
                       wall_text(at));
  }
  return out + "</svg>";
}

std::string report_page(const ReportSummary& summary, const std::string& host) {
  const UsageHistory& history = *summary.history;
  std::string out = fmt::format(kHead, "GPU usage of " + markup_text(host));
  out += fmt::format(
      "<p>{} to {}, in steps of {}. The agent watched {:.2f} of {:.2f} hours; {} GPU "
      "hours were used.</p>\n",
      wall_text(history.since), wall_text(history.until),
      duration_text(std::chrono::seconds(history.step)), summary.watched_hours,
      static_cast<double>(history.until - history.since) / 3600, hours(summary.used_ms));
  if (history.samples.empty()) out += "<p>Nothing was recorded in this time.</p>\n";
  if (history.broken > 0)
    out += fmt::format("<p>{} samples could not be read and are left out.</p>\n", history.broken);
  for (const ReportGpu& gpu : summary.gpus) {
    out += fmt::format("<h2>GPU {} {}</h2><figure>{}<figcaption class=\"key\">{} used", gpu.gpu,
                       markup_text(gpu.about.name), share_chart(gpu, history.since, history.step),
                       percent(gpu.busy));
    for (size_t i = 0; i < gpu.shares.size(); ++i)
      out +=
          fmt::format(R"(<i style="background:{}"></i>{})",
                      kColours[std::min(i, kColours.size() - 1)], markup_text(gpu.shares[i].first));
    out += "</figcaption></figure>\n";
  }
  add_lines(out, "By tenant", "tenant", summary.tenants, true);
  add_lines(out, "By user", "user", summary.users, false);
  add_jobs(out, summary);
  add_high(out, summary);
  add_freezes(out, summary);
  out +=
      "<p>Shares are of one GPU's time while the agent watched; 200% is two GPUs. Target is what "
      "the policy aimed at. Waiting, throttled and stopped are times of processes, each counted. "
      "Freezes shorter than a second are not listed. \"(not seen)\" had its GPU time in programs "
      "that ended within a second.</p>\n</body></html>\n";
  return out;
}

}  // namespace gpushare
