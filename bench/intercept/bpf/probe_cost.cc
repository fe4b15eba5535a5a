// SPDX-License-Identifier: Apache-2.0
// What does the probe cost the programs of the machine? Measures nanoseconds per system call with
// and without it, for calls that it ignores at each step of its filter and for one that it reports.
// It also gives the time inside the probe's program as the kernel accounts it (which itself adds
// about 30 ns), because calls on the FUSE file that stands for the driver take too long to show a
// difference. Rounds alternate between all calls without the probe and with it. Every figure is a
// median over rounds of medians over short runs, so that other load drops out. Needs root.
#include <bpf/bpf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "bench/run_file.h"
#include "intercept/bpf/observer.h"
#include "shmctl/base/version.h"
#include "shmctl/program/command_line.h"
#include "tests/intercept/bpf/fake_driver.h"

namespace gpushare {
namespace {

struct Files {
  int pipe = -1, null = -1, fuse = -1;
};

// One kind of call. `file` answers like the driver but is a FUSE file, so a call on it takes
// microseconds; the probe counts it as the driver's only with accept_any_file.
struct Case {
  const char* name;
  bool accept_any_file;
  int calls;  // how many in one run
  void (*call)(const Files&);
};

void rm_control_of(uint32_t command, int file) { rm_control(file, 1, 1, command, nullptr, 0); }

constexpr Case kCases[] = {
    {"another system call (getppid)", false, 10'000, [](const Files&) { ::syscall(SYS_getppid); }},
    {"unrelated ioctl (FIONREAD)", false, 10'000,
     [](const Files& files) {
       int bytes = 0;
       ::ioctl(files.pipe, FIONREAD, &bytes);
     }},
    {"unrelated ioctl that fails (ENOTTY)", false, 10'000,
     [](const Files& files) { ::ioctl(files.null, TCGETS, nullptr); }},
    {"RM_CONTROL's number on another file", false, 400,
     [](const Files& files) { rm_control_of(GS_CTRL_GPU_GET_ID, files.fuse); }},
    {"RM_CONTROL that is not reported", true, 400,
     [](const Files& files) { rm_control_of(GS_CTRL_GPU_GET_ID, files.fuse); }},
    {"RM_CONTROL that is reported", true, 400,
     [](const Files& files) { rm_control_of(GS_CTRL_SET_TIMESLICE, files.fuse); }},
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

constexpr int kRuns = 15;

// The CPU time of this thread, so that what others do on its CPU does not count.
double cpu_time_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

double measure(const Case& test, const Files& files) {
  std::vector<double> runs;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = cpu_time_ns();
    for (int i = 0; i < test.calls; ++i) test.call(files);
    runs.push_back((cpu_time_ns() - begin) / test.calls);
  }
  return median(std::move(runs));
}

// A process that takes the index of a case and answers with nanoseconds per call. The probe ignores
// the process that loaded it, so the calls must come from another one.
class Worker {
 public:
  explicit Worker(const FakeDriver& driver) {
    int questions[2], answers[2];
    if (::pipe2(questions, O_CLOEXEC) != 0 || ::pipe2(answers, O_CLOEXEC) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(questions[1]);
      serve(driver, questions[0], answers[1]);
    }
    ask_.reset(questions[1]);
    answer_.reset(answers[0]);
    ::close(questions[0]);
    ::close(answers[1]);
  }
  Worker(const Worker&) = delete;
  ~Worker() {
    ask_.reset();
    ::waitpid(pid_, nullptr, 0);
  }

  double nanoseconds(size_t index) {
    double result = 0;
    if (::write(ask_.get(), &index, sizeof index) != sizeof index ||
        ::read(answer_.get(), &result, sizeof result) != sizeof result)
      std::abort();
    return result;
  }

 private:
  [[noreturn]] static void serve(const FakeDriver& driver, int ask, int answer) {
    int pipe_fds[2];
    if (::pipe(pipe_fds) != 0) std::abort();
    Fd fuse = driver.open();
    const Files files{pipe_fds[0], ::open("/dev/null", O_RDWR), fuse.get()};
    size_t index = 0;
    while (::read(ask, &index, sizeof index) == sizeof index) {
      const double result = measure(kCases[index], files);
      if (::write(answer, &result, sizeof result) != sizeof result) ::_exit(1);
    }
    ::_exit(0);
  }

  pid_t pid_ = 0;
  Fd ask_, answer_;
};

struct Samples {
  std::vector<double> off, on, inside;
};

// Returns the descriptor of the probe's ioctl program, which is the latest one of that name.
Fd ioctl_program() {
  Fd found;
  for (uint32_t id = 0; bpf_prog_get_next_id(id, &id) == 0;) {
    Fd program(bpf_prog_get_fd_by_id(id));
    bpf_prog_info info{};
    uint32_t size = sizeof info;
    if (program.is_open() && bpf_obj_get_info_by_fd(program.get(), &info, &size) == 0 &&
        std::strcmp(info.name, "ioctl_exit") == 0)
      found = std::move(program);
  }
  return found;
}

// Returns the mean nanoseconds of a run of the program during `work`; 0 if it did not run.
template <class Work>
double nanoseconds_inside(const Fd& program, Work work) {
  const Fd accounting(bpf_enable_stats(BPF_STATS_RUN_TIME));
  const auto read = [&] {
    bpf_prog_info info{};
    uint32_t size = sizeof info;
    bpf_obj_get_info_by_fd(program.get(), &info, &size);
    return std::pair(info.run_time_ns, info.run_cnt);
  };
  const auto before = read();
  work();
  const auto after = read();
  const uint64_t runs = after.second - before.second;
  return runs == 0 ? 0
                   : static_cast<double>(after.first - before.first) / static_cast<double>(runs);
}

Result<> run_round(Worker& worker, std::span<Samples> samples) {
  for (size_t i = 0; i < std::size(kCases); ++i) samples[i].off.push_back(worker.nanoseconds(i));
  for (const bool accept_any_file : {false, true}) {
    auto observer =
        BpfObserver::start({.ring_bytes = 8u << 20, .accept_any_file = accept_any_file}, nullptr);
    if (!observer) return std::unexpected(observer.error());
    const Fd program = ioctl_program();
    for (size_t i = 0; i < std::size(kCases); ++i) {
      if (kCases[i].accept_any_file != accept_any_file) continue;
      samples[i].on.push_back(worker.nanoseconds(i));
      samples[i].inside.push_back(nanoseconds_inside(program, [&] { worker.nanoseconds(i); }));
    }
    if ((*observer)->dropped() != 0)
      return make_error(std::errc::no_buffer_space, "measure", "records were lost");
  }
  return {};
}

nlohmann::ordered_json report(std::span<const Samples> samples, nlohmann::ordered_json run) {
  const auto tenths = [](double value) { return std::round(value * 10) / 10; };
  nlohmann::json cases = nlohmann::json::array();
  for (size_t i = 0; i < samples.size(); ++i) {
    std::vector<double> added;
    for (size_t r = 0; r < samples[i].off.size(); ++r)
      added.push_back(samples[i].on[r] - samples[i].off[r]);
    cases.push_back({{"call", kCases[i].name},
                     {"without_ns", tenths(median(samples[i].off))},
                     {"with_ns", tenths(median(samples[i].on))},
                     {"added_ns", tenths(median(added))},
                     {"inside_program_ns", tenths(median(samples[i].inside))}});
  }
  run["what"] = "cost of the eBPF probe: CPU time per system call, medians of interleaved rounds";
  run["cpus"] = ::sysconf(_SC_NPROCESSORS_ONLN);
  run["rounds"] = samples[0].off.size();
  run["cases"] = cases;
  return run;
}

void print_table(const nlohmann::ordered_json& result) {
  fmt::print("{:<38} {:>9} {:>9} {:>9} {:>9}\n", "ns per call", "without", "with", "added",
             "inside");
  for (const auto& row : result["cases"]) {
    fmt::print("{:<38}", row["call"].get<std::string>());
    for (const char* key : {"without_ns", "with_ns", "added_ns", "inside_program_ns"})
      fmt::print(" {:>9.1f}", row[key].get<double>());
    fmt::print("\n");
  }
}

ExitCode run(const Invocation& in, const std::string& command) {
  const Result<FakeDriver> driver = FakeDriver::mount();
  if (!driver) {
    fmt::print(stderr, "probe_cost: {}\n", driver.error().message());
    return kExitFailure;
  }
  Worker worker(*driver);
  std::vector<Samples> samples(std::size(kCases));
  for (uint64_t round = 0; round < in.whole("rounds"); ++round) {
    if (const Result<> done = run_round(worker, samples); !done) {
      fmt::print(stderr, "probe_cost: {}\n", done.error().message());
      return kExitFailure;
    }
  }
  const nlohmann::ordered_json result =
      report(samples, bench::run_without_gpu(in.text("commit"), command));
  print_table(result);
  if (!in.has("out")) return kExitOk;
  if (const Result<> added = bench::append_run(in.text("out"), result.dump()); !added) {
    fmt::print(stderr, "probe_cost: {}\n", added.error().message());
    return kExitFailure;
  }
  return kExitOk;
}

Command program(const std::string& command) {
  return {
      .name = "probe_cost",
      .summary = "measure what the probe adds to the driver's calls.",
      .options = {number_option("rounds", "N",
                                "How often each call is measured, with the probe and without",
                                {1, 1'000'000, true}, "21"),
                  {"out", 0, "FILE", "Add this run to that file, as one line of JSON"},
                  {"commit", 0, "COMMIT", "What is measured, for that file", kCommit}},
      .examples = {"sudo probe_cost --rounds 101 --out probe_cost.json"},
      .run = [&command](const Invocation& in) { return run(in, command); },
  };
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) {
  std::string command = "probe_cost";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  return gpushare::run_program(gpushare::program(command), argc, argv);
}
