// SPDX-License-Identifier: Apache-2.0
// Scripted programs on a Model: they do what the programs did with which driver-facts were
// measured.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "intercept/sim/model/model.h"

namespace gpushare::sim {

inline constexpr uint32_t kAllSms = 1'000'000;

// A machine in virtual time with its programs. Sequence numbers are unique in the machine.
class Machine {
 public:
  explicit Machine(uint32_t gpu_count = 1, const Parameters& parameters = {})
      : model(std::vector<GpuModel>(gpu_count), parameters, Time{}) {
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

  uint64_t submit(WorkKind kind, uint64_t amount, uint32_t queue = 0, uint32_t sm_ppm = kAllSms,
                  Direction direction = Direction::kNone) {
    const uint64_t sequence = machine.next_sequence++;
    machine.model.submit(client, {.sequence = sequence,
                                  .context = context.context,
                                  .queue = queue,
                                  .kind = kind,
                                  .direction = direction,
                                  .amount = amount,
                                  .sm_ppm = sm_ppm,
                                  .reserved = 0});
    return sequence;
  }
  uint64_t endless(uint32_t sm_ppm = kAllSms) { return submit(WorkKind::kEndless, 0, 0, sm_ppm); }
  uint64_t kernel(Nanos time, uint32_t queue = 0, uint32_t sm_ppm = kAllSms) {
    return submit(WorkKind::kKernel, static_cast<uint64_t>(time.count()), queue, sm_ppm);
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

}  // namespace gpushare::sim
