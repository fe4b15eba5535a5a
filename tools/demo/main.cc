// SPDX-License-Identifier: Apache-2.0
// gpushare-demo: unmodified programs share a GPU, or a simulated one, for ten seconds.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tools/base/cli_args.h"
#include "tools/base/report.h"
#include "tools/demo/command_line.h"
#include "tools/demo/run.h"

namespace gpushare {
namespace {

std::optional<Nanos> parse_seconds(const std::string& text) {
  double seconds = 0;
  const char* end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, seconds);
  if (failure != std::errc{} || rest != end || !(seconds >= 1 && seconds <= 3600))
    return std::nullopt;
  return Nanos(std::llround(seconds * 1e9));
}

ExitCode fail_usage(const std::string& text) {
  fmt::print(stderr, "{}", usage_error(demo_spec(), nullptr, text).text);
  return kExitUsage;
}

ExitCode fail(const Error& error) {
  if (error.code == std::errc::operation_canceled) {
    fmt::print(stderr, "gpushare-demo: interrupted; everything is stopped\n");
  } else {
    fmt::print(stderr, "gpushare-demo: {}\n", error.message());
  }
  return kExitFailure;
}

std::string driver_version() {
  std::string version;
  std::getline(std::ifstream("/sys/module/nvidia/version"), version);
  return version.empty() ? "of unknown version" : version;
}

// Lines as they come; on a terminal the bars stay in place.
class Progress {
 public:
  explicit Progress(FILE* out) : out_(out), is_terminal_(::isatty(::fileno(out)) != 0) {}

  void line(const std::string& text) {
    drawn_ = 0;
    fmt::print(out_, "{}\n", text);
    std::fflush(out_);
  }

  void shares(Nanos at, Nanos length, const DemoShares& shares) {
    const long second = std::lround(std::chrono::duration<double>(at).count());
    const std::string when = second <= 0 ? "warm-up" : fmt::format("{} s", second);
    if (!is_terminal_) return line(fmt::format("{:>8}: {}", when, progress_line(shares)));
    if (drawn_ > 0) fmt::print(out_, "\033[{}A", drawn_);
    const auto bars = progress_bars(shares, stdout_screen().width);
    for (const std::string& bar : bars) fmt::print(out_, "{}\033[K\n", bar);
    fmt::print(out_, "{} of {:.0f} s; | is the target\033[K\n", when,
               std::chrono::duration<double>(length).count());
    std::fflush(out_);
    drawn_ = bars.size() + 1;
  }

 private:
  FILE* const out_;
  const bool is_terminal_;
  size_t drawn_ = 0;  // lines of bars above the cursor
};

ExitCode run(const Invocation& invocation) {
  const auto length = parse_seconds(invocation.value("seconds").value_or("10"));
  if (!length)
    return fail_usage("--seconds '" + *invocation.value("seconds") +
                      "' is not a number of seconds, 1 to 3600");
  if (invocation.has("sim") && invocation.has("gpu"))
    return fail_usage("--sim and --gpu exclude each other");
  const bool is_json = invocation.has("json");
  Progress progress(is_json ? stderr : stdout);

  const auto gpu = find_nvidia_gpu("/dev");
  if (!gpu && invocation.has("gpu")) return fail(gpu.error());
  const bool is_simulated = !gpu || invocation.has("sim");
  progress.line(!is_simulated ? fmt::format("Running on a GPU, driver {}.", driver_version())
                : invocation.has("sim")
                    ? std::string("Running on a simulated GPU, as asked.")
                    : fmt::format("Running on a simulated GPU ({}: {}).", gpu.error().detail,
                                  gpu.error().code.message()));

  const std::string trace = std::filesystem::absolute(
      invocation.value("out").value_or(DemoSetup::build_folder() + "/demo-trace.json"));
  if (const auto folder = std::filesystem::path(trace).parent_path();
      ::access(folder.c_str(), W_OK) != 0)
    return fail(errno_error("write a trace there (--out says where)", folder).error());
  DemoWait wait;
  auto setup = DemoSetup::open(is_simulated, wait);
  if (!setup) return fail(setup.error());
  const auto result =
      run_demo(**setup, wait, {.measured = *length, .trace = trace},
               {.step = [&](const std::string& text) { progress.line(text); },
                .shares = [&](Nanos at,
                              const DemoShares& shares) { progress.shares(at, *length, shares); }});
  const auto closed = (*setup)->close();
  if (!result) return fail(result.error());
  if (!closed) return fail(closed.error());

  if (is_json) {
    fmt::print("{}\n", report_json(*result));
  } else {
    progress.line("");
    for (const std::string& line : report_lines(*result, stdout_screen().width))
      progress.line(line);
  }
  return max_error_points(result->shares) <= kDemoLimitPoints ? kExitOk : kExitFailure;
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) {
  using namespace gpushare;
  const auto invocation = parse_args(demo_spec(), argc, argv);
  if (invocation) return finish_output(run(*invocation));
  const Stop& stop = invocation.error();
  fmt::print(stop.code == kExitOk ? stdout : stderr, "{}", stop.text);
  return finish_output(stop.code);
}
