// SPDX-License-Identifier: Apache-2.0
// GangTurns: which jobs that work on several GPUs at once have their time on all of them in the
// same instants, and when. Where each GPU slices for itself, a rank of such a job (a gang) spins in
// a collective while its peer waits for a slice elsewhere, so that half of two GPUs is much less
// than half of the steps. Called by the scheduler once a step, for all GPUs that are shared by
// slices, before their policies plan. Pure: time is given, and nothing is asked of anybody. One
// thread.
//
// A gang is what one `gpushare run` started, or one process, or all processes of a tenant that says
// so (`gang = true`), while it has work on two GPUs or more, and makes use of its share there.
// While others of its class have work on any of them it takes turns with these: in its turn they
// are held there, and otherwise it is held everywhere. Its share is the least of what the plans
// give it on its GPUs, with its part of what those leave there that make little use of theirs. It
// is owed that part of what all have used, but for those of a higher class, by the switch log; a
// turn begins when enough is owed, and ends when it has had as much more than was due (period_of).
// What the log does not tell yet is taken to go on as it was.
//   share 0.4 of both GPUs -> 60 ms for the gang, 90 ms for the others, on both GPUs
// Nobody of a higher class is ever held. Who makes little use of its share is left alone: it is not
// held, and has no turns. Who is out of tokens leaves its GPU to the gang until it has some again.
// Gangs that share no GPU have their turns at the same time. One of a lower class gives way.
#pragma once

#include <cstdint>
#include <map>
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
  // GPU each, is this for each GPU and once more. The driver makes its calls one after the other,
  // whichever GPU they concern: a period of 100 ms lost 2.0 ms on two H100 and 3.3 on four
  // (2026-11-28, bench/results/gangs.jsonl). Where somebody is capped it is the shorter one: a
  // bucket holds what comes back in 100 ms, and who waits longer loses tokens.
  static constexpr Nanos kPeriodPerGpu = std::chrono::milliseconds(50);
  static constexpr Nanos kPeriodOfCapped = std::chrono::milliseconds(100);
  // Who uses less than this part of its share makes little use of it, until it uses more than the
  // second part. In turns of its own the switch log cannot tell: there the driver's samples do,
  // which come once a second.
  static constexpr double kLight = 0.4, kNotLight = 0.6;
  // Samples tell of those that have their turns together when these have been the same, and have
  // had turns, for so long: before, the samples are of another time (lone_context.h).
  static constexpr Nanos kSettled = std::chrono::seconds(3);
  // What is owed is remembered for so long while nobody else wants the GPU: others may be about to
  // begin where some have ended. What is owed to the gang is paid meanwhile.
  static constexpr Nanos kOwed = std::chrono::milliseconds(200);
  // Programs that end before their share is known are judged by what those of their tenant have
  // used together, averaged over this time.
  static constexpr Nanos kBriefSpan = std::chrono::milliseconds(500);
  // The switch log tells of one that has no turns any more when all of its last second is without.
  static constexpr Nanos kShareSettled = std::chrono::milliseconds(1200);

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
    uint32_t slot = 0;  // of its tenant
    Key job{};
    Priority priority = Priority::kNormal;
    bool wants_gpu = false;
    bool may_be_gang = true;    // false: nobody wants it to have its time on all GPUs at once
    bool is_told = false;       // somebody has said that it is a gang
    bool is_sampled = true;     // the driver samples this GPU; otherwise only who is told is a gang
    std::string_view tenant{};  // its name, of a job that is a tenant; valid during the call
    bool can_hold =
        true;        // false: an MPS client, one that the user froze, or that is only observed
    double cap = 1;  // of its tenant, a part of all time; 1: it has none
    Nanos used{};    // GPU time since the last look, as far as the log is known
    Time known_until = Time::max();  // until when the log of this GPU is
    double share = -1;               // measured over the last second; < 0: unknown
    double rate = 1;                 // of the time in which it may run, the part that it uses
    double target = -1;              // by the last plan; < 0: unknown
    bool is_capped = false;  // its cap is used up: the plan of this step freezes it for that
  };

  // GPU time of a tenant's processes, by its slot and GPU.
  using Uses = std::map<std::pair<uint32_t, uint32_t>, Nanos>;

  // Each process once for each GPU. `gone`: what those that are gone have used, as Seen::used.
  void look(Time now, std::span<const Seen> all, const Uses& gone = {});

  // Why the process is held on this GPU, for people; nullptr: it is not.
  const std::string* held(const ProcessId& process, uint32_t gpu) const;
  bool holds_anybody() const { return !held_.empty(); }
  // Whether samples of this GPU are of use: a gang is there, or a job that would be one with them.
  bool wants_samples(uint32_t gpu) const { return (wanted_ & uint64_t{1} << gpu) != 0; }
  // When the next look is due.
  Time next() const { return next_; }

 private:
  using Place = std::pair<ProcessId, uint32_t>;
  struct Change {  // of turns
    Time at{};
    bool runs = true;  // from then on
  };
  struct Gang {
    std::string name;
    Priority priority = Priority::kNormal;
    uint64_t gpus = 0;       // bit n: it works on GPU n
    uint64_t contested = 0;  // those of them that others of its class want, too
    double share = 0;        // that is due to it, on all of them
    double owed_ns = 0;      // less than 0: it has had more than was due
    double period_ns = 0;    // of its turns and those of the others
    bool is_at_cap = false, is_capped = false, has_rivals = false, runs = true;
    bool is_seen = false;
    Time since{};
    Time contested_at{};          // the last time
    std::vector<Change> changes;  // those that the log may not tell of yet
  };
  struct Rest {  // those on one GPU that are in no gang
    bool wants = false;
    Time wanted{};  // the last time
    double owed_ns = 0;
  };
  // Those that have their turns together on one GPU: of a job on several, or of none of these.
  struct Company {
    std::size_t size = 0;
    double rate = 0;  // of all of them
    Time since{};     // when one came or went last
  };

  // What those of a tenant of which nothing is known yet use of a GPU, and are to have.
  struct Brief {
    double rate = 0;
    double target = -1;  // < 0: unknown
    bool is_busy = false;
  };

  struct Diligence {
    bool is_light = true;
    Time since{};
  };

  std::map<uint32_t, double> lent_by_light(std::span<const Seen> all) const;
  void find_gangs(Time now, std::span<const Seen> all);
  void find_rest(Time now, Nanos passed, std::span<const Seen> all);
  std::map<uint32_t, double> read_logs(Time now, std::span<const Seen> all);
  void settle(Time now, std::span<const Seen> all, const Uses& gone);
  void choose(Time now);
  void hold(std::span<const Seen> all);
  void find_companies(Time now, std::span<const Seen> all);
  void find_brief(Nanos passed, std::span<const Seen> all, const Uses& gone);
  bool is_unknown(const Seen& seen) const { return seen.share < 0 && !is_candidate(seen); }
  void judge(Time now, const Seen& seen);
  bool is_light(const Seen& seen) const;
  bool is_of_gang(const Seen& seen) const;
  bool rivals(const Seen& seen) const;  // it competes with gangs for its GPU
  bool is_candidate(const Seen& seen) const { return candidates_.contains(seen.job); }
  void forget_gone(std::span<const Seen> all);
  std::pair<Key, uint32_t> company_of(const Seen& seen) const;
  bool meets_running(const Gang& gang) const;
  bool may_begin(const Gang& gang, Time now) const;
  static double swing_ns(const Gang& gang);
  double owed_ns(const Gang& gang, Time now) const;
  void change(Gang& gang, Time now, bool runs) const;
  Nanos period_of(const Gang& gang, std::span<const Seen> all) const;

  std::map<Key, Gang> gangs_;
  std::map<uint32_t, Rest> rest_;         // by GPU
  std::map<Place, Diligence> diligence_;  // of those that were light ever
  // Jobs that would be gangs if they were sampled and made use of their shares.
  std::set<Key> candidates_;
  std::map<std::pair<Key, uint32_t>, Company> companies_;  // by candidate (or an empty key) and GPU
  std::map<std::pair<uint32_t, uint32_t>, Brief> brief_;   // by slot of the tenant and GPU
  Time looked_{};                                          // the last time
  uint64_t wanted_ = 0;                                    // bit n: samples of GPU n are
  std::map<Place, std::string> held_;
  std::map<uint32_t, Time> known_until_;  // by GPU
  Time next_{Time::max()};
};

}  // namespace gpushare
