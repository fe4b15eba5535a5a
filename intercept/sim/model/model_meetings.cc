// SPDX-License-Identifier: Apache-2.0
// The collective operations of Model: which kernels meet, and whether they get on. See model.h.
//
// An engine computes the progress of its jobs from what it knows itself; whether a collective gets
// on depends on several engines. So before that changes, all engines of its kernels are made to
// account for the time until then.
#include <algorithm>

#include "intercept/sim/model/model_state.h"

namespace gpushare::sim {

void Model::join_meeting(Context& context, Item& item) {
  const uint64_t number = context.collectives[item.work.communicator]++;
  Meeting& meeting = meetings_[{item.work.communicator, number}];
  if (meeting.state == nullptr) {
    meeting.state = std::make_shared<Collective>();
    meeting.state->ranks = item.work.ranks;
  }
  ++meeting.state->came;
  meeting.items.push_back(&item);
  item.collective = meeting.state;
  item.meeting = number;
}

// Who ends has done its part, and the others go on; who dies leaves them spinning for ever, as it
// does on a GPU.
void Model::leave_meeting(const Item& item) {
  if (item.collective == nullptr) return;
  const auto found = meetings_.find({item.work.communicator, item.meeting});
  if (found == meetings_.end()) return;
  Meeting& meeting = found->second;
  std::erase(meeting.items, &item);
  const bool has_ended = item.collective->runs;
  if (!has_ended) meeting.state->ranks = kNobodyComes;
  if (meeting.items.empty() && (has_ended || meeting.state->came >= item.work.ranks))
    meetings_.erase(found);
}

void Model::look_at_meetings() {
  for (auto& [key, meeting] : meetings_) {
    const bool runs = meeting.state->came == meeting.state->ranks &&
                      std::ranges::all_of(meeting.items, [&](const Item* item) {
                        const Group& group = *item->channel->group;
                        return item->queue->items.front().get() == item && item->queue->has_begun &&
                               engine(group).is_active(group.entry, *item, now_);
                      });
    if (runs == meeting.state->runs) continue;
    for (const Item* item : meeting.items) engine(*item->channel->group).settle(now_);
    meeting.state->runs = runs;
  }
}

// None that spins can go on before an engine changes what it runs, and then takes what is left.
Time Model::quiet_meetings_until() const {
  Time change = Time::max();
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [key, meeting] : meetings_) {
    if (meeting.state->runs || meeting.state->came != meeting.state->ranks) continue;
    for (const Item* item : meeting.items) least = std::min(least, item->left_ns);
  }
  if (least > 9e17) return Time::max();
  for (const auto& device : devices_) change = std::min(change, device->engines[0].next());
  return change > Time::max() - std::chrono::hours(24 * 365)
             ? change
             : change + Nanos(static_cast<int64_t>(least));
}

}  // namespace gpushare::sim
