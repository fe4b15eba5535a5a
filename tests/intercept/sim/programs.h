// SPDX-License-Identifier: Apache-2.0
// Scripted programs on a Model: they do what the programs did with which driver-facts were
// measured.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "intercept/sim/model/model.h"

namespace gpushare::sim {

inline constexpr uint32_t kAllSms = 1'000'000;

// A machine in virtual time with its programs. Sequence numbers are unique in the machine.
class Machine {
 public:
  explicit Machine(uint32_t gpu_count = 1, const Parameters& parameters = {})
      : Machine(std::vector<GpuModel>(gpu_count), parameters) {}
  explicit Machine(std::vector<GpuModel> gpus, const Parameters& parameters = {})
      : model(std::move(gpus), parameters, Time{}) {
    model.on_completion([this](uint32_t, const Completion& completion) {
      finished.push_back(completion);
      const auto found = then.find(completion.sequence);
      if (found == then.end()) return;
      const auto next = std::move(found->second);
      then.erase(found);
      next(completion);
    });
    model.on_event([this](const DriverEvent& event) { events.push_back(event); });
  }

  void run_for(Nanos time) { model.advance_to(model.now() + time); }

  Model model;
  std::vector<Completion> finished;
  std::vector<DriverEvent> events;
  std::map<uint64_t, std::function<void(const Completion&)>> then;  // by sequence
  uint64_t next_sequence = 1;
};

// A process with one context.
class Program {
 public:
  Program(Machine& on, pid_t pid, uint32_t gpu = 0, uint32_t mps_server = 0) : machine(on) {
    process = {pid, static_cast<uint64_t>(1000 + pid)};
    client = machine.model.open_client(process, {.ns_pid = pid, .command = "program"});
    context = machine.model.create_context(client, gpu, mps_server).value();
  }

  // Returns the sequence that the work is given; what it says of that and of its context is
  // ignored.
  uint64_t submit(Work work) {
    work.sequence = machine.next_sequence++;
    work.context = context.context;
    machine.model.submit(client, work);
    return work.sequence;
  }
  uint64_t submit(WorkKind kind, uint64_t amount, uint32_t queue = 0, uint32_t sm_ppm = kAllSms,
                  Direction direction = Direction::kNone) {
    return submit({0, 0, queue, kind, direction, amount, sm_ppm, 0, 0});
  }
  uint64_t endless(uint32_t sm_ppm = kAllSms) { return submit(WorkKind::kEndless, 0, 0, sm_ppm); }
  uint64_t kernel(Nanos time, uint32_t queue = 0, uint32_t sm_ppm = kAllSms) {
    return submit(WorkKind::kKernel, static_cast<uint64_t>(time.count()), queue, sm_ppm);
  }
  uint64_t collective(Nanos time, uint64_t communicator, uint32_t ranks = 2, uint32_t queue = 0) {
    return submit({0, 0, queue, WorkKind::kCollective, Direction::kNone,
                   static_cast<uint64_t>(time.count()), kAllSms, ranks, communicator});
  }
  Nanos executed(uint64_t sequence) const {
    return Nanos(machine.model.progress(client, sequence).executed_ns);
  }

  GroupRef group() const { return {process, 10, client, context.group}; }
  std::vector<ChannelRef> channels() const {
    std::vector<ChannelRef> refs;
    for (const uint32_t channel : context.channels) refs.push_back({client, channel});
    return refs;
  }
  void set_slice(Micros slice) { machine.model.set_slice(group(), slice).value(); }

  Machine& machine;
  ProcessId process;
  uint32_t client = 0;
  ContextReply context{};
};

// A machine with two programs: auto&& [machine, one, two] = TwoPrograms();
struct TwoPrograms {
  Machine machine{};
  Program one{machine, 100}, two{machine, 200};
};

// The same, both clients of one MPS server.
struct TwoMpsClients {
  Machine machine{};
  Program one{machine, 100, 0, 7}, two{machine, 200, 0, 7};
};

// A program that launches a kernel and waits for it, again and again. Of the 14 us that this takes
// alone, the host's part is split evenly before and after the kernel.
class PeriodicKernel {
 public:
  PeriodicKernel(Program& program, Nanos kernel, Nanos pause, uint32_t sm_ppm = kAllSms)
      : program_(program), kernel_(kernel), pause_(pause), sm_ppm_(sm_ppm) {
    launch();
  }

  // A percentile of the latencies so far, in microseconds; `part` is 0 to 1.
  double percentile(double part) const {
    std::vector<double> sorted = latencies_;
    std::ranges::sort(sorted);
    return sorted.at(static_cast<size_t>(part * static_cast<double>(sorted.size() - 1)));
  }
  size_t samples() const { return latencies_.size(); }

 private:
  static constexpr Nanos kHostBefore = 5us, kHostBehind = 5us;

  void launch() {
    Model& model = program_.machine.model;
    const Time begun = model.now();
    model.call_at(begun + kHostBefore, [this, begun] {
      const uint64_t sequence = program_.kernel(kernel_, 0, sm_ppm_);
      program_.machine.then[sequence] = [this, begun](const Completion&) {
        Model& on = program_.machine.model;
        const Time seen = on.now() + kHostBehind;
        latencies_.push_back(static_cast<double>((seen - begun).count()) / 1000);
        on.call_at(seen + pause_, [this] { launch(); });
      };
    });
  }

  Program& program_;
  const Nanos kernel_, pause_;
  const uint32_t sm_ppm_;
  std::vector<double> latencies_;
};

// A data-parallel job: on each GPU a rank, whose step is a kernel of its own and then a collective
// with the others, which the host waits for before it begins the next step. A rank may take longer
// for its own part than the others.
class DataParallel {
 public:
  struct Step {
    Nanos own = 22ms, together = 12ms;  // a step of 34 ms, as that of the job measured on two H200
    Nanos host = 50us;                  // between two steps, in which the GPU has no work
  };

  DataParallel(std::vector<Program*> ranks, uint64_t communicator, Step step)
      : ranks_(std::move(ranks)), communicator_(communicator), step_(step), done_(ranks_.size()) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) begin(rank);
  }
  DataParallel(std::vector<Program*> ranks, uint64_t communicator)
      : DataParallel(std::move(ranks), communicator, Step{}) {}

  Nanos alone() const { return step_.own + step_.together + step_.host; }
  // That all ranks have done.
  uint64_t steps() const { return *std::ranges::min_element(done_); }
  // How long the steps of the first rank took, in ms.
  const std::vector<double>& times_ms() const { return times_ms_; }
  // From now on no rank begins a step.
  void stop() { is_stopped_ = true; }
  // From now on this rank does its own part no more, and only meets the others.
  void pause(std::size_t rank) { paused_.push_back(rank); }
  // This rank begins no step until go_on(), as if its process had been stopped: the others wait in
  // their collective. One at a time.
  void hold(std::size_t rank) { held_ = rank; }
  void go_on() {
    held_.reset();
    if (const auto waits = std::exchange(waits_, std::nullopt)) begin(*waits);
  }

 private:
  void begin(std::size_t rank) {
    if (is_stopped_) return;
    if (held_ == rank) {
      waits_ = rank;
      return;
    }
    Program& program = *ranks_[rank];
    if (std::ranges::find(paused_, rank) == paused_.end()) program.kernel(step_.own);
    const Time begun = program.machine.model.now();
    const uint64_t last =
        program.collective(step_.together, communicator_, static_cast<uint32_t>(ranks_.size()));
    program.machine.then[last] = [this, rank, begun](const Completion&) {
      ++done_[rank];
      Model& model = ranks_[rank]->machine.model;
      if (rank == 0)
        times_ms_.push_back(std::chrono::duration<double, std::milli>(model.now() - begun).count());
      model.call_at(model.now() + step_.host, [this, rank] { begin(rank); });
    };
  }

  const std::vector<Program*> ranks_;
  const uint64_t communicator_;
  const Step step_;
  std::vector<uint64_t> done_;
  std::vector<double> times_ms_;
  std::vector<std::size_t> paused_;
  std::optional<std::size_t> held_, waits_;
  bool is_stopped_ = false;
};

}  // namespace gpushare::sim
