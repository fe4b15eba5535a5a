// SPDX-License-Identifier: Apache-2.0
// How much does the agent's loop bear: 8 GPUs with 64 programs each, and 1,000 tenants, on a driver
// that takes as long for each control as an H200's (slow_gpu.h)? The real Scheduler in real time,
// stepped as the agent's event loop does; /proc is faked. Prints a table, or adds a run to a file.
//
//   start    all programs come at once: until each has its slice
//   steady   nothing changes: how long a step takes
//   change   the lightest program of each GPU ends, so that the slices of all others change: until
//            the last of them is in force
//   freeze   a tenant's program is frozen on each GPU while such a change is under way
//   status   what `status` takes of the loop, and beside it
//   restart  the agent dies and another one starts: until it knows all programs, and until each
//            has its slice
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/run_file.h"
#include "bench/sched/slow_gpu.h"
#include "sched/control/handler.h"
#include "sched/step/scheduler.h"
#include "shmctl/base/version.h"
#include "shmctl/program/command_line.h"
#include "tests/sched/support/fake_proc_reader.h"
#include "tests/sched/support/policies.h"

namespace gpushare::bench {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::ordered_json;

constexpr Nanos kLeastGap = 1ms;  // of steps, as EventLoop's

double ms(Nanos time) { return std::chrono::duration<double, std::milli>(time).count(); }
// With two digits behind the point.
double rounded(double value) { return std::round(value * 100) / 100; }

Nanos cpu_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + Nanos(time.tv_nsec);
}

// How long steps took, and how long of that they computed: on a machine that others use as well the
// second tells more.
class Steps {
 public:
  void add(Nanos wall, Nanos cpu) {
    walls_.push_back(wall);
    cpus_.push_back(cpu);
  }
  Json as_json() {
    if (walls_.empty()) return nullptr;
    std::ranges::sort(walls_);
    std::ranges::sort(cpus_);
    const auto at = [](const std::vector<Nanos>& times, double part) {
      const auto place = static_cast<std::size_t>(static_cast<double>(times.size()) * part);
      return rounded(ms(times[std::min(times.size() - 1, place)]));
    };
    return {{"steps", walls_.size()},       {"p50_ms", at(walls_, 0.5)},
            {"p99_ms", at(walls_, 0.99)},   {"max_ms", at(walls_, 1)},
            {"cpu_p50_ms", at(cpus_, 0.5)}, {"cpu_p99_ms", at(cpus_, 0.99)},
            {"cpu_max_ms", at(cpus_, 1)}};
  }

 private:
  std::vector<Nanos> walls_, cpus_;
};

class Scale {
 public:
  Scale(const SlowGpu::Shape& shape, uint32_t tenants, DriverCalls calls, bool is_tree)
      : is_tree_(is_tree),
        gpu_(shape),
        shape_(shape),
        calls_(calls),
        plane_(ControlPlane::create("/gpushare-scale-" + std::to_string(::getpid())).value()) {
    for (uint32_t i = 0; i < tenants; ++i) {
      // Slices are in proportion to the lightest program's, which is the shortest one: without it
      // all of the others' change, and again without the next one.
      const uint32_t place = i % shape.programs;
      const uint32_t weight = place == 0 ? 100 : place == 1 ? 140 : 200 + place;
      const std::vector<Setting> settings{{"weight", std::to_string(weight)}};
      if (is_tree_) (void)tenants_.set(name_above(name_of(i)), {}, true).value();
      (void)tenants_.set(name_of(i), settings, true).value();
    }
    for (uint32_t i = 0; i < gpu_.count(); ++i) {
      processes_.add(gpu_.process(i), "program");
      (void)tenants_.attach(gpu_.process(i), name_of(i % tenants)).value();
    }
  }
  ~Scale() {
    scheduler_.reset();
    (void)ControlPlane::remove(plane_.name());
  }

  Json start() {
    begin();
    for (uint32_t i = 0; i < gpu_.count(); ++i) told_.tell(gpu_.start_of(i));
    return until_all_have_slices();
  }

  Json steady(Nanos time) {
    Steps steps;
    const uint64_t calls = gpu_.calls();
    run([] { return false; }, time, steps);
    Json json = steps.as_json();
    json["driver_calls"] = gpu_.calls() - calls;
    return json;
  }

  // Where `freezes`, a program of each GPU is frozen 2 ms later.
  Json change(uint32_t place, bool freezes) {
    std::vector<Micros> before;
    for (uint32_t i = 0; i < gpu_.count(); ++i) before.push_back(gpu_.slice_of(i));
    gpu_.mark();
    Steps steps;
    const Time began = clock_.now();
    for (uint32_t on = 0; on < shape_.gpus; ++on) {
      const uint32_t program = on * shape_.programs + place;
      gpu_.end(program);
      processes_.dead[gpu_.process(program).pid] = true;
      std::vector<DriverEvent> ended(1);
      ended.front().process = gpu_.process(program);
      ended.front().what = ProcessClosed{};
      told_.tell(std::move(ended));
    }
    Time froze{};
    if (freezes) {
      run([] { return false; }, 2ms, steps);
      froze = clock_.now();
      for (uint32_t on = 0; on < shape_.gpus; ++on)
        (void)tenants_.set_frozen(gpu_.process((on + 1) * shape_.programs - 1), true).value();
      wake_ = true;
    }
    run([] { return false; }, 400ms, steps);
    Nanos longest{}, frozen{};
    uint32_t changed = 0;
    for (uint32_t i = 0; i < gpu_.count(); ++i) {
      const double ratio =
          static_cast<double>(gpu_.slice_of(i).count()) / static_cast<double>(before[i].count());
      if (std::abs(ratio - 1) < 0.05 || gpu_.first_set(i) == Time{}) continue;
      ++changed;
      longest = std::max<Nanos>(longest, gpu_.first_set(i) - began);
    }
    Json json{{"slices_changed", changed}, {"in_force_ms", rounded(ms(longest))}};
    if (freezes) {
      for (uint32_t on = 0; on < shape_.gpus; ++on) {
        const Time at = gpu_.frozen_at((on + 1) * shape_.programs - 1);
        frozen = std::max<Nanos>(frozen, at == Time{} ? Nanos(10s) : at - froze);
      }
      json["frozen_on_all_ms"] = rounded(ms(frozen));
    }
    json["steps"] = steps.as_json();
    return json;
  }

  Json status() {
    Nanos loop{}, beside{};
    std::size_t bytes = 0;
    for (int i = 0; i < 20; ++i) {
      DirectControl control(tenants_);
      const ControlScope scope{.tenants = tenants_,
                               .control = control,
                               .scheduler = scheduler_.get(),
                               .plane = plane_,
                               .processes = processes_,
                               .clock = clock_,
                               .reload = {},
                               .forget = {},
                               .diagnose = {}};
      const Time begin = clock_.now();
      Answer answer =
          handle_request(R"({"op":"status"})", {.pid = 1, .uid = 0, .is_admin = true}, scope);
      const Time handled = clock_.now();
      if (answer.later) answer.line = answer.later();
      bytes = answer.line.size();
      loop = std::max<Nanos>(loop, handled - begin);
      beside = std::max<Nanos>(beside, clock_.now() - handled);
    }
    return {{"loop_ms", rounded(ms(loop))}, {"beside_ms", rounded(ms(beside))}, {"bytes", bytes}};
  }

  Json restart() {
    scheduler_.reset();  // as if it had died: nothing is undone
    const Time began = clock_.now();
    begin();
    const Nanos recovered = clock_.now() - began;
    Json json = until_all_have_slices(began);
    json["recovery_ms"] = rounded(ms(recovered));
    return json;
  }

 private:
  // In a tree ten tenants are below each of the others.
  std::string name_of(uint32_t tenant) const {
    const std::string own = "t" + std::to_string(tenant);
    return is_tree_ ? "g" + std::to_string(tenant / 10) + "/" + own : own;
  }
  void begin() {
    gpu_.mark();
    scheduler_ = std::make_unique<Scheduler>(Surroundings{.gpu = gpu_,
                                                          .observer = &told_,
                                                          .region = plane_.region(),
                                                          .processes = processes_,
                                                          .clock = clock_,
                                                          .tenants = tenants_,
                                                          .driver_calls = calls_},
                                             AgentIdentity{}, Config(test::every_policy()));
  }

  Json until_all_have_slices(Time began = Time{}) {
    if (began == Time{}) began = clock_.now();
    Steps steps;
    const auto is_living = [this](uint32_t i) {
      return !processes_.dead.contains(gpu_.process(i).pid);
    };
    uint32_t living = 0;
    for (uint32_t i = 0; i < gpu_.count(); ++i) living += is_living(i);
    run([&] { return scheduler_->state().members.size() >= living; }, 120s, steps);
    const Nanos known = clock_.now() - began;
    run([] { return false; }, 1s, steps);
    Nanos last{};
    uint32_t set = 0;
    for (uint32_t i = 0; i < gpu_.count(); ++i) {
      if (gpu_.first_set(i) == Time{}) continue;  // its own slice was right
      ++set;
      last = std::max<Nanos>(last, gpu_.first_set(i) - began);
    }
    return {{"programs", living},
            {"known_ms", rounded(ms(known))},
            {"slices_set", set},
            {"in_force_ms", rounded(ms(last))},
            {"steps", steps.as_json()}};
  }

  // Steps as the event loop does, until `is_done` or for so long.
  void run(const std::function<bool()>& is_done, Nanos longest, Steps& steps) {
    const Time end = clock_.now() + longest;
    while (clock_.now() < end && !is_done()) {
      const bool is_due = !told_.is_empty() || std::exchange(wake_, false) || clock_.now() >= next_;
      if (!is_due || clock_.now() < last_ + kLeastGap) {
        std::this_thread::sleep_for(50us);
        continue;
      }
      last_ = clock_.now();
      const Nanos cpu = cpu_time();
      next_ = scheduler_->step();
      steps.add(clock_.now() - last_, cpu_time() - cpu);
    }
  }

  const MonotonicClock clock_;
  const bool is_tree_;
  SlowGpu gpu_;
  const SlowGpu::Shape shape_;
  const DriverCalls calls_;
  Told told_;
  ControlPlane plane_;
  test::FakeProcReader processes_;
  Tenants tenants_;
  std::unique_ptr<Scheduler> scheduler_;
  Time last_{}, next_{};
  bool wake_ = false;
};

Json run_whole(const SlowGpu::Shape& shape, uint32_t tenants, DriverCalls calls, Nanos steady,
               bool is_tree) {
  Scale scale(shape, tenants, calls, is_tree);
  Json json;
  const auto add = [&](const char* name, Json part) {
    std::printf("%-8s %s\n", name, part.dump().c_str());
    json[name] = std::move(part);
  };
  add("start", scale.start());
  add("settle", scale.steady(2s));
  add("steady", scale.steady(steady));
  add("change", scale.change(0, false));
  add("freeze", scale.change(1, true));
  add("status", scale.status());
  add("restart", scale.restart());
  return json;
}

// A step, by how many programs there are on a GPU, and by how many tenants there are at all.
Json run_growth(SlowGpu::Shape shape, DriverCalls calls) {
  Json rows = Json::array();
  shape.gpus = 1;
  for (const auto& [programs, tenants] :
       {std::pair(8U, 64U), {16U, 64U}, {32U, 64U}, {64U, 64U}, {128U, 128U}, {64U, 1000U}}) {
    shape.programs = programs;
    Scale scale(shape, tenants, calls, /*is_tree=*/false);
    scale.start();
    scale.steady(1s);
    Json row{{"programs", programs}, {"tenants", tenants}};
    row.update(scale.steady(2s));
    std::printf("growth   %s\n", row.dump().c_str());
    rows.push_back(std::move(row));
  }
  return rows;
}

ExitCode run(const Invocation& in) {
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // sleeps of the driver are as long as they should be
  SlowGpu::Shape shape{.gpus = static_cast<uint32_t>(in.whole("gpus")),
                       .programs = static_cast<uint32_t>(in.whole("programs")),
                       .is_one_lock = in.has("one-lock")};
  shape.times.attach = Micros(in.whole("attach-us"));
  const auto tenants = static_cast<uint32_t>(in.whole("tenants"));
  if (in.has("tree") && tenants > 900) {
    std::fprintf(stderr, "scale: with --tree there is room for 900 tenants: --tenants 900\n");
    return kExitUsage;
  }
  const DriverCalls calls = in.has("in-step") ? DriverCalls::kInStep : DriverCalls::kOnThreads;
  Json result = run_without_gpu(kCommit, "");
  std::string command = "build/bin/bench/scale";
  for (const auto& [name, value] : in.options)
    command += " --" + name + (name == "out" ? " FILE" : value.empty() ? "" : " " + value);
  result["command"] = command;
  result["gpus"] = shape.gpus;
  result["programs_per_gpu"] = shape.programs;
  result["tenants"] = tenants;
  result["tree"] = in.has("tree");
  result["attach_us"] = shape.times.attach.count();
  result["one_lock"] = shape.is_one_lock;
  result["cores"] = std::thread::hardware_concurrency();
  if (in.has("note")) result["note"] = in.text("note");
  result.update(run_whole(shape, tenants, calls, in.seconds("seconds"), in.has("tree")));
  if (in.has("growth")) result["growth"] = run_growth(shape, calls);
  if (!in.has("out")) return kExitOk;
  if (const Result<> added = append_run(in.text("out"), result.dump()); !added) {
    std::fprintf(stderr, "scale: %s\n", added.error().message().c_str());
    return kExitFailure;
  }
  return kExitOk;
}

}  // namespace
}  // namespace gpushare::bench

int main(int argc, char** argv) {
  using gpushare::number_option;
  const gpushare::Command program{
      .name = "scale",
      .summary = "measure the agent's loop with many GPUs, programs and tenants on a slow driver.",
      .options = {number_option("gpus", "N", "How many GPUs", {1, 16, true}, "8"),
                  number_option("programs", "N", "How many programs on each", {2, 128, true}, "64"),
                  number_option("tenants", "N", "How many tenants in all", {1, 1000, true}, "1000"),
                  number_option("attach-us", "US",
                                "How long the driver takes to find one program's objects",
                                {0, 1'000'000, true}, "5000"),
                  number_option("seconds", "S", "How long to measure steps while nothing changes",
                                {0.1, 3600}, "3"),
                  {.name = "one-lock", .help = "The driver lets one caller in at a time, of all"},
                  {.name = "tree",
                   .help = "They are below others, of which there is one for ten, and which count "
                           "besides: 900 are the most"},
                  {.name = "in-step", .help = "A step makes its driver calls itself"},
                  {.name = "growth", .help = "Also measure a step by the number of programs"},
                  {"note", 0, "TEXT", "What is special about this run"},
                  {"out", 0, "FILE", "Add this run to that file, as one line of JSON"}},
      .examples = {"scale --out scale.jsonl", "scale --gpus 1 --attach-us 100000"},
      .run = gpushare::bench::run};
  return gpushare::run_program(program, argc, argv);
}
