// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "tools/base/format.h"
#include "tools/base/table.h"

namespace gpushare {
namespace {

constexpr int kAlways = Column::kAlways;

std::string percent(double share) { return fmt::format("{:.1f}%", share * 100); }

double error_points(const DemoShares& shares, size_t i) {
  return (shares.measured[i] - shares.target[i]) * 100;
}

std::string micros(const std::optional<double>& us) {
  return us ? fmt::format("{:.0f} us", *us) : kUnknownText;
}

// '#' for what it got, '|' where it should end.
std::string bar(double measured, double target, size_t width) {
  const auto cells = [&](double share) {
    return static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * double(width - 1)));
  };
  std::string text(width, ' ');
  std::fill_n(text.begin(), cells(measured), '#');
  text[cells(target)] = '|';
  return text;
}

}  // namespace

double max_error_points(const DemoShares& shares) {
  double most = 0;
  for (size_t i = 0; i < shares.target.size(); ++i)
    most = std::max(most, std::abs(error_points(shares, i)));
  return std::round(most * 10) / 10;
}

std::vector<std::string> progress_bars(const DemoShares& shares, size_t width) {
  constexpr size_t kText = 47;
  const size_t bar_width = width > kText + 10 ? std::min<size_t>(width - kText, 60) : 10;
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{:8} {:20} {:>7} {:>8}", "TENANT", "SETTING", "TARGET", "SHARE"));
  for (size_t i = 0; i < shares.target.size(); ++i) {
    const DemoProgram& program = demo_programs()[i];
    lines.push_back(fmt::format("{:8} {:20} {:>7} {:>8} {}", program.tenant,
                                setting_text(program.claim), percent(shares.target[i]),
                                percent(shares.measured[i]),
                                bar(shares.measured[i], shares.target[i], bar_width)));
  }
  for (std::string& line : lines) line = clipped(line, width);
  return lines;
}

std::string progress_line(const DemoShares& shares) {
  std::string line;
  for (size_t i = 0; i < shares.target.size(); ++i)
    line += fmt::format("{}{} {:.1f} ({:.1f})", i == 0 ? "" : "  ", demo_programs()[i].tenant,
                        shares.measured[i] * 100, shares.target[i] * 100);
  return line;
}

std::vector<std::string> report_lines(const DemoResult& result, size_t width) {
  const DemoShares& shares = result.shares;
  Table table({{"PROGRAM", 4, 10, Align::kLeft, kAlways},
               {"TENANT", 4, 10, Align::kLeft, kAlways},
               {"SETTING", 8, 24, Align::kLeft, kAlways},
               {"TARGET", 6, 7, Align::kRight, kAlways},
               {"MEASURED", 6, 8, Align::kRight, kAlways},
               {"ERROR", 5, 6, Align::kRight, kAlways},
               {"PROGRESS", 6, 8, Align::kRight, 1}});
  for (size_t i = 0; i < shares.target.size(); ++i) {
    const DemoProgram& program = demo_programs()[i];
    const auto& progress = result.workloads[i].progress;
    table.add({std::string(program.program), std::string(program.tenant),
               setting_text(program.claim), percent(shares.target[i]), percent(shares.measured[i]),
               fmt::format("{:+.1f}", error_points(shares, i)),
               progress ? percent(*progress) : "-"});
  }
  std::vector<std::string> lines = table.lines(width);
  const WorkloadResult& service = result.workloads[kDemoService];
  for (const std::string& line : {
           std::string(),
           std::string("MEASURED: time on the GPU, by its switch log. PROGRESS: the work that the"),
           std::string("program itself counted. ERROR in points."),
           fmt::format("switching: {:.0f} times a second, {} of the GPU", shares.switches_per_s,
                       percent(shares.switching)),
           fmt::format("latency of a 100 us request every 5 ms: p50 {}, p99 {}",
                       micros(service.p50_us), micros(service.p99_us)),
           fmt::format("  the same without the others: p50 {}, p99 {}", micros(result.alone.p50_us),
                       micros(result.alone.p99_us)),
           fmt::format("trace: {}", result.trace),
           std::string("  open it at https://ui.perfetto.dev (Open trace file)"),
           fmt::format("max share error: {:.1f} points", max_error_points(shares)),
       })
    lines.push_back(line);
  return lines;
}

}  // namespace gpushare
