// SPDX-License-Identifier: Apache-2.0
// Accounting: the hardware's switch records turned into GPU time per process, for one GPU: charges
// for the token buckets, shares of the last second, which processes want the GPU, and one minute of
// history. What is counted is *residence*, from the record that a context went on the GPU to the
// one that it went off; with two or more active contexts that is exact. At both ends of a turn that
// the end of its slice cuts off the hardware loads and stores the program's state, in which the
// program does nothing, and that is charged to nobody: of such a turn its slice counts. A context
// alone logs nothing: it counts as resident since its last start. What of that is use is presumed
// at first (lone_context.h), and known when the driver's samples have told how busy the GPU was
// (lone_use.h, division.h). A frozen process is charged nothing. Time in which records were lost is
// charged to nobody, and counted in unattributed().
//   slice 6 ms, on the GPU for 6.144 ms -> 6 ms used
//
// The log's time runs a little behind `now`; freezes and thaws are merged into it by their instant.
// State is bounded by the processes added. One thread; no I/O.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "intercept/gpu.h"
#include "sched/account/escape.h"
#include "sched/account/lone_context.h"
#include "sched/account/lone_use.h"
#include "sched/account/seen_rate.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

class Accounting {
 public:
  static constexpr Nanos kSlot =
      std::chrono::milliseconds(100);  // the window moves in steps of this
  static constexpr uint32_t kWindowSlots = 10;
  static constexpr Nanos kWindow = kSlot * kWindowSlots;  // 1 s
  static constexpr double kBusySample = 0.02;  // below, a sample is noise: it counts whole percent
  static constexpr Nanos kLoneAfter = std::chrono::milliseconds(100);  // longer than any slice
  // Without a sign of work for so much thawed time, and for one and a half rounds of all time
  // slices, a process has none: until then it may wait for the others.
  static constexpr Nanos kWantsFor = std::chrono::milliseconds(100);
  // The longest that an H200 takes to load and store a context's state is 0.144 ms, and to change
  // contexts 0.08 ms (docs/driver-facts.md). What is longer is taken for something else.
  static constexpr Nanos kLongestSwitch = std::chrono::microseconds(250);
  // Longer than samples are apart, which are all that shows work of one that is alone.
  static constexpr Nanos kLongRest = std::chrono::milliseconds(1500);
  // The time slice of a program that nobody has given another one.
  static constexpr Nanos kDriversSlice = std::chrono::microseconds(2048);
  static constexpr uint32_t kMostGroups = 8;
  // A longer sample tells only that somebody was there: what it is the mean of is not known.
  static constexpr Nanos kLongestSample = std::chrono::milliseconds(1500);
  static constexpr size_t kMostUntold = 32;
  // For so long after it came, what it is resident for in turns shorter than kLoneAfter is presumed
  // to be use whatever samples say: twice the longest start of sixteen at once on an H200
  // (docs/limits.md).
  static constexpr Nanos kStart = std::chrono::seconds(5);
  // Samples are put together to that: freezes are counted in tenths of it.
  static constexpr Nanos kSampledTogether = std::chrono::seconds(1);

  struct Use {
    Nanos total{};      // since it was added
    double share = -1;  // of the last second; < 0 not known yet
    bool wants_gpu = false;
    double switches_per_s = -1;                       // < 0 not known yet
    std::array<uint16_t, kHistory> history_permille;  // newest last; 0xFFFF unknown
  };

  // Without a switch log the driver's samples are all there is: shares are theirs, nothing is
  // charged. Call consume() then with empty batches, for the time.
  explicit Accounting(bool has_log) : has_log_(has_log) {}

  void add(pid_t pid, Time now);
  // It has ended, or has nothing on the GPU any more: from then on only records tell of its use.
  void end(pid_t pid, Time at);
  // The same process is there again.
  void resume(pid_t pid) { end(pid, Time::max()); }
  void remove(pid_t pid);
  // Its bearer is another one from `at` on, which may be later than what the log has told so far:
  // what the earlier one has used until then is the account of that pid `before` the same instant,
  // until close(). A pid that was not added is only added, as of `now`.
  void succeed(pid_t pid, Time at, Time now);

  // What samples of several that were alone leave open: it may have been this one's use, and
  // nothing tells that it was not. Caps count it. What may have been the use of each of two
  // programs was done once, so that programs of one tenant have it together.
  struct Doubt {
    Nanos may{};          // besides what it is taken to have done
    Nanos own{}, busy{};  // in these samples: that, and what the whole GPU did

    // Of later samples.
    void add(const Doubt& later) {
      may += later.may;
      own += later.own;
      busy += later.busy;
    }
    // Another program's, of the same samples.
    void join(const Doubt& other) {
      may += other.may;
      own += other.own;
      busy = std::max(busy, other.busy);
    }
    Nanos bounded() const { return std::clamp(busy - own, Nanos{}, may); }
  };

  // Of a process that is alone nothing tells at once whether it uses the GPU: that is presumed, and
  // is settled by a sample of the driver, 0.2 to 0.4 s later.
  struct Charge {
    Nanos used{};        // as the log and the samples tell
    Nanos presumed{};    // by how much that has grown which is not told yet; < 0: it has been told
    Nanos returned{};    // so much that had been presumed was no use
    uint32_t turns = 0;  // times it was switched in
    Nanos excused{};     // besides, for caps: what may have been use, and nothing tells that it was
    Doubt doubt{};       // besides, for caps

    // By how much all that it is taken to have used has grown; < 0: more was returned than added.
    Nanos net() const { return used + presumed; }
    // What was added to that; what was returned is of a time that is past.
    Nanos gross() const { return net() + returned; }

    void add(const Charge& more) {
      used += more.used;
      presumed += more.presumed;
      returned += more.returned;
      turns += more.turns;
      excused += more.excused;
      doubt.add(more.doubt);
    }
  };
  // The time slice of its compute channel groups from now on. Unknown until then.
  void set_slice(pid_t pid, Nanos slice);
  // How many it has: each comes in turn, up to kMostGroups. One until then.
  void set_groups(pid_t pid, uint32_t groups);
  // What a process with the shim says, as of `now`. It counts only while it is_young(), and only if
  // it is heard at every step until then, before consume().
  bool is_young(pid_t pid, Time now) const;
  void hear(pid_t pid, const LoneContext::Word& word, Time now);
  // Where jobs take turns: whether it has the turn and works, or is held.
  enum class Turn : uint8_t { kWorks, kRests, kHeld };
  void note_turn(pid_t pid, Turn turn, Time now);
  // Call after the driver froze or thawed it.
  void set_frozen(pid_t pid, bool is_frozen, Time at);

  void consume(const SwitchBatch& batch);
  // The driver's samples; each tells of the time since the one before.
  void sample(const UtilisationSample& sample, Time now);
  // True while a sample would tell something that the log does not.
  bool needs_samples() const;
  // The part of the time in which it is alone that it uses, by what was sampled in the last two
  // seconds, of which the larger one counts; 1: nothing tells.
  double sampled_rate(pid_t pid, Time now) const;
  // Whether the driver has given samples of late.
  bool is_sampled(Time now) const {
    return sampled_ != Time{} && now - sampled_ < LoneContext::kStale;
  }
  // What happened before this instant is known.
  Time known_until() const { return at_; }
  // Without a log of context switches only samples tell who uses it.
  bool has_log() const { return has_log_; }

  // The frozen processes that began a turn all the same, or were sampled at more than their thawed
  // time, since the last call: they run on channels that nobody has frozen.
  std::vector<pid_t> take_escaped();
  // When it last showed work, by the log or a sample, and when it last began a turn after kLongRest
  // without; a thaw counts as such a sign. Zero: never.
  struct Signs {
    Time shown{}, woke{};
  };
  Signs signs(pid_t pid) const;
  // For how long, as of known_until(), it has surely had nothing to do: it may run, has had the GPU
  // before, does not have it now, and would have had it again within one and a half rounds of all
  // time slices. Zero where that is not so, or not known: of one that is alone the log says
  // nothing.
  Nanos rest(pid_t pid);
  // What it used since the last call; zero for unknown pids. `before`: of the earlier bearer of the
  // pid, until that instant.
  Charge take_charge(pid_t pid, std::optional<Time> before = {});
  // What is presumed of it until now was use, whatever samples would tell. Returns that, which is
  // all that `presumed` has added up to in its charges so far; it is not in its next one.
  Nanos conclude(pid_t pid, std::optional<Time> before = {});
  // Whether samples have told, or will not tell, what it did alone.
  bool is_told(pid_t pid, std::optional<Time> before = {}) const;
  // No sample will tell more: what it did alone was use, and its account is no more.
  Charge close(pid_t pid, std::optional<Time> before = {});
  Use use(pid_t pid, Time now) const;
  bool wants_gpu(pid_t pid, Time now) const;
  double share(pid_t pid) const;

  double busy() const;            // of the last second, all processes; < 0 not known yet
  double switches_per_s() const;  // < 0 not known yet
  // The part of the last second in which the hardware changed contexts, 0 to 1: nobody's use.
  double switching() const;
  uint64_t records() const { return records_; }
  uint64_t lost() const { return lost_; }
  Nanos unattributed() const { return unattributed_; }

 private:
  struct Slot {
    Nanos used{}, frozen{};
    Nanos switching{};  // of the whole GPU only
    uint32_t starts = 0;
  };
  using Slots = std::array<Slot, kWindowSlots + 1>;  // the last one is being filled
  struct Meter {
    Time added{};
    Nanos total{};
    Charge pending;
    Nanos slice{};  // zero: unknown
    uint32_t groups = 1;
    Nanos switching{};  // of its turns so far; taken off what it uses next
    Slots slots{};
    Time last_active{};
    Signs signs;
    bool has_begun = false;  // a turn, by the log
    Time ended = Time::max();
    bool is_frozen = false;
    bool wanted_when_frozen = false;
    Nanos idle_when_frozen{};  // how long it had shown no work then
    Time frozen_since{};
    bool runs_frozen = false;  // its turn has begun after that
    Escape escape;
    LoneContext lone;
    LoneUse lone_use;
    SeenRate seen;
    double sampled = -1;  // the last sample, < 0 none
    // Of the second that is being sampled, and of the two before it, as parts of the thawed time.
    Nanos sampled_busy{}, sampled_time{};
    Nanos told_alone{}, told_used{};  // meanwhile
    double sampled_rate = 1, latest_rate = 1;
    Time rated{};
    double share = -1;  // of the window as of the last slot; < 0 not known yet
    std::array<uint16_t, kHistory> history;
  };
  struct Boundary {  // what is not yet merged into the log's time
    enum class Kind { kThaw, kFreeze, kSuccession };
    Time at{};
    pid_t pid = 0;
    Kind kind{};
  };
  struct Former {  // an earlier bearer of the pid
    pid_t pid = 0;
    Time until{};
    Meter meter;
  };

  void add_boundary(const Boundary& boundary);
  Meter* bearer(pid_t pid);  // at the log's time
  Meter* find(pid_t pid);
  const Meter* find(pid_t pid) const;
  void advance(Time to);            // charges up to there; moves the window
  void charge(Time from, Time to);  // within one slot
  Time lone_from(const Meter& meter) const;
  Meter* account(pid_t pid, std::optional<Time> before);
  const Meter* account(pid_t pid, std::optional<Time> before) const;
  void add_use(Meter& meter, Nanos used);
  void show_use(Meter& meter, Nanos used);
  static void count(Meter& meter, Nanos used);
  static void write_off(Meter& meter, const LoneUse::Untold& untold);
  void correct(Meter& meter, Time from, Time until, Nanos more);
  void charge_alone(Meter& meter, Time from, Time to);
  void charge_stranger(Time from, Time to);
  void settle();
  void settle(const UtilisationSample& sample);
  static void settle(Meter& meter, const LoneUse::Told& told, Nanos used);
  void note_sample(Meter& meter, double fraction, const UtilisationSample& sample);
  void look_at_second(Meter& meter);
  void decide(Meter& meter);
  void begin_turn(Meter& meter, Time at);
  void forget_resident();
  void end_turn(Meter& meter, Nanos turn);
  void close_slot();
  static Nanos slice_of(const Meter& meter);
  bool comes_in_turn(const Meter& meter) const;
  Nanos rest_after();
  template <class Part>
  Nanos round(Part part) const;
  void infer_resident();
  void apply(const SwitchRecord& record);
  void apply(const Boundary& boundary);
  bool wants(const Meter& meter, Time now) const;
  Nanos window() const;
  double share_of(const Meter& meter) const;

  const bool has_log_;
  std::map<pid_t, Meter> meters_;
  bool is_any_suspected_ = false;     // take_escaped() has to look at them
  bool is_any_frozen_ = false;        // of them; true also if that one has been removed since
  std::vector<Former> formers_;       // in the order in which they had their pids
  std::vector<Boundary> boundaries_;  // ascending
  Time at_{};                         // charged until here
  Time slot_end_{};
  uint64_t slots_closed_ = 0;
  bool is_started_ = false;
  pid_t resident_ = 0;  // 0: nobody known, or not one of ours
  bool is_resident_known_ = false;
  Time residents_known_since_ = Time::max();  // whom the GPU has held since then, all of the time
  Time resident_since_{};                     // without a record in between
  // Of the resident one, which says that it rests: not known yet whether it was alone.
  Nanos undecided_{};
  Time turn_began_{};           // by the record of its start
  bool is_turn_whole_ = false;  // no freeze or thaw of the resident one since then
  // When the last one went off, while nobody is on the GPU; min(): somebody is, or it is not known.
  Time vacant_since_{Time::min()};
  Slots all_{};  // used and starts of the whole GPU
  uint64_t records_ = 0, lost_ = 0;
  Nanos unattributed_{};
  Nanos round_{};                    // as of the last slot
  std::optional<Nanos> rest_after_;  // as of at_ and of the slices; none: to be computed
  Time sampled_{};                   // the last time; zero: never
  Time told_{};                      // until then the last sample told how busy the GPU was
  // Of time that the log has not told of yet: kMostUntold at most.
  std::vector<UtilisationSample> untold_;
  LoneUse strangers_;  // of who is not, or no more, one of ours
};

}  // namespace gpushare
