// SPDX-License-Identifier: Apache-2.0
#include "bench/sched/replay/report.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpushare::replay {
namespace {

Nanos percentile(std::span<const Nanos> ascending, uint64_t percent) {
  const size_t rank = (ascending.size() * percent + 99) / 100;
  return ascending[std::max<size_t>(rank, 1) - 1];
}

// Rounded to the nearest, so that the sum of many does not overflow.
Nanos mean_of(std::span<const Nanos> times) {
  double sum = 0;
  for (const Nanos time : times) sum += static_cast<double>(time.count());
  return Nanos(static_cast<Nanos::rep>(sum / static_cast<double>(times.size())));
}

struct Unit {
  std::string_view name;
  double nanos;
};

Unit unit_for(std::span<const Figures> rows) {
  Nanos longest{};
  for (const Figures& row : rows) longest = std::max(longest, row.makespan);
  if (longest >= 100h) return {"h", 3.6e12};
  if (longest >= 10min) return {"min", 6e10};
  return {"s", 1e9};
}

double in(Nanos time, const Unit& unit) { return static_cast<double>(time.count()) / unit.nanos; }

// Whole microseconds, in seconds.
double seconds(Nanos time) { return static_cast<double>(time.count() / 1000) / 1e6; }

}  // namespace

Figures figures_of(std::string name, const Jobs& jobs, std::span<const Span> spans) {
  Figures figures{.name = std::move(name)};
  std::vector<Nanos> queued;
  Nanos last{};
  for (size_t i = 0; i < jobs.size(); ++i) {
    queued.push_back(spans[i].start - jobs[i].submit);
    figures.completions.push_back(spans[i].end - jobs[i].submit);
    last = std::max(last, spans[i].end);
  }
  if (jobs.empty()) return figures;
  figures.makespan = last - jobs.front().submit;
  figures.queuing = mean_of(queued);
  figures.mean = mean_of(figures.completions);
  std::ranges::sort(figures.completions);
  figures.p95 = percentile(figures.completions, 95);
  figures.p99 = percentile(figures.completions, 99);
  return figures;
}

Figures figures_of(std::string name, const Jobs& jobs, const Replay& replay, uint32_t gpus) {
  std::vector<Span> spans;
  for (const Outcome& outcome : replay.outcomes)
    spans.push_back({outcome.started->time_since_epoch(), outcome.ended->time_since_epoch()});
  Figures figures = figures_of(std::move(name), jobs, spans);
  const double all = static_cast<double>(figures.makespan.count()) * gpus;
  figures.utilisation = all > 0 ? static_cast<double>(replay.used.count()) / all : 0;
  figures.switches = replay.switches;
  figures.stops = replay.stops;
  if (replay.switches > 0)
    figures.gap = Nanos(replay.lost.count() / static_cast<Nanos::rep>(replay.switches));
  return figures;
}

std::string figures_table(std::span<const Figures> rows) {
  const Unit unit = unit_for(rows);
  std::string text = fmt::format("{:<28} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {:>9} {:>7} {:>8}\n",
                                 fmt::format("order, times in {}", unit.name), "makespan", "mean",
                                 "p95", "p99", "queuing", "util", "switches", "stops", "gap us");
  for (const Figures& row : rows) {
    text += fmt::format("{:<28} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f}", row.name,
                        in(row.makespan, unit), in(row.mean, unit), in(row.p95, unit),
                        in(row.p99, unit), in(row.queuing, unit));
    if (row.utilisation)
      text += fmt::format(" {:>5.1f}% {:>9} {:>7} {:>8.0f}", *row.utilisation * 100, row.switches,
                          row.stops, static_cast<double>(row.gap.count()) / 1000);
    text += '\n';
  }
  return text;
}

nlohmann::ordered_json figures_json(const Figures& figures) {
  nlohmann::ordered_json json{
      {"order", figures.name},           {"makespan_s", seconds(figures.makespan)},
      {"mean_s", seconds(figures.mean)}, {"p95_s", seconds(figures.p95)},
      {"p99_s", seconds(figures.p99)},   {"queuing_s", seconds(figures.queuing)}};
  if (figures.utilisation) {
    json["utilisation_percent"] =
        static_cast<double>(static_cast<int64_t>(*figures.utilisation * 1e5)) / 1e3;
    json["switches"] = figures.switches;
    json["stops_in_mid_kernel"] = figures.stops;
    json["mean_gap_us"] = figures.gap.count() / 1000;
  }
  return json;
}

std::string completion_svg(std::span<const Figures> rows) {
  constexpr double kWidth = 720, kHeight = 420, kLeft = 60, kRight = 700, kTop = 20, kBottom = 370;
  static constexpr std::array<std::string_view, 8> kColours = {
      "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000"};
  const Unit unit = unit_for(rows);
  Nanos longest{1};
  for (const Figures& row : rows)
    if (!row.completions.empty()) longest = std::max(longest, row.completions.back());
  const auto x = [&](Nanos time) {
    return kLeft + (kRight - kLeft) * static_cast<double>(time.count()) /
                       static_cast<double>(longest.count());
  };
  const auto y = [&](double part) { return kBottom - (kBottom - kTop) * part; };
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, kHeight);
  for (int tick = 0; tick <= 4; ++tick) {
    const double part = tick / 4.0;
    const Nanos time(static_cast<Nanos::rep>(static_cast<double>(longest.count()) * part));
    svg += fmt::format(
        "<path d=\"M{0:.1f} {1:.1f}H{2:.1f}\" stroke=\"#ddd\"/><text x=\"{3:.1f}\" y=\"{4:.1f}\" "
        "text-anchor=\"end\">{5:.0f} %</text><text x=\"{6:.1f}\" y=\"{7:.1f}\" "
        "text-anchor=\"middle\">{8:.4g}</text>\n",
        kLeft, y(part), kRight, kLeft - 6, y(part) + 4, part * 100, x(time), kBottom + 18,
        in(time, unit));
  }
  svg += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">time from submission to completion "
      "in {}; jobs complete by then</text>\n",
      (kLeft + kRight) / 2, kBottom + 38, unit.name);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Figures& row = rows[i];
    const std::string_view colour = kColours[i % kColours.size()];
    std::string path = fmt::format("M{:.1f} {:.1f}", kLeft, kBottom);
    for (size_t done = 0; done < row.completions.size(); ++done)
      path += fmt::format(
          "H{:.1f}V{:.1f}", x(row.completions[done]),
          y(static_cast<double>(done + 1) / static_cast<double>(row.completions.size())));
    svg += fmt::format(
        "<path d=\"{}H{:.1f}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"{}\">{}</text>\n",
        path, kRight, colour, kRight - 6,
        kBottom - 12 - 15 * static_cast<double>(rows.size() - 1 - i), colour, row.name);
  }
  return svg + "</svg>\n";
}

}  // namespace gpushare::replay
