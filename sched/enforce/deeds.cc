// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/deeds.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace gpushare {
namespace {

using IsMoot = std::function<bool(const ControlKey&)>;

void add_refs(const FreezeDeed::Part& part, std::vector<ChannelRef>& to) {
  for (const auto& [channel, serial] : part.channels) to.push_back({part.ref.client, channel});
}

std::vector<ChannelRef> refs_of(const FreezeDeed& deed) {
  std::vector<ChannelRef> channels;
  for (const FreezeDeed::Part& part : deed.parts) add_refs(part, channels);
  return channels;
}

// After a freeze that failed, of channels that were not frozen before: it may have frozen a part,
// and a second freeze would need a second thaw.
bool is_thawed(Gpu& gpu, uint32_t index, std::span<const ChannelRef> channels) {
  const Result<> thawed = channels.empty() ? Result<>() : gpu.thaw(index, channels);
  return thawed || is_gone(thawed.error());
}

std::unexpected<Error> has_gone() {
  return make_error(std::errc::no_such_process, "freeze channels");
}

// The driver refuses a list in which a channel is gone. A process that frees channels all the time,
// or whose freeing of one was not seen, must be frozen all the same.
Result<> freeze_each(Gpu& gpu, uint32_t index, FreezeDeed& deed, const IsMoot& is_moot) {
  bool has_frozen = false;
  std::optional<Error> refusal;
  for (FreezeDeed::Part& part : deed.parts) {
    std::erase_if(part.channels, [&](const auto& one) {
      if (refusal || is_moot(deed.key)) return false;
      const ChannelRef ref{part.ref.client, one.first};
      const Result<> frozen = gpu.freeze(index, std::span(&ref, 1));
      has_frozen |= frozen.has_value();
      if (frozen) return false;
      if (!is_gone(frozen.error())) {
        refusal = frozen.error();
        return false;
      }
      part.gone.push_back(one.first);
      return true;
    });
  }
  if (refusal) return std::unexpected(*refusal);
  if (has_frozen && !is_moot(deed.key)) return {};
  return has_gone();
}

}  // namespace

void FreezeDeed::fail_as_gone(Time now) {
  result = has_gone();
  for (Part& part : parts) part.is_taken_back = true;
  at = now;
}

void carry_out(Gpu& gpu, uint32_t index, std::span<FreezeDeed> freezes, const Clock& clock,
               const IsMoot& is_moot) {
  std::vector<ChannelRef> channels;
  for (const FreezeDeed& deed : freezes)
    for (const FreezeDeed::Part& part : deed.parts) add_refs(part, channels);
  const Result<> together = channels.empty() ? Result<>() : gpu.freeze(index, channels);
  const bool may_retry = !together && is_thawed(gpu, index, channels);
  for (FreezeDeed& deed : freezes) {
    if (may_retry && is_moot(deed.key)) {
      deed.fail_as_gone(clock.now());
      continue;
    }
    deed.result = together;
    const std::vector<ChannelRef> own = refs_of(deed);
    if (may_retry && freezes.size() > 1)
      deed.result = own.empty() ? Result<>() : gpu.freeze(index, own);
    if (may_retry && !deed.result && is_gone(deed.result.error()) && is_thawed(gpu, index, own))
      deed.result = freeze_each(gpu, index, deed, is_moot);
    deed.at = clock.now();
    if (deed.result) continue;
    for (FreezeDeed::Part& part : deed.parts) {
      std::vector<ChannelRef> list;
      add_refs(part, list);
      part.is_taken_back = is_thawed(gpu, index, list);
    }
  }
}

Result<> thaw(Gpu& gpu, uint32_t index, const ThawRounds& rounds, std::size_t first) {
  Result<> all;
  for (std::size_t i = first; i < rounds.size(); ++i)
    if (Result<> thawed = gpu.thaw(index, rounds[i]); all && !has_undone(thawed))
      all = std::move(thawed);
  return all;
}

void carry_out(Gpu& gpu, uint32_t index, std::span<ThawDeed> thaws, const Clock& clock) {
  std::vector<ChannelRef> channels;
  for (const ThawDeed& deed : thaws)
    if (!deed.rounds.empty())
      channels.insert(channels.end(), deed.rounds[0].begin(), deed.rounds[0].end());
  const Result<> together = channels.empty() ? Result<>() : gpu.thaw(index, channels);
  for (ThawDeed& deed : thaws) {
    deed.result = together;
    // Thawing again what the failed call had thawed does no harm.
    if (!together && thaws.size() > 1)
      deed.result = deed.rounds.empty() ? Result<>() : gpu.thaw(index, deed.rounds[0]);
    if (const Result<> more = thaw(gpu, index, deed.rounds, 1); !more) deed.result = more;
    deed.at = clock.now();
  }
}

void Switches::add(Switches more) {
  std::ranges::move(more.freezes, std::back_inserter(freezes));
  std::ranges::move(more.thaws, std::back_inserter(thaws));
  order = std::max(order, more.order);
}

void carry_out(Gpu& gpu, uint32_t index, Switches& switches, const Clock& clock,
               const IsMoot& is_moot) {
  const bool is_thaw_last = switches.order == SwitchOrder::kFreezesFirst;
  const auto thaw = [&] {
    if (!switches.thaws.empty()) carry_out(gpu, index, std::span(switches.thaws), clock);
  };
  if (!is_thaw_last) thaw();
  if (!switches.freezes.empty()) carry_out(gpu, index, std::span(switches.freezes), clock, is_moot);
  if (is_thaw_last) thaw();
}

}  // namespace gpushare
