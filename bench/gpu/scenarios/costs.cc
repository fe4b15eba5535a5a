// SPDX-License-Identifier: Apache-2.0
// What the agent costs: what it adds to a launch, and its own processor time and memory while it
// works hardest.
#include <fmt/format.h>
#include <time.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "bench/gpu/report.h"
#include "bench/gpu/scenario.h"

namespace gpushare::bench {
namespace {

using namespace std::chrono_literals;

constexpr int kPhases = 8;
constexpr Nanos kSettle = 200ms, kPhase = 800ms;
constexpr double kLaunchTolerance = 0.02;
constexpr double kMostCpu = 0.02, kMostMemoryKib = 50 * 1024;
constexpr int kPrograms = 8;

struct Launches {
  std::vector<double> launch_ns, sync_ns;  // the median of each round

  // Adds the rounds that lie between the two instants.
  void add(const std::string& output, Time from, Time to) {
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);) {
      const auto begin = number_in(line, "begin_ns"), end = number_in(line, "end_ns");
      if (!begin || !end || *begin < nanos(from) || *end > nanos(to)) continue;
      launch_ns.push_back(number_in(line, "launch_p50_ns").value_or(0));
      sync_ns.push_back(number_in(line, "sync_p50_ns").value_or(0));
    }
  }

 private:
  static double nanos(Time instant) {
    return static_cast<double>(instant.time_since_epoch().count());
  }
};

// One program launches all the time while an agent comes and goes. Two processes must not be
// compared: one is up to 10 % slower than the next, whatever runs beside it.
void launch_cost(Stage& stage, Report& report) {
  Launches without, with;
  const Child& program =
      stage.start("launch", {"--count", "5000", "--sync-count", "2000", "--rounds", "10000"});
  stage.await_output(program);
  const auto watch = [&](Launches& into) {
    const Time from = Stage::now() + kSettle;
    stage.wait_until(from + kPhase);
    into.add(program.output(), from, from + kPhase);
  };
  for (int i = 0; i < kPhases; ++i) {
    watch(without);
    stage.start_agent("");
    watch(with);
    stage.stop_agent();
  }
  watch(without);  // as much at the end as at the beginning
  stage.kill_programs();
  const auto compare = [&](const std::string& what, const std::vector<double>& off,
                           const std::vector<double>& on) {
    report.numbers().add(what + "_ns_off", off).add(what + "_ns_on", on);
    const double median_on = median(on), median_off = median(off), ratio = median_on / median_off;
    report.must(what + ", agent on / off", "1.00 +- 0.02", fmt::format("{:.0f} ns", median_off),
                fmt::format("{:.3f} ({:.0f} ns)", ratio, median_on),
                std::abs(ratio - 1) <= kLaunchTolerance);
  };
  compare("launch", without.launch_ns, with.launch_ns);
  compare("launch+sync", without.sync_ns, with.sync_ns);
}

// Returns the processor time of a process with all its threads, to the nanosecond.
Nanos cpu_time(pid_t pid) {
  clockid_t clock = 0;
  timespec time{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &time) != 0)
    give_up("read processor time", fmt::format("of process {}", pid));
  return std::chrono::seconds(time.tv_sec) + Nanos{time.tv_nsec};
}

double resident_kib(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string word; status >> word;)
    if (double kib = 0; word == "VmRSS:" && status >> kib) return kib;
  give_up("read resident memory", fmt::format("of process {}", pid));
}

void agent_cost(Stage& stage, Report& report) {
  const std::vector<std::string> spin = stage.spin_arguments(2000);
  stage.start_agent("[tenant.a]\nmax = \"10%\"\n[tenant.b]\nmax = \"20%\"\n[tenant.c]\n");
  const double measured = std::max(stage.settings().seconds, 5.0);
  const Time start = stage.instant_for(kPrograms), from = start + seconds(stage.settle_s());
  std::vector<Child*> programs;
  const char* const tenants[] = {"a", "a", "b", "b", "c", "c", "c", "c"};
  for (int i = 0; i < kPrograms; ++i) {
    std::vector<std::string> arguments = spin;
    arguments.insert(arguments.end(), {"--start-at", ns_text(start), "--seconds",
                                       fmt::format("{}", stage.settle_s() + measured + 0.3)});
    programs.push_back(&stage.start("spin", arguments, tenants[i]));
  }
  stage.wait_until(from);
  const pid_t agent = static_cast<pid_t>(stage.plane().agent.agent_pid);
  const pid_t supervisor = stage.supervisor_pid();
  const auto used = [&] { return cpu_time(agent) + cpu_time(supervisor); };
  const Time began = Stage::now();
  const Nanos before = used();
  stage.wait_until(from + seconds(measured));
  const double cpu = static_cast<double>((used() - before).count()) /
                     static_cast<double>((Stage::now() - began).count());
  const double agent_kib = resident_kib(agent), supervisor_kib = resident_kib(supervisor);
  uint64_t freezes = 0;
  for (const auto& [slot, process] : stage.plane().processes) freezes += process.freezes;
  const uint32_t tick_us = stage.plane().agent.tick_us;
  for (Child* program : programs) stage.finish(*program, start);
  stage.kill_programs();
  stage.stop_agent();

  report.numbers()
      .add("programs", kPrograms)
      .add("cpu_fraction_of_a_core", cpu)
      .add("agent_resident_kib", agent_kib)
      .add("supervisor_resident_kib", supervisor_kib)
      .add("freezes", freezes)
      .add("tick_us", tick_us);
  report.must("CPU, agent + supervisor", "<= 2 % of a core", "-",
              fmt::format("{:.2f} %", cpu * 100), cpu <= kMostCpu);
  const double memory = agent_kib + supervisor_kib;
  report.must("memory, agent + supervisor", "<= 50 MiB", "-",
              fmt::format("{:.1f} MiB", memory / 1024), memory <= kMostMemoryKib);
  report.must("caps were active", "freezes", "-", std::to_string(freezes), freezes > 0);
}

constexpr Scenario kScenarios[] = {
    {"launch-cost", "launch and launch + wait of an empty kernel, agent off and on in turns",
     launch_cost},
    {"agent-cost", "the agent's CPU and memory: 8 saturating programs, caps active", agent_cost},
};

}  // namespace

std::span<const Scenario> cost_scenarios() { return kScenarios; }

}  // namespace gpushare::bench
