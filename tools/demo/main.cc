// SPDX-License-Identifier: Apache-2.0
// gpushare-demo: unmodified programs share a GPU, or a simulated one, for ten seconds.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "shmctl/program/command_line.h"
#include "tools/base/report.h"
#include "tools/demo/run.h"

namespace gpushare {
namespace {

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
  const Nanos length = invocation.seconds("seconds");
  if (invocation.has("sim") && invocation.has("gpu"))
    return invocation.wrong("--sim and --gpu exclude each other");
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
  Wait wait = Wait::until_interrupted();
  auto setup = DemoSetup::open({.is_simulated = is_simulated, .config = demo_config()}, wait);
  if (!setup) return fail(setup.error());
  const auto result = run_demo(
      **setup, wait, {.measured = length, .trace = trace},
      {.step = [&](const std::string& text) { progress.line(text); },
       .shares = [&](Nanos at, const DemoShares& shares) { progress.shares(at, length, shares); }});
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

Command program() {
  return {
      .name = "gpushare-demo",
      .summary = "unmodified programs share a GPU by weight, cap and priority.",
      .details =
          "Starts an agent of its own and five programs: two with weights 300 and 100, one capped "
          "at 20 %, one of the idle class, and a service that needs 100 us every 5 ms. Compares "
          "what each got with what its settings promise, then stops all of it. The exit code is 1 "
          "when a share is off by more than 3 points. On a GPU it needs root.",
      .options = {{"sim", 0, "", "Use a simulated GPU, also where there is a real one"},
                  {"gpu", 0, "", "Use the GPU; fail where there is none"},
                  number_option("seconds", "SECONDS", "How long to measure", {1, 3600}, "10"),
                  {"out", 'o', "FILE", "Where to write the trace", "demo-trace.json beside bin/"},
                  {"json", 0, "", "Print the result as JSON, and progress to stderr"}},
      .examples = {"gpushare-demo", "gpushare-demo --sim --seconds 3 --json"},
      .run = run,
  };
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) { return gpushare::run_program(gpushare::program(), argc, argv); }
