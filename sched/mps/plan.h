// SPDX-License-Identifier: Apache-2.0
// MpsPlan: decides what to do next about NVIDIA's MPS control daemon, from what is wanted of it and
// what is seen of it. Pure: no I/O, no clock. sched/mps/link.h carries it out on the agent's
// thread.
//
// A daemon outlives the agent, and the next agent takes it up. A daemon that serves other GPUs than
// those that are wanted now stays while it has clients; when the last has ended, the daemon is
// ended and the right one is started.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "shmctl/base/clock.h"

namespace gpushare {

using namespace std::chrono_literals;

// The numbers are also those of AgentRecord::mps_state.
enum class MpsState : uint32_t {
  kOff = 0,       // no daemon is wanted, and none is there
  kMissing = 1,   // a daemon is wanted, but its program is not installed
  kStarting = 2,  // the daemon is being started, or is started again after a pause
  kRunning = 3,   // the daemon serves the GPUs that are wanted
  kOther = 4,     // the daemon serves other GPUs, until its clients have ended
};

class MpsPlan {
 public:
  // kStart: start a daemon. kAsk: ask it for its servers and their clients. kQuit: tell it to take
  // no more clients, and to end with the last.
  enum class Action { kNone, kStart, kAsk, kQuit };

  // How often to look whether the daemon is there: while it starts, and while it runs.
  static constexpr Nanos kStartLook = 20ms, kLook = 100ms;
  static constexpr Nanos kProgramLook = 10s;  // how often to look for its program
  // How often to ask it: with clients or to be replaced, while a server turns new clients away, and
  // without clients.
  static constexpr Nanos kAskBusy = 5s, kAskFaulty = 500ms, kAskIdle = 30s;
  // How long it may take to start, and to quit, before that is tried again.
  static constexpr Nanos kToStart = 5s, kToQuit = 5s;
  static constexpr Nanos kYoung = 10s;  // a daemon that ends earlier than this has died young
  static constexpr Nanos kFirstPause = 1s, kLongestPause = 60s;  // before a start is tried again

  struct Seen {
    bool has_program = false;
    std::optional<std::string> gpus{};     // of the daemon that is there; nullopt: there is none
    std::optional<std::size_t> clients{};  // nullopt: not known yet
    bool has_fault = false;                // a server turns new clients away
    bool is_asking = false;                // an answer is awaited: nothing else can be done
  };

  // Sets the GPUs that a daemon must serve, in the form of CUDA_VISIBLE_DEVICES; empty: all of the
  // machine's; nullopt: no daemon is wanted.
  void want(std::optional<std::string> gpus) { wanted_ = std::move(gpus); }
  // Call it when a start failed: it is tried again after a pause.
  void start_failed(Time now);
  // Call it when the last answer may not hold any more: the next decide() asks again.
  void ask_soon() { asked_.reset(); }

  Action decide(Time now, const Seen& seen);

  MpsState state() const { return state_; }
  // When decide() is due again at the latest.
  Time next() const { return next_; }
  // How often a daemon has ended that was not told to quit.
  uint32_t deaths() const { return deaths_; }

 private:
  Action without_daemon(Time now, const Seen& seen);
  Action with_daemon(Time now, const Seen& seen);
  void pause(Time now);

  std::optional<std::string> wanted_;
  MpsState state_ = MpsState::kOff;
  Time next_{Time::max()};
  bool is_there_ = false, is_quitting_ = false;
  Time there_since_{}, quit_again_at_{};
  std::optional<Time> asked_;       // last; none: it is to be asked now
  Nanos pause_asked_{};             // to the next time, as it seemed then
  std::optional<Time> started_at_;  // while it starts
  Time start_at_{};
  Nanos pause_{};
  uint32_t deaths_ = 0;
};

// The GPUs in the form of CUDA_VISIBLE_DEVICES, ordered by PCI address; empty when they are all of
// the machine's GPUs, of which there are `all`. Otherwise those without a UUID are left out.
std::string mps_gpus(std::vector<GpuInfo> gpus, std::size_t all);

// Returns true if a process with the CUDA_VISIBLE_DEVICES `visible` (nullopt: it has none) sees the
// same GPUs as a client of a daemon for `gpus`. A daemon for some of the machine's GPUs shows only
// those to its clients, and numbers them anew. So a process may then become a client only if it
// names its GPUs by their UUIDs, and none but those of the daemon.
bool may_be_client(const std::string& gpus, const std::optional<std::string>& visible);

}  // namespace gpushare
