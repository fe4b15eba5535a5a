// SPDX-License-Identifier: Apache-2.0
// A language model that is served by two programs on the SMs of one simulated GPU, one that reads
// prompts and one that writes tokens, under a policy and the machinery that carries its plans out
// (sched/spatial/spatial.h). Every prompt and every step for itself, in virtual time;
// deterministic. Times are like those of a model of 8 G parameters on an H200, not measured ones.
#pragma once

#include <bit>
#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/sched/support/slo_world.h"
#include "tests/sched/support/spatial_rig.h"

namespace gpushare {

// The generator of the published replays, so that other programs can make the same requests.
class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  double uniform() {  // above 0, at most 1
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return static_cast<double>(((z ^ (z >> 31)) >> 11) + 1) * 0x1p-53;
  }
  double exponential(double mean) { return -std::log(uniform()) * mean; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * 3.14159265358979323846 * uniform());
  }
  // Of this mean; `sigma` is that of the logarithm.
  double log_normal(double mean, double sigma) {
    return mean * std::exp(sigma * normal() - sigma * sigma / 2);
  }

 private:
  uint64_t state_;
};

struct TokenRequest {
  double at = 0;  // seconds
  double prompt = 0;
  int answer = 0;  // tokens
};

// Lengths are log-normal, arrivals Poisson; in bursts 10 s at half of the rate are followed by 2 s
// at four times of it.
inline std::vector<TokenRequest> token_requests(uint64_t seed, double rate, double seconds,
                                                bool in_bursts, double mean_answer) {
  SplitMix random(seed);
  std::vector<TokenRequest> requests;
  for (double at = 0; at < seconds;) {
    const double level = !in_bursts ? 1 : std::fmod(at, 12) < 10 ? 0.5 : 4;
    at += random.exponential(1 / (rate * level));
    requests.push_back({.at = at,
                        .prompt = std::max(random.log_normal(1631, 1), 16.0),
                        .answer = static_cast<int>(random.log_normal(mean_answer, 0.8)) + 1});
  }
  return requests;
}

struct TokenScore {
  uint64_t tokens = 0, late_tokens = 0, prompts = 0, late_prompts = 0;
  double prompt_seconds = 0;   // sum over the prompts, from arrival to their end
  double token_p99 = 0;        // seconds
  uint64_t other_work = 0;     // milliseconds of groups that a third program had
  uint64_t returns = 0;        // of groups that were lent, to who launches again
  uint64_t short_returns = 0;  // after which it went on with less than it is entitled to
};

class TokenWorld {
 public:
  static constexpr double kTokenTarget = 0.008, kPromptTarget = 1;

  // `settings`: of the tenants beside their targets. `has_other`: a third program works without
  // end.
  TokenWorld(const std::string& policy, bool is_shared_half, bool has_other = false)
      : rig_({kGpu}, [&](const GpuView& gpu) {
          return PolicyChoice(*find_policy(test::every_policy(), policy)).make(gpu);
        }) {
    rig_.give_contexts();
    const auto make = [&](const char* name, pid_t pid, double target, const char* phase) {
      std::vector<Setting> settings{{"phase", phase}};
      if (target > 0)
        settings.push_back({"slo_us", std::to_string(static_cast<int64_t>(target * 1e6))});
      if (is_shared_half) settings.push_back({"sm_percent", "50"});
      Program program{.tenant = rig_.tenants.set(name, settings, true).value(), .id = {pid, 1}};
      program.slot->iterations.source = ShimSource::kAnnounced;
      program.slot->iterations.confidence = 1000;
      program.slot->iterations.period_ns = static_cast<uint64_t>(target * 1e9);
      return program;
    };
    prefill_ = make("prefill", 100, kPromptTarget, "prefill");
    decode_ = make("decode", 101, kTokenTarget, "decode");
    if (has_other) other_ = std::make_unique<Program>(make("other", 102, 0, "none"));
    decode_.slot->iterations.period_ns = 8'000'000;
  }

  TokenScore run(const std::vector<TokenRequest>& requests, double seconds) {
    for (; now_ < seconds; now_ += kTick) {
      for (; next_ < requests.size() && requests[next_].at <= now_; ++next_) {
        queue_.push_back(requests[next_]);
        ++prefill_.slot->iterations.arrivals;
      }
      read_prompts();
      write_tokens();
      if (other_) {
        launch(*other_);
        score_.other_work += groups(*other_) / 10;
      }
      if (now_ >= next_step_ || is_woken_) step();
    }
    std::ranges::sort(gaps_);
    if (!gaps_.empty()) score_.token_p99 = gaps_[gaps_.size() * 99 / 100];
    return score_;
  }
  TenantPartition partition(bool of_decode) const {
    return rig_.partition(of_decode ? decode_.tenant : prefill_.tenant);
  }
  SloStatus status(bool of_decode) const {
    return rig_.status(of_decode ? decode_.tenant : prefill_.tenant);
  }

 private:
  static constexpr double kTick = 0.0001, kLeastGap = 0.001;
  inline static const GpuInfo kGpu = gpu_of(132);

  struct Program {
    uint32_t tenant = 0;
    ProcessId id{};
    std::unique_ptr<ShimSlot> slot = std::make_unique<ShimSlot>();
  };
  struct Sequence {
    int left = 0;  // tokens
  };

  static Time time_of(double seconds) {
    return Time{} + Nanos(static_cast<int64_t>((seconds + 1) * 1e9));
  }
  static double groups(const Program& program) {
    const uint64_t applied = program.slot->gpus[0].applied;
    return applied == 0 ? 16 : std::popcount(applied);
  }
  // Seconds that a step of so many sequences takes: part of it does not care for SMs.
  static double step_time(size_t batch, double groups) {
    const auto b = static_cast<double>(batch);
    return 0.002 + b * 0.00002 + (0.002 + b * 0.00006) * 16 / groups;
  }

  // Returns true if the launch goes on; whoever stands at the gate wakes the agent once.
  bool launch(Program& program) {
    ShimSlot& slot = *program.slot;
    if (slot.waiting == 0) ++slot.stripes[0].launches;
    if (rig_.is_held(program.id)) {
      is_woken_ |= slot.waiting == 0;
      slot.waiting = 1;
      return false;
    }
    slot.gpus[0].applied = slot.gpus[0].wanted.load();
    if (slot.waiting.exchange(0) != 0) {
      ++score_.returns;
      score_.short_returns += groups(program) * 8 < rig_.partition(program.tenant).entitled;
    }
    return true;
  }
  bool begin(Program& program) {
    ShimIterations& words = program.slot->iterations;
    const uint64_t until = words.run_until;
    if (until != 0 && words.begun >= until) {
      if (words.waiting_since_ns == 0) {
        words.waiting_since_ns = static_cast<uint64_t>(time_of(now_).time_since_epoch().count());
        is_woken_ = true;
      }
      return false;
    }
    words.waiting_since_ns = 0;
    if (!launch(program)) return false;
    ++words.begun;
    return true;
  }
  static void end(Program& program, double busy, double latency) {
    ShimIterations& words = program.slot->iterations;
    ++words.ended;
    words.busy_ns += static_cast<uint64_t>(busy * 1e9);
    words.latency_ns += static_cast<uint64_t>(latency * 1e9);
  }

  // Its kernels are short: it is in a new partition with the next tick.
  void read_prompts() {
    if (queue_.empty()) return;
    if (!is_reading_) {
      if (!begin(prefill_)) return;
      is_reading_ = true;
      left_ = queue_.front().prompt;
      began_ = now_;
    }
    if (!launch(prefill_)) return;
    left_ -= kTick / 0.000027 * groups(prefill_) / 16;
    if (left_ > 0) return;
    const TokenRequest& done = queue_.front();
    const double latency = now_ - done.at;
    ++score_.prompts;
    score_.late_prompts += latency > kPromptTarget;
    score_.prompt_seconds += latency;
    end(prefill_, now_ - began_, latency);
    waiting_.push_back({done.answer});
    queue_.pop_front();
    is_reading_ = false;
  }

  // A step is one graph: it stays where it began.
  void write_tokens() {
    if (step_end_ > now_) {
      decode_.slot->waits = 1;
      return;
    }
    decode_.slot->waits = 0;
    if (step_end_ > 0) finish_step();
    while (!waiting_.empty()) {
      running_.push_back(waiting_.front());
      waiting_.pop_front();
    }
    if (running_.empty() || !begin(decode_)) return;
    // A token waits from the end of the step before.
    step_began_ = now_;
    step_end_ = now_ + step_time(running_.size(), groups(decode_));
  }
  void finish_step() {
    const double since = last_end_ > 0 ? last_end_ : step_began_;
    const double gap = step_end_ - since;
    end(decode_, step_end_ - step_began_, gap);
    score_.tokens += running_.size();
    if (gap > kTokenTarget) score_.late_tokens += running_.size();
    gaps_.insert(gaps_.end(), running_.size(), gap);
    for (Sequence& sequence : running_) --sequence.left;
    std::erase_if(running_, [](const Sequence& sequence) { return sequence.left <= 0; });
    last_end_ = running_.empty() ? 0 : step_end_;
    step_end_ = 0;
  }

  void step() {
    std::vector<ShimClient> clients;
    for (Program* const program : {&prefill_, &decode_, other_.get()}) {
      if (program == nullptr) continue;
      clients.push_back({.process = program->id,
                         .tenant = program->tenant,
                         .gpus = {0},
                         .slot = program->slot.get()});
    }
    is_woken_ = false;
    const Time next = rig_.step(time_of(now_), std::move(clients));
    const double in = static_cast<double>((next - time_of(now_)).count()) * 1e-9;
    next_step_ = now_ + std::max(in, kLeastGap);
  }

  test::SpatialRig rig_;
  Program prefill_, decode_;
  std::unique_ptr<Program> other_;
  double now_ = 0, next_step_ = 0;
  bool is_woken_ = false;
  size_t next_ = 0;                 // request
  std::deque<TokenRequest> queue_;  // prompts that are not read to their end
  bool is_reading_ = false;
  double left_ = 0, began_ = 0;
  std::deque<Sequence> waiting_;   // for the next step
  std::vector<Sequence> running_;  // in the present one
  double step_began_ = 0, step_end_ = 0, last_end_ = 0;
  std::vector<double> gaps_;
  TokenScore score_;
};

}  // namespace gpushare
