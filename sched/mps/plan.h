// SPDX-License-Identifier: Apache-2.0
// MpsPlan: from what is wanted of NVIDIA's MPS control daemon and what is seen of it, the next
// thing to do. Pure: no I/O, no clock. sched/mps/link.h carries it out.
//
// A daemon outlives us and is taken up by the next agent. One that is there for other GPUs than
// those that are wanted now stays while it has clients: it ends when the last has gone, and the
// right one is started then.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "shmctl/base/clock.h"

namespace gpushare {

// Numbers are also those of AgentRecord::mps_state.
enum class MpsState : uint32_t {
  kOff = 0,       // none is wanted, and none is there
  kMissing = 1,   // wanted; its program is not installed
  kStarting = 2,  // also: waits before it is started again
  kRunning = 3,   // for the GPUs that are wanted
  kOther = 4,     // for other GPUs: waits until its clients have ended
};

class MpsPlan {
 public:
  // kQuit: it takes no more clients and ends with the last.
  enum class Action { kNone, kStart, kAsk, kQuit };

  static constexpr Nanos kStartLook{20'000'000};  // while it starts
  static constexpr Nanos kLook{100'000'000};      // while it runs: is it alive?
  static constexpr Nanos kProgramLook{10'000'000'000};
  static constexpr Nanos kAskBusy{5'000'000'000};  // with clients, or to be replaced
  static constexpr Nanos kAskFaulty{500'000'000};  // while a server turns new clients away
  static constexpr Nanos kAskIdle{30'000'000'000};
  static constexpr Nanos kToStart{5'000'000'000};
  static constexpr Nanos kToQuit{5'000'000'000};
  static constexpr Nanos kYoung{10'000'000'000};  // dying earlier than this is dying young
  static constexpr Nanos kFirstPause{1'000'000'000}, kLongestPause{60'000'000'000};

  struct Seen {
    bool has_program = false;
    std::optional<std::string> gpus{};     // of the daemon that is there; nullopt: none is
    std::optional<std::size_t> clients{};  // as far as is known
    bool has_fault = false;                // of a server
    bool is_asking = false;                // an answer is due: nothing else is to be done
  };

  // The GPUs that it is to serve, in the form of CUDA_VISIBLE_DEVICES; empty: all of the machine's;
  // nullopt: none is wanted.
  void want(std::optional<std::string> gpus) { wanted_ = std::move(gpus); }
  // What kStart asked for was refused: it is tried again after a pause.
  void start_failed(Time now);
  // Whatever the last answer said, it may be different now.
  void ask_soon() { next_ask_ = Time{}; }

  Action decide(Time now, const Seen& seen);

  MpsState state() const { return state_; }
  // When decide() is due again at the latest.
  Time next() const { return next_; }
  // How often one that was there has ended without our doing.
  uint32_t deaths() const { return deaths_; }

 private:
  Action without_daemon(Time now, const Seen& seen);
  Action with_daemon(Time now, const Seen& seen);
  void pause(Time now);

  std::optional<std::string> wanted_;
  MpsState state_ = MpsState::kOff;
  Time next_{Time::max()};
  bool is_there_ = false, is_quitting_ = false;
  Time there_since_{}, next_ask_{}, quit_again_at_{};
  std::optional<Time> started_at_;  // while it starts
  Time start_at_{};
  Nanos pause_{};
  uint32_t deaths_ = 0;
};

// In that form, the most common order of CUDA's numbers; empty when they are `all` of the
// machine's.
std::string mps_gpus(std::vector<GpuInfo> gpus, std::size_t all);

// May a program that sees `visible` (its CUDA_VISIBLE_DEVICES; nullopt: it has none) become a
// client of a daemon for `gpus`, without seeing fewer GPUs than it would, or others? A daemon for
// some of the machine's GPUs shows only those to its clients, and numbers them anew: then only a
// program that names its GPUs by their UUIDs, and none but those.
bool may_be_client(const std::string& gpus, const std::optional<std::string>& visible);

}  // namespace gpushare
