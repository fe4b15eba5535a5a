// SPDX-License-Identifier: Apache-2.0
// GangTurns: which jobs that work on several GPUs at once have their time on all of them in the
// same instants, and when. Where each GPU slices for itself, a rank of such a job (a gang) spins in
// a collective while its peer waits for a slice elsewhere, so that half of two GPUs is much less
// than half of the steps. Called by the scheduler once a step, for all GPUs that are shared by
// slices, before their policies plan. Pure: time is given, and nothing is asked of anybody. One
// thread.
//
// A gang is what one `gpushare run` started, or one process, or all processes of a tenant that says
// so (`gang = true`), while it has work on two GPUs or more.
// While others of its class have work on any of them it takes turns with these: in its turn they
// are held there, and otherwise it is held everywhere. Its share is the least of what the plans
// give it on its GPUs. It is owed that part of what all
// have used, by the switch log; a turn begins when enough is owed, and ends when it has had as much
// more than was due (kPeriod).
//   share 0.4 of both GPUs -> 40 ms for the gang, 60 ms for the others, on both GPUs
// Nobody of a higher class is ever held. Who makes little use of its share is left alone: it is not
// held, and has no turns. Gangs that share no GPU have their turns at the same time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sched/policy/policy.h"

namespace gpushare {

class GangTurns {
 public:
  // A turn of the gang and one of the others together, where one gang competes with programs on one
  // GPU each. A freeze and a thaw cost the GPU about 0.8 ms, so that two of them are 2 % of it.
  static constexpr Nanos kPeriod = std::chrono::milliseconds(100);
  // Who uses less than this part of its share makes little use of it, until it uses more than the
  // second part. In turns of its own the switch log cannot tell: there the driver's samples do,
  // which come once a second.
  static constexpr double kLight = 0.4, kNotLight = 0.6;

  // A job that may be a gang: a tenant by its slot and 1, a run by its number, any other process by
  // itself.
  struct Key {
    uint32_t tenant = 0;
    uint32_t run = 0;
    ProcessId process{};
    auto operator<=>(const Key&) const = default;
  };
  // A process on one GPU.
  struct Seen {
    ProcessId process{};
    uint32_t gpu = 0;
    Key job{};
    Priority priority = Priority::kNormal;
    bool wants_gpu = false;
    bool may_be_gang = true;    // false: nobody wants it to have its time on all GPUs at once
    std::string_view tenant{};  // its name, of a job that is a tenant; valid during the call
    bool can_hold =
        true;            // false: an MPS client, one that the user froze, or that is only observed
    double cap = 1;      // of its tenant, a part of all time; 1: it has none
    Nanos used{};        // GPU time since the last look
    double share = -1;   // measured over the last second; < 0: unknown
    double rate = 1;     // of the time in which it may run, the part that it uses
    double target = -1;  // by the last plan; < 0: unknown
    bool is_capped = false;  // by the last plan: it is frozen for its cap
  };

  // Each process once for each GPU.
  void look(Time now, std::span<const Seen> all);

  // Why the process is held on this GPU, for people; nullptr: it is not.
  const std::string* held(const ProcessId& process, uint32_t gpu) const;
  bool holds_anybody() const { return !held_.empty(); }
  // Whether gangs and others take turns on this GPU.
  bool has_turns_on(uint32_t gpu) const;
  // When the next look is due.
  Time next() const { return next_; }

 private:
  using Place = std::pair<ProcessId, uint32_t>;
  struct Gang {
    std::string name;
    Priority priority = Priority::kNormal;
    uint64_t gpus = 0;       // bit n: it works on GPU n
    uint64_t contested = 0;  // those of them that others of its class want, too
    double share = 0;        // that is due to it, on all of them
    double owed_ns = 0;      // less than 0: it has had more than was due
    bool is_at_cap = false, is_capped = false, has_rivals = false, runs = true;
    bool is_seen = false;
    Time since{};
  };
  struct Rest {  // those on one GPU that are in no gang
    bool wants = false;
    double owed_ns = 0;
    Priority highest = Priority::kIdle;
  };

  void find_gangs(std::span<const Seen> all);
  void find_rest(std::span<const Seen> all);
  void settle(Nanos passed, std::span<const Seen> all);
  void choose(Time now);
  void hold(std::span<const Seen> all);
  bool is_light(const Seen& seen);
  bool is_of_gang(const Seen& seen) const;
  bool meets_running(const Gang& gang) const;
  bool may_begin(const Gang& gang) const;
  double swing_ns(const Gang& gang) const;

  std::map<Key, Gang> gangs_;
  std::map<uint32_t, Rest> rest_;  // by GPU
  std::set<Place> light_;
  std::map<Place, std::string> held_;
  std::optional<Time> last_look_;
  Time next_{Time::max()};
};

}  // namespace gpushare
