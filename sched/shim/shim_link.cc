// SPDX-License-Identifier: Apache-2.0
#include "sched/shim/shim_link.h"

#include <algorithm>
#include <utility>

#include "sched/policy/command_signature.h"
#include "sched/step/views.h"
#include "sched/tenants/identity.h"
#include "shmctl/base/log.h"

namespace gpushare {
namespace {

uint32_t features_of(const PolicyNeeds& needs) {
  return (needs.spatial ? kShimGate | kShimPartitions : 0U) |
         (needs.iterations ? kShimIterations : 0U) |
         (needs.turns ? kShimGate | kShimIterations : 0U);
}

// Of a process whose launches wait on the GPU, by its own word. Graphs and kernels are weighed by
// nothing but the longer of the two.
std::optional<ShimCaps::OnGpu> on_gpu_of(const ShimClient& client) {
  const ShimCredit& credit = client.slot->credit;
  if (credit.held.load(std::memory_order_relaxed) != ShimHeld::kOnGpu) return std::nullopt;
  const auto longest = static_cast<uint64_t>(ShimCaps::kLongestLaunch.count());
  const uint64_t launch_ns = std::max(credit.launch_ns.load(std::memory_order_relaxed),
                                      credit.graph_ns.load(std::memory_order_relaxed));
  return ShimCaps::OnGpu{.reached = credit.reached.load(std::memory_order_relaxed),
                         .waits = client.said.waits > 0,
                         .launch = Nanos(static_cast<int64_t>(std::min(launch_ns, longest)))};
}

// Why a program that was asked for credit is held on the host alone, by its own word; empty: it is
// not, or was not asked.
std::string_view why_not_on_gpu(const ShimSlot& slot) {
  if ((slot.head.features & kShimCredit) == 0) return {};
  switch (slot.credit.held.load(std::memory_order_relaxed)) {
    case ShimHeld::kNoMemoryOperations:
      return "held on the host alone: its driver has no waits for memory";
    case ShimHeld::kNotPinned:
      return "held on the host alone: its driver does not pin memory for them";
    case ShimHeld::kSeveralContexts:
      return "held on the host alone: it has several contexts";
    case ShimHeld::kCollectives:
      return "held on the host alone: it launches collectives";
    case ShimHeld::kNotWatched:
      return "held on the host alone: it could start no thread";
    default:
      return {};
  }
}

}  // namespace

Result<std::unique_ptr<ShimLink>> ShimLink::listen(const std::string& path, const Tenants& tenants,
                                                   const ProcReader& processes, Region& region,
                                                   const Clock& clock) {
  std::unique_ptr<ShimLink> link(new ShimLink(tenants, processes, region, clock));
  auto host = ShimHost::listen(path, [link = link.get()](const ProcessId& process, uid_t uid) {
    return link->decide(process, uid);
  });
  if (!host) return std::unexpected(host.error());
  link->host_ = std::move(*host);
  return link;
}

void ShimLink::set_gpus(std::span<const GpuInfo> gpus, const Config& config) {
  std::vector<SpatialGpu> spatial;
  gpus_.clear();
  features_ = 0;
  takes_turns_ = false;
  for (const GpuInfo& gpu : gpus) {
    const GpuConfig& own = config.gpu(gpu.index);
    const uint32_t features = features_of(own.policy.entry->needs);
    takes_turns_ |= own.policy.entry->needs.turns;
    if (own.is_spatial) {
      const uint32_t of_overlap = own.has_overlap ? kShimGate | kShimPartitions : 0U;
      spatial.push_back({.info = gpu,
                         .features = features | of_overlap,
                         .besides = own.has_credit ? kShimGate | kShimCredit : 0U});
      gpus_.push_back(gpu.index);
    } else {
      features_ |= features | kShimGate;  // by which it says what it launches and waits for
    }
  }
  if (!takes_turns_) awaiting_.clear();
  const bool are_still_there = spatial_.set_gpus(spatial);
  for (const ProcessId& process : host_->processes()) {
    ShimSlot& slot = *host_->find(process);
    if (are_still_there) spatial_.extend(slot, tenant_of(process), came_[process].shown);
    // Whose slot does not fit any more is nobody's to let in.
    if (!are_still_there || !spatial_.fits(slot)) ShimHost::open_gate(slot);
  }
}

ShimRequest ShimLink::decide(const ProcessId& process, uid_t uid) {
  ProcessIdentity identity = identity_of(process, processes_);
  identity.uid = uid;  // as the kernel says
  identity.user = processes_.user_name(uid).value_or("");
  identities_[process] = std::move(identity);
  const uint32_t tenant = tenant_of(process);
  holds_.erase(process);  // it gets a new slot
  awaiting_.erase(process);
  const TenantSettings& settings = tenants_.at(tenant)->settings;
  ShimRequest wish = spatial_.wish(tenant, settings);
  came_[process] = {
      .shown = (wish.features & kShimShown) != 0 ? shown_partition(settings) : LeastPartition{},
      .program = command_signature(identities_[process].command_line, uid)};
  if (wish.features != 0 && mps_ != nullptr) wish.mps_pipe = mps_->pipe_for(process);
  came_[process].may_be_client = !wish.mps_pipe.empty();
  wish.features |= features_;
  if (takes_turns_ && (wish.features & kShimGate) != 0) {
    wish.is_closed = true;  // until it has its first turn
    wish.run_until = 1;
    awaiting_[process] = Time{};
  }
  return wish;
}

uint32_t ShimLink::tenant_of(const ProcessId& process) {
  return tenants_.top_of(tenants_.place_of(identities_[process]));
}

void ShimLink::read(Time now, const Registry& registry) {
  host_->beat(std::max(now, clock_.now()));
  frozen_.clear();
  kept_.clear();
  std::vector<ShimClient> clients;
  for (const ProcessId& process : host_->processes()) {
    ShimSlot* const slot = host_->find(process);
    if (!spatial_.fits(*slot)) continue;
    kept_.insert(process);
    ShimClient& client = clients.emplace_back();
    client.process = process;
    client.tenant = tenant_of(process);
    client.slot = slot;
    client.command_line = identities_[process].command_line;
    client.said = read_slot_of(process, *slot, now);
    client.least = least_of(process, client.tenant);
    client.program = came_[process].program;
    client.is_halted = halted_.contains(process);
    if (Came& came = came_[process]; client.said.launches > 0 && !came.launched)
      came.launched = now;
    const Process* known = registry.find(process);
    if (known == nullptr) continue;
    for (const Holder& holder : known->holders) client.gpus.push_back(holder.gpu);
    if (mps_ != nullptr && came_[process].may_be_client && !client.gpus.empty())
      mps_->note_context(now, process,
                         {.launches = client.said.launches,
                          .waits = client.said.waits > 0,
                          .is_held = is_held(client),
                          .is_done = client.said.is_done});
  }
  if (mps_ != nullptr)
    mps_->note_leaving(now,
                       [&](const ProcessId& process) { return registry.find(process) != nullptr; });
  std::erase_if(identities_,
                [&](const auto& entry) { return host_->find(entry.first) == nullptr; });
  std::erase_if(came_, [&](const auto& entry) { return host_->find(entry.first) == nullptr; });
  std::erase_if(bounds_, [&](const auto& entry) { return host_->find(entry.first) == nullptr; });
  std::erase_if(holds_, [&](const auto& entry) { return host_->find(entry.first) == nullptr; });
  std::erase_if(awaiting_, [&](const auto& entry) { return host_->find(entry.first) == nullptr; });
  halted_.clear();
  spatial_.read(now, std::move(clients));
  for (const Widening::Found& found : spatial_.found_narrow()) {
    const std::string& command = identities_[found.process].command_line;
    if (found.is_stuck)
      log_about(
          found.process.pid, LogLevel::kWarning,
          "process {} ({}): a kernel has not ended for {} s. Its blocks need {} SMs at once, and "
          "its partition has {}: if they wait for each other, it never ends, and the program must "
          "be started again. Its command runs in at least {} SMs from now on, which others share "
          "if they are entitled to them",
          found.process.pid, command,
          std::chrono::duration_cast<std::chrono::seconds>(Widening::kPatience).count(), found.sms,
          found.has_sms, found.sms);
    else
      log_about(
          found.process.pid, LogLevel::kInfo,
          "process {} ({}): a kernel needs {} SMs at once, and runs in the whole GPU where its "
          "partition has fewer",
          found.process.pid, command, found.sms);
  }
}

// What a program was shown when it came holds for as long as it runs.
LeastPartition ShimLink::least_of(const ProcessId& process, uint32_t tenant) const {
  LeastPartition least{.percent = tenants_.at(tenant)->settings.sm_min};
  if (const auto came = came_.find(process); came != came_.end()) {
    least.percent = std::max(least.percent, came->second.shown.percent);
    least.as_share = came->second.shown.as_share;
  }
  return least;
}

SlotReading ShimLink::read_slot_of(const ProcessId& process, const ShimSlot& slot, Time now) {
  SlotBounds& bounds = bounds_[process];
  const bool was_believed = bounds.reason().empty();
  const Time from = std::max(now, clock_.now());
  const SlotReading said = read_slot(slot);
  const Time until = std::max(from, clock_.now());
  SlotReading reading = bounds.check(until, said, until - from);
  if (was_believed && !bounds.reason().empty())
    log_about(process.pid, LogLevel::kWarning, "process {} is not believed for {} s: {}",
              process.pid,
              std::chrono::duration_cast<std::chrono::seconds>(SlotBounds::kDistrust).count(),
              bounds.reason());
  return reading;
}

std::string ShimLink::note(const ProcessId& process) const {
  if (const auto bounds = bounds_.find(process);
      bounds != bounds_.end() && !bounds->second.reason().empty())
    return "not believed: " + std::string(bounds->second.reason());
  if (caps_.is_doubted(process)) return "its server works and it says that it launches nothing";
  if (std::string narrow = spatial_.note(process); !narrow.empty()) return narrow;
  const ShimSlot* const slot = host_->find(process);
  return slot == nullptr ? std::string() : std::string(why_not_on_gpu(*slot));
}

void ShimLink::apply(Time now, uint32_t gpu, const Plan& plan,
                     std::span<const ProcessView> processes) {
  spatial_.apply(now, gpu, plan.partitions);
  for (const Decision& decision : plan.decisions) {
    if (decision.run_until == 0) continue;
    const auto process = std::ranges::find(processes, decision.process, &ProcessView::id);
    if (process == processes.end() || !process->has_shim) continue;
    uint64_t& until = stops_[process->process];  // on two GPUs the sooner one counts
    until = until == 0 ? decision.run_until : std::min(until, decision.run_until);
  }
}

std::optional<SlotReading> ShimLink::look(const ProcessId& process) const {
  const ShimSlot* const slot = host_->find(process);
  return slot == nullptr ? std::nullopt : std::optional(read_slot(*slot));
}

std::optional<TimeHistogram> ShimLink::times(const ProcessId& process) const {
  const ShimSlot* const slot = host_->find(process);
  return slot == nullptr ? std::nullopt : std::optional(read_times(*slot));
}

Time ShimLink::hear(Time now) {
  bool is_due = false, concerns_turns = false;
  Time next = Time::max();
  for (const ProcessId& process : host_->take_wakes(now)) {
    const bool is_of_turns = turns_.is_heard(process);
    concerns_turns |= is_of_turns;
    is_due |= spatial_.lends(process) || (!holds_.contains(process) && !is_of_turns);
  }
  if (concerns_turns) next = settle_turns(now);
  if (!is_due) return next;
  if (woken_ <= now) woken_ = std::max(now, woken_ + kBetweenWakes);
  return std::min(next, woken_);
}

bool ShimLink::has_unheard() const {
  return std::ranges::any_of(holds_,
                             [&](const auto& entry) { return host_->is_unheard(entry.first); });
}

void ShimLink::hold(const ProcessHold& hold) {
  ShimSlot* const slot = host_->find(hold.process);
  if (slot == nullptr) return;
  const bool was_awaited = awaiting_.erase(hold.process) > 0;
  const auto [at, is_new] = holds_.try_emplace(hold.process, hold);
  if (!is_new && !was_awaited && at->second == hold) return;
  at->second = hold;
  settle_boundary(hold.process, *slot);
  settle_gate(hold.process, *slot);
}

// Where launches that are in line wait on the GPU, a closed gate stops a process as a freeze does.
// But it can open that gate itself, so one that a user freezes, or that is not believed, is frozen
// here as well.
bool ShimLink::takes_freeze(const ProcessId& process, FreezeReason reason) {
  if (reason != FreezeReason::kNone) halted_.insert(process);
  if (reason == FreezeReason::kNone || !is_gated(process)) return false;
  if (reason == FreezeReason::kCap) return true;
  const ShimSlot& slot = *host_->find(process);
  if (slot.credit.held.load(std::memory_order_relaxed) != ShimHeld::kOnGpu) return false;
  frozen_.insert(process);
  const auto bounds = bounds_.find(process);
  const bool is_believed = bounds == bounds_.end() || bounds->second.reason().empty();
  return is_believed && reason != FreezeReason::kUser;
}

// Whether its gate is to be closed, for any reason.
bool ShimLink::must_stand(const ProcessId& process) const {
  return is_kept_out(process) || caps_.is_shut(process) || spatial_.is_held(process);
}

bool ShimLink::is_kept_out(const ProcessId& process) const {
  const auto hold = holds_.find(process);
  return (hold != holds_.end() && hold->second.is_gate_closed) || awaiting_.contains(process) ||
         turns_.is_shut(process) || frozen_.contains(process);
}

void ShimLink::settle_gate(const ProcessId& process, ShimSlot& slot) {
  if (must_stand(process))
    ShimHost::close_gate(slot);
  else
    ShimHost::open_gate(slot);
}

// Of a plan's word and a turn's the sooner one counts. One that awaits its first turn has no
// iteration to wait for: any stop lets it wake us when it comes to its gate.
void ShimLink::settle_boundary(const ProcessId& process, ShimSlot& slot) {
  const auto stop = stops_.find(process);
  const auto hold = holds_.find(process);
  uint64_t until = stop == stops_.end() ? 0 : stop->second;
  if (until == 0 && awaiting_.contains(process)) until = 1;
  if (hold != holds_.end() && hold->second.run_until != 0)
    until = until == 0 ? hold->second.run_until : std::min(until, hold->second.run_until);
  // Holds nobody at a boundary, but who comes to stand at its gate wakes us.
  if (until == 0 && spatial_.lends(process)) until = UINT64_MAX;
  if (slot.iterations.run_until.load(std::memory_order_relaxed) != until)
    ShimHost::set_run_until(slot, until);
}

// Who stands at its gate, but works on no GPU that takes turns as far as is known, goes in.
void ShimLink::await_turns(Time now) {
  for (auto at = awaiting_.begin(); at != awaiting_.end();) {
    const ShimSlot* const slot = host_->find(at->first);
    const bool stands = slot != nullptr && slot->waiting.load(std::memory_order_relaxed) != 0;
    if (stands && at->second == Time{}) at->second = now;
    at = stands && now - at->second >= kLongestWait ? awaiting_.erase(at) : std::next(at);
  }
}

Time ShimLink::finish(Time now) {
  await_turns(now);
  const Time next =
      spatial_.finish(now, [this](const ProcessId& process) { return is_kept_out(process); });
  const Time of_caps = enforce_caps(now);  // first: who is shut for its cap is not at work
  const Time caps = std::min(of_caps, take_turns(now));
  for (const ShimClient& client : spatial_.clients()) {
    settle_boundary(client.process, *client.slot);
    settle_gate(client.process, *client.slot);
  }
  stops_.clear();
  return std::min(next, caps);
}

// Only where launches in line wait on the GPU: the host's gate alone would let go on what is
// queued.
Time ShimLink::take_turns(Time now) {
  sharing_.clear();
  for (const ShimClient& client : spatial_.clients()) {
    const std::optional<ShimCaps::OnGpu> on_gpu = on_gpu_of(client);
    if (!on_gpu || !shares_server(now, client.process)) continue;
    const Tenant& tenant = *tenants_.at(client.tenant);
    ShimTurns::Client one{
        .process = client.process,
        .tenant = client.tenant,
        .weight = tenant.settings.weight,
        .priority = tenant.settings.priority,
        .has_target = tenant.settings.slo != Micros{} ||
                      (client.said.iterations && client.said.iterations->slo_us != 0),
        .runs_on = std::min(on_gpu->launch, ShimCaps::kLongestLaunch) / 2};
    look_at_work(now, one);
    for (const uint32_t gpu : shared_gpus_of(client)) {
      const TenantPartition has = spatial_.partition(client.tenant, gpu);
      one.gpu = gpu;
      one.set = has.entitled == 0 ? UINT32_MAX : has.partition;
      sharing_.push_back(one);
    }
  }
  std::erase_if(work_, [&](const auto& entry) { return host_->find(entry.first) == nullptr; });
  const Time next = turns_.step(now, sharing_);
  for (const ShimClient& client : spatial_.clients())
    client.slot->credit.tells.store(turns_.is_heard(client.process) ? 1 : 0,
                                    std::memory_order_relaxed);
  return next;
}

// By its own word. What the host has not seen to end counts while the GPU gets on with it, or
// somebody waits: what was let through last may run for long.
void ShimLink::look_at_work(Time now, ShimTurns::Client& client) {
  const ShimSlot* const slot = host_->find(client.process);
  if (slot == nullptr) return;
  const ShimCredit& credit = slot->credit;
  const uint32_t reached = credit.reached.load(std::memory_order_relaxed);
  const uint64_t launches = launches_of(*slot);
  const auto [at, is_new] = work_.try_emplace(client.process);
  Work& work = at->second;
  const bool was_shut = turns_.is_shut(client.process);
  if (is_new || was_shut || work.launches != launches || work.reached != reached) work.since = now;
  work.launches = launches;
  work.reached = reached;
  const uint32_t run = credit.run.load(std::memory_order_relaxed);
  const bool is_in_line =
      credit.issued.load(std::memory_order_relaxed) != (run == 0 ? reached : run);
  const bool waits = slot->waits.load(std::memory_order_relaxed) > 0 && launches > 0;
  const bool stands = slot->waiting.load(std::memory_order_relaxed) > 0;
  const bool was_lately = now - work.since < kUnsaid + 2 * client.runs_on;
  // One that stands for its cap, for a job's turn or for a freeze keeps nobody waiting, though it
  // may wait for its work all the while.
  const auto hold = holds_.find(client.process);
  const bool is_stopped = halted_.contains(client.process) || caps_.is_shut(client.process) ||
                          (hold != holds_.end() && hold->second.is_gate_closed);
  client.is_at_work = !is_stopped && (stands || waits || (is_in_line && was_lately));
  client.is_busy = client.is_at_work || (!is_stopped && was_lately);
  if (client.is_at_work) {
    const Nanos rested = work.rests_since ? now - *work.rests_since : kLongestRest;
    if (rested < kLongestRest)
      work.rests = work.rests == Nanos::zero() ? rested : (3 * work.rests + rested) / 4;
    work.rests_since.reset();
  } else if (!work.rests_since) {
    work.rests_since = now;
  }
  client.rests = work.rests;
  client.rested = work.rests_since ? now - *work.rests_since : Nanos::zero();
}

// Between two steps, because a process has begun or ended its work. What else the last step has
// found stays.
Time ShimLink::settle_turns(Time now) {
  std::erase_if(sharing_, [&](const auto& one) { return host_->find(one.process) == nullptr; });
  for (ShimTurns::Client& one : sharing_) look_at_work(now, one);
  const Time next = turns_.step(now, sharing_);
  for (const ShimTurns::Client& one : sharing_) settle_gate(one.process, *host_->find(one.process));
  return next;
}

// Who was given the way to our server and has begun to launch is at work on the GPU beside the
// others before the server has been asked for its clients.
bool ShimLink::shares_server(Time now, const ProcessId& process) const {
  if (is_gated(process)) return true;
  const auto came = came_.find(process);
  return came != came_.end() && came->second.may_be_client && came->second.launched &&
         now - *came->second.launched < kToBeNamed;
}

// Those that are shared spatially. A client whose context nobody has seen yet may be on any.
std::vector<uint32_t> ShimLink::shared_gpus_of(const ShimClient& client) const {
  if (client.gpus.empty()) return gpus_;
  std::vector<uint32_t> shared = client.gpus;
  std::erase_if(shared, [&](uint32_t gpu) { return std::ranges::find(gpus_, gpu) == gpus_.end(); });
  return shared;
}

Time ShimLink::enforce_caps(Time now) {
  std::vector<ShimCaps::Client> gated;
  for (const ShimClient& client : spatial_.clients()) {
    if (!is_gated(client.process)) continue;
    gated.push_back({.process = client.process,
                     .tenant = client.tenant,
                     .gpus = shared_gpus_of(client),
                     .launches = client.said.launches,
                     .on_gpu = on_gpu_of(client)});
  }
  const auto find = [&](uint32_t tenant, uint32_t gpu) {
    std::optional<ShimCaps::Budget> budget;
    if (gpu >= kMaxGpus) return budget;
    TokenBucket& bucket = region_.tenants[tenant].buckets[gpu];
    const std::optional<CapView> cap = cap_view(tenants_, tenant, gpu, region_);
    if (cap && bucket.is_enabled()) budget = {.cap = *cap, .bucket = &bucket};
    return budget;
  };
  const Time next = caps_.step(now, gated, find, server_use_);
  server_use_.fill(Nanos{});
  return next;
}

}  // namespace gpushare
