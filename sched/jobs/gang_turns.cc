// SPDX-License-Identifier: Apache-2.0
#include "sched/jobs/gang_turns.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>
#include <utility>

namespace gpushare {
namespace {

// Of its cap: what keeps its share down is the cap and not its weight.
constexpr double kNearCap = 0.99;
constexpr double kLeastShare = 0.001, kMostShare = 0.999;
// A turn is over when the others wait and it was so much longer than it should be, whatever is
// owed: what is due to gangs that overlap may be more than there is.
constexpr double kLongestTurn = 1.5;
constexpr Nanos kSoon = std::chrono::milliseconds(1);
constexpr double kLongestWaitNs = std::chrono::nanoseconds(std::chrono::seconds(1)).count();

uint64_t bit(uint32_t gpu) { return uint64_t{1} << gpu; }

Nanos nanos(double ns) {
  return Nanos(static_cast<int64_t>(std::ceil(std::clamp(ns, 0.0, kLongestWaitNs))));
}

}  // namespace

void GangTurns::look(Time now, std::span<const Seen> all, const Uses& gone) {
  if (!gangs_.empty()) settle(now, all, gone);
  find_gangs(now, all);
  if (gangs_.empty())
    known_until_.clear();
  else if (known_until_.empty())
    read_logs(now, all);
  held_.clear();
  next_ = Time::max();
  if (candidates_.empty()) {  // as nearly always
    rest_.clear();
    diligence_.clear();
    companies_.clear();
    brief_.clear();
    return;
  }
  find_companies(now, all);
  const Nanos passed = now - std::exchange(looked_, now);
  find_brief(passed, all, gone);
  for (const Seen& seen : all) judge(now, seen);
  forget_gone(all);
  find_rest(now, passed, all);
  choose(now);
  hold(all);
}

// How far the log of each GPU is known, and how much of it is new.
std::map<uint32_t, double> GangTurns::read_logs(Time now, std::span<const Seen> all) {
  std::map<uint32_t, double> told_ns;
  std::map<uint32_t, Time> known;
  for (const Seen& seen : all) {
    const Time until = std::min(seen.known_until, now);
    if (!known.emplace(seen.gpu, until).second) continue;
    const auto before = known_until_.find(seen.gpu);
    const Nanos told = before == known_until_.end() ? Nanos{} : until - before->second;
    told_ns[seen.gpu] = static_cast<double>(std::max(told, Nanos{}).count());
  }
  known_until_ = std::move(known);
  return told_ns;
}

// What was due in the time that the logs have told of since the last look, and what was had, by
// those that were there then: of what all together have used, but for those of a higher class, who
// take it from all alike. What a change of turns costs is nobody's; but a cap is a part of all
// time. Each GPU counts by its own log, of which one may be later than another.
void GangTurns::settle(Time now, std::span<const Seen> all, const Uses& gone) {
  struct Use {
    double all = 0, rest = 0, due_to_gangs = 0, longest_ns = 0;
  };
  const std::map<uint32_t, double> told_ns = read_logs(now, all);
  std::map<uint32_t, Priority> highest;  // of the gangs on each GPU
  for (const auto& [key, gang] : gangs_)
    for (const auto& [gpu, told] : told_ns)
      if ((gang.gpus & bit(gpu)) != 0) highest[gpu] = std::max(highest[gpu], gang.priority);
  std::map<uint32_t, Use> uses;
  std::map<std::pair<Key, uint32_t>, double> of_gangs;
  for (const Seen& seen : all) {
    const auto class_of_gangs = highest.find(seen.gpu);
    if (class_of_gangs != highest.end() && seen.priority > class_of_gangs->second) continue;
    const auto used = static_cast<double>(seen.used.count());
    uses[seen.gpu].all += used;
    const auto gang = gangs_.find(seen.job);
    if (gang == gangs_.end())
      uses[seen.gpu].rest += used;
    else if ((gang->second.gpus & bit(seen.gpu)) != 0)
      of_gangs[{seen.job, seen.gpu}] += used;
  }
  for (const auto& [place, used] : gone) {
    const auto at = uses.find(place.second);
    if (at == uses.end()) continue;  // nobody is there to whom anything would be due
    at->second.all += static_cast<double>(used.count());
    at->second.rest += static_cast<double>(used.count());
  }
  for (auto& [key, gang] : gangs_) {
    if (!gang.has_rivals) continue;
    double owed = 0;
    for (auto& [gpu, use] : uses) {
      if ((gang.contested & bit(gpu)) == 0) continue;
      const double due = gang.share * (gang.is_at_cap ? told_ns.at(gpu) : use.all);
      owed += due - of_gangs[{key, gpu}];
      use.due_to_gangs += due;
      use.longest_ns = std::max(use.longest_ns, gang.period_ns);
    }
    gang.owed_ns += owed / std::max(std::popcount(gang.contested), 1);
    gang.owed_ns = std::clamp(gang.owed_ns, -gang.period_ns, gang.period_ns);
  }
  for (auto& [gpu, rest] : rest_) {
    const Use& use = uses[gpu];
    rest.owed_ns += std::max(use.all - use.due_to_gangs, 0.0) - use.rest;
    rest.owed_ns = std::clamp(rest.owed_ns, -use.longest_ns, use.longest_ns);
  }
}

// What those that make little use of their shares leave of them is the others', each in proportion
// to its own: by how much these are larger then, on each GPU.
std::map<uint32_t, double> GangTurns::lent_by_light(std::span<const Seen> all) const {
  struct Light {
    double target = 0, used = 0;
  };
  std::map<uint32_t, Light> light;
  for (const Seen& seen : all) {
    Light& on = light[seen.gpu];
    if (!seen.wants_gpu || seen.target <= 0 || seen.share < 0 || !is_light(seen)) continue;
    on.target += seen.target;
    on.used += std::min(seen.share, seen.target);
  }
  std::map<uint32_t, double> lent;
  for (const auto& [gpu, on] : light)
    lent[gpu] = (1 - on.used) / std::max(1 - on.target, kLeastShare);
  return lent;
}

// One of which a process cannot be held, or on a GPU that has not been planned for, is none.
void GangTurns::find_gangs(Time now, std::span<const Seen> all) {
  struct Found {
    uint64_t gpus = 0, busy = 0;  // bit n: it wants GPU n, and makes use of its share of it
    std::map<uint32_t, double> shares;
    Priority priority = Priority::kIdle;
    double cap = 1;
    bool can_hold = true, may_be_gang = true, is_told = false, is_sampled = true, is_capped = false;
    std::string_view tenant;
  };
  std::map<Key, Found> found;
  std::map<uint32_t, double> lent;  // empty: not asked for yet
  wanted_ = 0;
  candidates_.clear();
  for (const Seen& seen : all) {
    Found& job = found[seen.job];
    job.can_hold = job.can_hold && seen.can_hold;
    job.may_be_gang = job.may_be_gang && seen.may_be_gang;
    job.is_told = job.is_told || seen.is_told;
    job.tenant = seen.tenant;
    job.priority = std::max(job.priority, seen.priority);
    if (!seen.wants_gpu) continue;
    job.gpus |= bit(seen.gpu);
    job.is_sampled = job.is_sampled && seen.is_sampled;
    if (is_light(seen)) continue;
    job.busy |= bit(seen.gpu);
    job.is_capped = job.is_capped || seen.is_capped;
    job.cap = std::min(job.cap, seen.cap);
    if (seen.target >= 0) job.shares[seen.gpu] += seen.target;
  }
  for (auto& [key, gang] : gangs_) gang.is_seen = false;
  for (const auto& [key, job] : found) {
    if (std::popcount(job.gpus) < 2 || !job.may_be_gang || !job.can_hold) continue;
    candidates_.insert(key);
    wanted_ |= job.gpus;
    if (std::popcount(job.busy) < 2 || job.shares.empty()) continue;
    if (!job.is_told && !job.is_sampled) continue;
    Gang& gang = gangs_[key];
    gang.is_seen = true;
    gang.name = key.tenant != 0 ? "tenant " + std::string(job.tenant)
                : key.run != 0  ? "run-" + std::to_string(key.run)
                                : "pid-" + std::to_string(key.process.pid);
    gang.priority = job.priority;
    gang.gpus = job.busy;
    if (lent.empty()) lent = lent_by_light(all);
    gang.share = job.cap;
    for (const auto& [gpu, share] : job.shares)
      gang.share = std::min(gang.share, share * lent.at(gpu));
    gang.is_at_cap = gang.share >= kNearCap * job.cap;
    gang.share = std::clamp(gang.share, kLeastShare, kMostShare);
    // What its bucket was charged may be more than what it is known to have used. So its turn ends
    // here with what is owed as well: otherwise each one would be cut short.
    const bool was_capped = std::exchange(gang.is_capped, job.is_capped);
    if (gang.is_capped && !was_capped && gang.has_rivals)
      gang.owed_ns -= std::max(owed_ns(gang, now) + swing_ns(gang), 0.0);
  }
  std::erase_if(gangs_, [](const auto& one) { return !one.second.is_seen; });
}

bool GangTurns::is_of_gang(const Seen& seen) const { return gangs_.contains(seen.job); }

// While its cap keeps it from the GPU it leaves it to the gang: holding that would be for nobody.
bool GangTurns::rivals(const Seen& seen) const {
  return !is_of_gang(seen) && seen.wants_gpu && !is_light(seen) && !seen.is_capped;
}

std::pair<GangTurns::Key, uint32_t> GangTurns::company_of(const Seen& seen) const {
  return {is_candidate(seen) ? seen.job : Key{}, seen.gpu};
}

bool GangTurns::is_light(const Seen& seen) const {
  const auto at = diligence_.find({seen.process, seen.gpu});
  return at != diligence_.end() && at->second.is_light;
}

// Of those in one company each uses what the others leave it, so that samples tell of all together.
void GangTurns::find_companies(Time now, std::span<const Seen> all) {
  const std::map<std::pair<Key, uint32_t>, Company> before = std::exchange(companies_, {});
  for (const Seen& seen : all) {
    Company& company = companies_[company_of(seen)];
    ++company.size;
    company.rate += seen.rate;
  }
  for (auto& [name, company] : companies_) {
    const auto at = before.find(name);
    const bool is_same = at != before.end() && at->second.size == company.size;
    company.since = is_same ? at->second.since : now;
  }
}

// Short programs, one after the other, would have the GPU in everybody's turns otherwise.
void GangTurns::find_brief(Nanos passed, std::span<const Seen> all, const Uses& gone) {
  Uses used = gone;
  for (const Seen& seen : all) {
    if (!is_unknown(seen)) continue;
    used[{seen.slot, seen.gpu}] += seen.used;
    Brief& brief = brief_[{seen.slot, seen.gpu}];
    if (seen.target > 0) brief.target = seen.target;
  }
  if (passed <= Nanos{}) return;
  const double kept = std::exp(-std::chrono::duration<double>(passed) / kBriefSpan);
  for (auto& [place, brief] : brief_) {
    const auto more = used.find(place);
    const double rate =
        more == used.end() ? 0 : std::chrono::duration<double>(more->second) / passed;
    brief.rate = kept * brief.rate + (1 - kept) * std::min(rate, 1.0);
    brief.is_busy =
        brief.target > 0 && brief.rate >= (brief.is_busy ? kLight : kNotLight) * brief.target;
  }
  std::erase_if(brief_, [&](const auto& one) {
    return one.second.rate < kLeastShare && !used.contains(one.first);
  });
}

// A job on several GPUs is taken for busy until it is known not to be, and another process the
// other way round, so that it is not held before anything is known of it, but that others like it
// have come and gone.
void GangTurns::judge(Time now, const Seen& seen) {
  const Place place{seen.process, seen.gpu};
  if (is_unknown(seen)) diligence_[place].is_light = !brief_.at({seen.slot, seen.gpu}).is_busy;
  if (seen.share < 0 || seen.target <= 0 || !seen.wants_gpu) return;
  const auto at = diligence_.find(place);
  const bool was_light = is_light(seen);
  const Time since = at == diligence_.end() ? Time{} : at->second.since;
  if (was_light && now - since < kShareSettled) return;
  // On all of its GPUs a gang has the least that any of them gives it.
  const auto gang = gangs_.find(seen.job);
  double used = seen.share / (gang == gangs_.end() ? seen.target : gang->second.share);
  const Company& company = companies_.at(company_of(seen));
  if (!was_light && now - std::max(since, company.since) >= kSettled)
    used = std::min(used, company.rate);
  if (was_light ? used >= kNotLight : used < kLight) diligence_[place] = {!was_light, now};
}

void GangTurns::forget_gone(std::span<const Seen> all) {
  std::map<Place, Diligence> there;
  for (const Seen& seen : all)
    if (const auto at = diligence_.find({seen.process, seen.gpu}); at != diligence_.end())
      there.insert(*at);
  diligence_ = std::move(there);
}

void GangTurns::find_rest(Time now, Nanos passed, std::span<const Seen> all) {
  std::map<uint32_t, Rest> before = std::exchange(rest_, {});
  for (const Seen& seen : all) {
    if (!rivals(seen)) continue;
    Rest& rest = rest_[seen.gpu];
    rest.wants = true;
    rest.wanted = now;
  }
  for (const auto& [gpu, rest] : before) {
    const auto at = rest_.find(gpu);
    if (at != rest_.end())
      at->second.owed_ns = rest.owed_ns;
    else if (now - rest.wanted < kOwed)
      rest_.emplace(gpu, Rest{.wanted = rest.wanted, .owed_ns = rest.owed_ns});
  }
  // Of its class on one of its GPUs: those of a lower one give way by themselves, and those of a
  // higher one to nobody.
  for (auto& [key, gang] : gangs_) {
    gang.contested = 0;
    for (const Seen& seen : all)
      if ((gang.gpus & bit(seen.gpu)) != 0 && seen.priority == gang.priority && rivals(seen))
        gang.contested |= bit(seen.gpu);
    for (const auto& [name, other] : gangs_)
      if (&other != &gang && other.priority == gang.priority)
        gang.contested |= other.gpus & gang.gpus;
    gang.has_rivals = gang.contested != 0;
    gang.period_ns = static_cast<double>(period_of(gang, all).count());
    if (gang.has_rivals)
      gang.contested_at = now;
    else if (now - gang.contested_at >= kOwed)
      gang.owed_ns = 0;
    else if (gang.owed_ns > 0)
      gang.owed_ns = std::max(gang.owed_ns - static_cast<double>(passed.count()), 0.0);
  }
}

Nanos GangTurns::period_of(const Gang& gang, std::span<const Seen> all) const {
  const bool is_anybody_capped = std::ranges::any_of(all, [&](const Seen& seen) {
    return seen.cap < 1 && (gang.gpus & bit(seen.gpu)) != 0 && seen.priority == gang.priority &&
           seen.wants_gpu && !is_light(seen);
  });
  if (is_anybody_capped) return kPeriodOfCapped;
  return kPeriodPerGpu * (std::popcount(gang.gpus) + 1);
}

// So much is owed to it when its turn begins, and so much more than its due it has had when that
// ends.
double GangTurns::swing_ns(const Gang& gang) {
  return gang.share * (1 - gang.share) * gang.period_ns / 2;
}

// What is owed to it now, if all has worked whenever it might since the logs were known.
double GangTurns::owed_ns(const Gang& gang, Time now) const {
  double untold_ns = 0;
  for (const auto& [gpu, known_until] : known_until_) {
    if ((gang.contested & bit(gpu)) == 0) continue;
    Time until = now;
    for (auto change = gang.changes.rbegin(); change != gang.changes.rend(); ++change) {
      const Nanos untold = std::max(until - std::max(change->at, known_until), Nanos{});
      untold_ns +=
          (change->runs ? gang.share - 1 : gang.share) * static_cast<double>(untold.count());
      until = change->at;
    }
  }
  const double owed = gang.owed_ns + untold_ns / std::max(std::popcount(gang.contested), 1);
  return std::clamp(owed, -gang.period_ns, gang.period_ns);
}

void GangTurns::change(Gang& gang, Time now, bool runs) const {
  if (std::exchange(gang.runs, runs) != runs) gang.changes.push_back({now, runs});
  Time known = now;  // on all of its GPUs
  for (const auto& [gpu, until] : known_until_)
    if ((gang.gpus & bit(gpu)) != 0) known = std::min(known, until);
  // One that the logs tell of whole is of no use; of the others, the last one began before.
  const auto told = std::ranges::upper_bound(gang.changes, known, {}, &Change::at);
  if (told - gang.changes.begin() > 1) gang.changes.erase(gang.changes.begin(), told - 1);
}

// Whether one that has the turn shares a GPU with it and is not of a lower class, which gives way.
bool GangTurns::meets_running(const Gang& gang) const {
  return std::ranges::any_of(gangs_, [&](const auto& other) {
    return &other.second != &gang && other.second.has_rivals && other.second.runs &&
           !other.second.is_capped && other.second.priority >= gang.priority &&
           (other.second.gpus & gang.gpus) != 0;
  });
}

// Without anybody else on its GPUs it begins at once, and otherwise when enough is owed, and not
// less to the others.
bool GangTurns::may_begin(const Gang& gang, Time now) const {
  if (meets_running(gang)) return false;
  const double owed = owed_ns(gang, now);
  const double had_by_rest = owed - gang.owed_ns;  // since the log was known
  const auto wants_more = [&](const auto& one) {
    const auto& [gpu, rest] = one;
    return (gang.gpus & bit(gpu)) != 0 && rest.wants && rest.owed_ns - had_by_rest > owed;
  };
  const bool has_rest = std::ranges::any_of(rest_, [&](const auto& one) {
    return (gang.gpus & bit(one.first)) != 0 && one.second.wants;
  });
  if (!has_rest) return true;
  return owed >= swing_ns(gang) && std::ranges::none_of(rest_, wants_more);
}

void GangTurns::choose(Time now) {
  for (auto& [key, gang] : gangs_) {
    if (!gang.has_rivals) {
      change(gang, now, !gang.is_capped);
      continue;
    }
    if (!gang.runs) continue;
    const double turn = static_cast<double>((now - gang.since).count());
    const bool is_long = turn > kLongestTurn * gang.share * gang.period_ns;
    const bool has_had_enough = owed_ns(gang, now) <= -swing_ns(gang);
    if (gang.is_capped || has_had_enough || is_long || gang.since == Time{})
      change(gang, now, false);
  }
  // Those of the highest class, and in it those to which most is owed, first.
  std::vector<Gang*> waiting;
  for (auto& [key, gang] : gangs_)
    if (gang.has_rivals && !gang.runs && !gang.is_capped) waiting.push_back(&gang);
  std::ranges::sort(waiting, {}, [&](const Gang* gang) {
    return std::tuple(-static_cast<int>(gang->priority), -owed_ns(*gang, now), gang->since,
                      std::string_view(gang->name));
  });
  for (Gang* gang : waiting) {
    if (!may_begin(*gang, now)) continue;
    change(*gang, now, true);
    gang->since = now;
    for (auto& [key, other] : gangs_)
      if (other.priority < gang->priority && other.has_rivals && (other.gpus & gang->gpus) != 0)
        change(other, now, false);
  }
  for (auto& [key, gang] : gangs_) {
    if (gang.since == Time{}) gang.since = now;
    if (!gang.has_rivals || gang.is_capped) continue;
    const double owed = owed_ns(gang, now);
    const double wait = gang.runs ? std::min((owed + swing_ns(gang)) / (1 - gang.share),
                                             kLongestTurn * gang.share * gang.period_ns -
                                                 static_cast<double>((now - gang.since).count()))
                                  : (swing_ns(gang) - owed) / gang.share;
    next_ = std::min(next_, now + std::max(nanos(wait), kSoon));
  }
}

void GangTurns::hold(std::span<const Seen> all) {
  for (const Seen& seen : all) {
    const Place place{seen.process, seen.gpu};
    if (const auto own = gangs_.find(seen.job); own != gangs_.end()) {
      const Gang& gang = own->second;
      if (gang.runs || !seen.wants_gpu || is_light(seen)) continue;
      held_[place] = gang.is_capped ? "its cap holds on all of its GPUs at once"
                                    : "waits for its turn on all of its GPUs";
      continue;
    }
    if (!seen.can_hold || is_light(seen)) continue;
    for (const auto& [key, gang] : gangs_)
      if (gang.has_rivals && gang.runs && (gang.gpus & bit(seen.gpu)) != 0 &&
          seen.priority <= gang.priority)
        held_[place] = "gang turn of " + gang.name;
  }
}

const std::string* GangTurns::held(const ProcessId& process, uint32_t gpu) const {
  const auto at = held_.find({process, gpu});
  return at == held_.end() ? nullptr : &at->second;
}

}  // namespace gpushare
