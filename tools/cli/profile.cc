// SPDX-License-Identifier: Apache-2.0
// gpushare profile: measures in one run of a program how long its iterations take by its share of
// the SMs. It needs neither the agent nor root.
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "intercept/nvrm/rm_gpu.h"
#include "intercept/sim/gpu/remote_gpu.h"
#include "shmctl/base/fd.h"
#include "tools/base/atomic_file.h"
#include "tools/base/format.h"
#include "tools/base/preload.h"
#include "tools/base/report.h"
#include "tools/cli/commands.h"
#include "tools/profile/plot.h"
#include "tools/profile/program.h"
#include "tools/profile/steps.h"

namespace gpushare {
namespace {

using State = ProfileSteps::State;

constexpr Nanos kLook{500'000};
constexpr Nanos kProgress{200'000'000};
constexpr Nanos kGoodbye{5'000'000'000};  // until a program that was asked to end is killed

struct Order {
  std::vector<uint32_t> groups;  // most first
  ProfileSteps::Limits limits;
  std::optional<double> slo_us;
  std::string json, svg;  // files; empty: none
  bool keeps = false;
  GpuInfo gpu;
  SmGeometry geometry;
};

Result<std::unique_ptr<Gpu>> open_gpu() {
  const char* const simulation = std::getenv("GPUSHARE_SIM");
  if (simulation != nullptr && *simulation != '\0') return sim::make_sim_gpu(simulation);
  return make_rm_gpu(RmUse::kRecovery);
}

// Checks what was asked for against the GPU that there is. The error is a wrong usage.
Result<Order> order_of(const Invocation& invocation, const Gpu& gpu) {
  Order order;
  const auto wrong = [](std::string text) {
    return make_error(std::errc::invalid_argument, "profile", std::move(text));
  };
  const uint64_t index = invocation.whole("device");
  if (index >= gpu.gpus().size())
    return wrong(fmt::format("--device '{}': there are {} GPUs, from 0", index, gpu.gpus().size()));
  order.gpu = gpu.gpus()[index];
  order.geometry = geometry_of(order.gpu.sm_count);
  const std::string every = fmt::format("1-{}", order.geometry.groups);
  const std::string list = invocation.value("groups").value_or(every);
  const auto groups = parse_groups(list, order.geometry.groups);
  if (!groups)
    return wrong(fmt::format("--groups '{}' is no list such as 1,2,4-8 of {}", list, every));
  order.groups.assign(groups->rbegin(), groups->rend());
  order.limits = {.iterations = invocation.whole("iterations"),
                  .longest = invocation.seconds("seconds"),
                  .patience = invocation.seconds("wait")};
  if (invocation.has("slo-us")) order.slo_us = invocation.number("slo-us");
  order.json = invocation.text("json");
  order.svg = invocation.text("svg");
  order.keeps = invocation.has("keep");
  return order;
}

bool is_interrupted(const Fd& fd) {
  signalfd_siginfo info;
  return ::read(fd.get(), &info, sizeof info) == sizeof info;
}

std::string name_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return printable(name);
}

// Other programs take SMs, memory and time from what is measured. Those that only keep the driver
// open do not.
void warn_of_others(const Gpu& gpu) {
  constexpr std::array<std::string_view, 3> kHarmless = {"nvidia-persiste", "nv-hostengine",
                                                         "gpushared"};
  std::vector<std::string> others;
  for (const pid_t pid : gpu.users().value_or(std::vector<pid_t>{}))
    if (const std::string name = name_of(pid);
        pid != ::getpid() && std::ranges::find(kHarmless, name) == kHarmless.end())
      others.push_back(fmt::format("{} {}", pid, name));
  if (others.empty()) return;
  const size_t shown = std::min<size_t>(others.size(), 5);
  fmt::print(stderr,
             "gpushare: warning: other processes use a GPU ({}{}): if they work, what is measured "
             "is too slow\n",
             fmt::join(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
             others.size() > shown ? ", ..." : "");
}

// Shows one line that changes or, if standard error goes to a file, a line for each step.
class Progress {
 public:
  explicit Progress(const Order& order) : order_(order) {}
  ~Progress() {
    if (has_terminal_) fmt::print(stderr, "\r\033[K");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(Time now, State state, const ProfileSteps& steps) {
    const size_t step = state == State::kWarmingUp ? 0 : steps.step() + 1;
    if (has_terminal_ ? now < next_ : step == shown_) return;
    next_ = now + kProgress;
    shown_ = step;
    const std::string text = step == 0 ? "waiting for iterations"
                                       : fmt::format("{} of {}: {} SMs", step, steps.steps(),
                                                     order_.geometry.sms_of_count(steps.groups()));
    if (has_terminal_)
      fmt::print(stderr, "\r\033[K{}, {} iterations", text, steps.iterations());
    else
      fmt::print(stderr, "gpushare: {}\n", text);
  }

 private:
  const Order& order_;
  const bool has_terminal_ = ::isatty(STDERR_FILENO) != 0;
  Time next_{};
  size_t shown_ = ~size_t{0};  // step
};

enum class Ending { kDone, kSilent, kStuck, kProgramEnded, kInterrupted };

struct Outcome {
  Ending ending = Ending::kDone;
  bool has_slot = false, has_launched = false;  // a process of the program, at any time
};

Outcome sweep(ProfiledProgram& program, ProfileSteps& steps, const Order& order, const Fd& stop) {
  const MonotonicClock clock;
  Progress progress(order);
  Outcome outcome;
  const auto with = [&](Ending ending) {
    outcome.ending = ending;
    return outcome;
  };
  for (;;) {
    program.give(steps.groups());
    program.serve(kLook);
    const Time now = clock.now();
    const auto processes = program.processes();
    outcome.has_slot = outcome.has_slot || !processes.empty();
    outcome.has_launched = outcome.has_launched || program.has_launched();
    const State state = steps.look(now, program.is_there(), processes);
    if (state == State::kDone) return with(Ending::kDone);
    if (state == State::kSilent) return with(Ending::kSilent);
    if (state == State::kStuck) return with(Ending::kStuck);
    if (is_interrupted(stop)) return with(Ending::kInterrupted);
    if (program.ended()) return with(Ending::kProgramEnded);
    progress.show(now, state, steps);
  }
}

// Says why there is no whole sweep; empty if there is one.
std::string complaint(const Outcome& outcome, ProfiledProgram& program, const ProfileSteps& steps,
                      const Order& order) {
  const double waited = std::chrono::duration<double>(order.limits.patience).count();
  std::string what;
  switch (outcome.ending) {
    case Ending::kDone:
      return "";
    case Ending::kInterrupted:
      return "interrupted";
    case Ending::kStuck:
      return fmt::format(
          "the program did not move to {} SMs in {:.0f} s (--wait): it launches "
          "nothing any more, or not on streams that can move",
          order.geometry.sms_of_count(steps.groups()), waited);
    case Ending::kSilent:
      what = fmt::format("nothing could be measured in {:.0f} s (--wait)", waited);
      break;
    case Ending::kProgramEnded:
      what = fmt::format("the program ended with exit code {} at step {} of {}", *program.ended(),
                         steps.step() + 1, steps.steps());
  }
  if (!outcome.has_slot) return what + ": it made no use of CUDA";
  if (!outcome.has_launched) return what + ": it launched nothing";
  if (steps.source() == ShimSource::kNone)
    return what + ": no iterations were recognised; a program can announce them (gpushare.h)";
  return what;
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

ExitCode show(const Order& order, const std::vector<std::string>& command,
              const ProfileSteps& steps) {
  Sweep result{.command = joined(command),
               .gpu = order.gpu.name,
               .sms = order.gpu.sm_count,
               .sms_per_group = order.geometry.sms_per_group,
               .knee_groups = {},
               .slo_us = order.slo_us,
               .points = steps.points()};
  if (result.points.size() > 1) result.knee_groups = knee_of(result);
  fmt::print("{}", draw_sweep(result, stdout_screen().width));
  if (result.knee_groups && is_knee_chance(result))
    fmt::print(stderr,
               "gpushare: warning: the times are off by up to {:.0f}%, so the knee may be chance: "
               "measure again with more --iterations, on a GPU that nobody else uses\n",
               noise_of(result) * 100);
  for (const auto& [file, text] :
       {std::pair(order.json, sweep_json(result)), std::pair(order.svg, sweep_svg(result))}) {
    if (file.empty()) continue;
    if (const auto written = write_whole_file(file, text); !written) return report(written.error());
  }
  return kExitOk;
}

ExitCode profile(const Invocation& invocation) {
  const auto library = find_shim_library();
  if (!library) return report(library.error());
  const auto gpu = open_gpu();
  if (!gpu) return report(gpu.error());
  const auto order = order_of(invocation, **gpu);
  if (!order) return invocation.wrong(order.error().detail);
  warn_of_others(**gpu);

  const Fd stop = interrupt_fd();
  auto started = ProfiledProgram::start(invocation.arguments, *library, order->gpu.pci);
  if (!started) return report(started.error());
  ProfiledProgram& program = **started;
  ProfileSteps steps(order->groups, order->limits, MonotonicClock().now());
  const Outcome outcome = sweep(program, steps, *order, stop);
  const std::string wrong = complaint(outcome, program, steps, *order);
  program.give(0);
  const bool keeps = order->keeps && outcome.ending == Ending::kDone;
  if (!keeps) program.end(kGoodbye);
  ExitCode code = steps.points().empty() ? kExitFailure : show(*order, invocation.arguments, steps);
  if (!wrong.empty()) {
    fmt::print(stderr, "gpushare: profile: {}\n", wrong);
    code = kExitFailure;
  } else if (steps.points().size() < steps.steps()) {
    fmt::print(stderr,
               "gpushare: warning: fewer than {} iterations in {:.0f} s on some numbers of SMs: "
               "they are left out (--seconds)\n",
               ProfileSteps::kFewest, std::chrono::duration<double>(order->limits.longest).count());
  }
  if (const ExitCode flushed = finish_output("gpushare", code); flushed != code) code = flushed;
  while (keeps && !program.ended() && !is_interrupted(stop)) program.serve(kProgress / 4);
  return code;
}

}  // namespace

Command profile_command() {
  return {
      .name = "profile",
      .summary = "Measure a program's iterations on every part of a GPU's SMs, in one run.",
      .arguments = "[--] PROGRAM [ARGUMENT...]",
      .details =
          "PROGRAM is started once and runs on while it is moved from all groups of 8 SMs down to "
          "one; at each the mean and the p99 of an iteration are measured: a training step, a "
          "decoding step, a request, recognised or announced by the program. Then it is asked to "
          "end. The knee is the fewest SMs on which it is at most 5% slower than on the most.\n"
          "Needs neither root nor a running gpushared, but a GPU that nobody else uses. What "
          "PROGRAM prints goes to standard error.",
      .options = {{"groups", 'g', "LIST", "Numbers of groups of 8 SMs, such as 1,2,4-8,16",
                   "all there are"},
                  {.name = "iterations",
                   .letter = 'n',
                   .value = "N",
                   .help = "Iterations at each",
                   .otherwise = "100",
                   .range = Range{ProfileSteps::kFewest, 1'000'000, true}},
                  {.name = "seconds",
                   .letter = 's',
                   .value = "S",
                   .help = "At most so long at each",
                   .otherwise = "10",
                   .range = Range{0.1, 36'000}},
                  number_option("wait", "S",
                                "How long to wait for the first iterations, in seconds",
                                {0.1, 36'000}, "120"),
                  number_option("slo-us", "US", "A target time to draw, in microseconds", {1, 1e9}),
                  {"json", 0, "FILE", "Write the figures as JSON"},
                  {"svg", 0, "FILE", "Write the curve as SVG"},
                  number_option("device", "N", "The GPU, by its index in gpushare status",
                                {0, 255, true}, "0"),
                  {"keep", 0, "", "Let PROGRAM run to its end afterwards, on the whole GPU"}},
      .examples = {"gpushare profile -- python train.py",
                   "gpushare profile -g 1,2,4,8,16 --slo-us 20000 --svg serve.svg -- ./serve"},
      .starts_program = true,
      .run = profile,
  };
}

}  // namespace gpushare
