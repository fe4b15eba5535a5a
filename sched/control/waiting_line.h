// SPDX-License-Identifier: Apache-2.0
// WaitingLine: the runs that wait for a GPU on which their memory fits, in the order in which they
// asked first. gpushare run asks again each second; who does not is gone. The line outlives the
// agent in the region: the next one takes it over. One thread, the agent's.
//
// Memory that becomes free is kept for those who wait, so that a large run is not overtaken for
// ever by small ones: each keeps a part of one GPU (reserve(), in sched/orders/place.h). After
// kReserves it keeps nothing any more, because a program that never ends may hold what it needs,
// and everybody else would wait with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sched/orders/place.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/process_id.h"
#include "shmctl/plane/region.h"

namespace gpushare {

class WaitingLine {
 public:
  // More than twice as long as gpushare run waits for an answer (Client::kAnswerTimeout).
  static constexpr Nanos kSilent = std::chrono::seconds(15);
  static constexpr Nanos kReserves = std::chrono::minutes(10);
  // More of one user get no place: they wait all the same, and nothing is kept for them.
  static constexpr std::size_t kMostOfAUser = 16;

  struct Waiting {
    ProcessId process{};
    uint32_t uid = 0;
    uint64_t bytes = 0;
    std::optional<Nanos> length{};
    std::optional<uint32_t> gpu{};  // that it asked for; nullopt: any
    std::string command{};          // empty: nobody is to see it
    std::string why{};
    Time since{}, asked{};
  };

  // What the agent before has published, as if all asked now. Call it before the others.
  void take_over(const Region& region, Time now);
  // It asks, and must wait. One that has asked before keeps its place and its `since`. False: its
  // user has as many in the line as there may be, and it has no place.
  bool note(Waiting waiting, Time now);
  // It asks for the same as before, and must wait for another reason. False: it has no place.
  bool go_on(const ProcessId& process, const std::string& why, Time now);
  // It has a GPU.
  void forget(const ProcessId& process);
  // Those who asked before it and keep something. All of them, where it has no place.
  std::vector<PlaceWaiting> before(const ProcessId& process, Time now) const;
  const std::vector<Waiting>& all() const { return waiting_; }

  // Forgets who is gone, and writes what has changed since the last call; at the first one, all.
  void publish(Region& region, Time now);

 private:
  std::vector<Waiting> waiting_;
  std::size_t published_ = kMaxWaiting;  // entries that are in use, or may be
  bool has_changed_ = true;
};

}  // namespace gpushare
