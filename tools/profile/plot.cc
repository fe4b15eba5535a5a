// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/base/format.h"

namespace gpushare {
namespace {

constexpr std::string_view kKneeLabel = "  knee";

double longest(const Sweep& sweep) {
  double most = sweep.slo_us.value_or(0);
  for (const SweepPoint& point : sweep.points) most = std::max(most, point.p99_us);
  return most;
}

std::string time_text(double us) {
  return micros_text(static_cast<uint64_t>(std::max(1.0, std::round(us))));
}

// Without the folders of the program, which may fill the line.
std::string heading(const Sweep& sweep) {
  const std::string& command = sweep.command;
  const size_t folder = command.rfind('/', command.find(' '));
  return fmt::format("{} on {}",
                     printable(command.substr(folder == std::string::npos ? 0 : folder + 1)),
                     printable(sweep.gpu));
}

// Column, 0-based, in which `us` ends.
size_t column_of(double us, double most, size_t columns) {
  const auto column = static_cast<size_t>(std::llround(us / most * static_cast<double>(columns)));
  return std::clamp<size_t>(column, 1, columns) - 1;
}

std::string bar(const Sweep& sweep, const SweepPoint& point, size_t columns) {
  const double most = longest(sweep);
  std::string text(columns, ' ');
  const size_t mean = column_of(point.mean_us, most, columns);
  const size_t p99 = column_of(point.p99_us, most, columns);
  for (size_t i = 0; i <= p99; ++i) text[i] = i <= mean ? '=' : '-';
  if (sweep.slo_us) text[column_of(*sweep.slo_us, most, columns)] = '|';
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

// 1, 2 or 5 times a power of ten, so that there are at most five steps to `most`.
double step_of(double most) {
  const double rough = most / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

class Plot {
 public:
  explicit Plot(const Sweep& sweep) : sweep_(sweep), most_(longest(sweep) * 1.05) {}

  std::string draw() {
    out_ = fmt::format(
        R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" font-family="sans-serif" font-size="13">)"
        "\n<title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        kWidth, kHeight, markup_text(heading(sweep_)));
    text(kLeft, 26, "start", clipped(heading(sweep_), kLongestTitle), 16);
    draw_axes();
    draw_marks();
    draw_curve("#b0b0b0", &SweepPoint::p99_us);
    draw_curve("#1f5fa8", &SweepPoint::mean_us);
    text(kWidth - kRight, 46, "end",
         fmt::format("mean (blue), {} (grey) of one iteration",
                     has_p99(sweep_) ? "p99" : "p99 or longest"));
    return out_ + "</svg>\n";
  }

 private:
  static constexpr double kWidth = 760, kHeight = 440;
  static constexpr double kKneeWidth = 40;     // of the word, and a gap
  static constexpr size_t kLongestTitle = 72;  // characters that fit beside each other
  static constexpr double kLeft = 80, kRight = 20, kTop = 60, kBottom = 50;

  double x(double sms) const { return kLeft + sms / sweep_.sms * (kWidth - kLeft - kRight); }
  double y(double us) const { return kHeight - kBottom - us / most_ * (kHeight - kTop - kBottom); }

  void line(double x1, double y1, double x2, double y2, std::string_view stroke,
            std::string_view dashes = "") {
    out_ += fmt::format(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}"{}/>)"
                        "\n",
                        x1, y1, x2, y2, stroke,
                        dashes.empty() ? "" : fmt::format(R"( stroke-dasharray="{}")", dashes));
  }
  void text(double at_x, double at_y, std::string_view anchor, std::string_view what,
            int size = 13) {
    out_ += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}" font-size="{}">{}</text>)"
                        "\n",
                        at_x, at_y, anchor, size, markup_text(what));
  }

  void draw_axes() {
    const double step = step_of(most_);
    for (int i = 0; step * i <= most_; ++i) {
      line(x(0), y(step * i), x(sweep_.sms), y(step * i), "#e4e4e4");
      text(kLeft - 8, y(step * i) + 4, "end", i == 0 ? "0" : time_text(step * i));
    }
    for (const SweepPoint& point : sweep_.points) {
      const uint32_t sms = sweep_.sms_of(point.groups);
      line(x(sms), y(0), x(sms), y(0) + 5, "#404040");
      if (sweep_.points.size() <= 16 || point.groups % 4 == 0)
        text(x(sms), y(0) + 20, "middle", std::to_string(sms));
    }
    line(x(0), y(0), x(sweep_.sms), y(0), "#404040");
    text((x(0) + x(sweep_.sms)) / 2, kHeight - 8, "middle", fmt::format("SMs, of {}", sweep_.sms));
  }
  void draw_marks() {
    if (sweep_.slo_us) {
      line(x(0), y(*sweep_.slo_us), x(sweep_.sms), y(*sweep_.slo_us), "#b03030", "6 4");
      text(x(sweep_.sms), y(*sweep_.slo_us) - 5, "end", "target " + time_text(*sweep_.slo_us));
    }
    if (sweep_.knee_groups) {
      const double at = x(sweep_.sms_of(*sweep_.knee_groups));
      line(at, y(0), at, y(most_), "#2f7d32", "3 3");
      const bool is_at_edge = at > kWidth - kRight - kKneeWidth;
      text(is_at_edge ? at - 5 : at + 5, y(most_) + 12, is_at_edge ? "end" : "start", "knee");
    }
  }
  void draw_curve(std::string_view stroke, double SweepPoint::* value) {
    out_ += fmt::format(R"(<polyline fill="none" stroke-width="2" stroke="{}" points=")", stroke);
    for (const SweepPoint& point : sweep_.points)
      out_ += fmt::format("{:.1f},{:.1f} ", x(sweep_.sms_of(point.groups)), y(point.*value));
    out_.back() = '"';
    out_ += "/>\n";
    for (const SweepPoint& point : sweep_.points)
      out_ += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"/>)"
                          "\n",
                          x(sweep_.sms_of(point.groups)), y(point.*value), stroke);
  }

  const Sweep& sweep_;
  const double most_;
  std::string out_;
};

}  // namespace

std::string draw_sweep(const Sweep& sweep, size_t width) {
  width = std::max<size_t>(width, 60);
  std::string out = clipped(heading(sweep), width) + "\n";
  out += "groups  SMs     mean      p99\n";
  const size_t columns = width - 31 - kKneeLabel.size();
  for (const SweepPoint& point : sweep.points) {
    std::string line =
        fmt::format("{:>6} {:>4} {:>8} {:>8}  {}", point.groups, sweep.sms_of(point.groups),
                    time_text(point.mean_us), time_text(point.p99_us), bar(sweep, point, columns));
    if (sweep.knee_groups == point.groups) line += kKneeLabel;
    out += line + "\n";
  }
  if (sweep.slo_us) out += fmt::format("target {}\n", time_text(*sweep.slo_us));
  if (!has_p99(sweep))
    out += fmt::format("The p99 of fewer than {} iterations is the longest (-n).\n", kFewestForP99);
  return out;
}

std::string sweep_svg(const Sweep& sweep) { return Plot(sweep).draw(); }

}  // namespace gpushare
