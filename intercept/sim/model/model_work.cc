// SPDX-License-Identifier: Apache-2.0
// The queues of Model: how work is submitted, begins, stops and ends. See model.h.
#include <algorithm>
#include <cerrno>

#include "intercept/sim/model/model_state.h"

namespace gpushare::sim {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr uint64_t kMaxAmount = uint64_t{1} << 60;
// Of the driver's own work: this bit of its sequence, and its queue.
constexpr uint64_t kOwnWork = uint64_t{1} << 63;
constexpr uint32_t kOwnQueue = UINT32_MAX;

bool is_well_formed(const Work& work) {
  if (work.sequence == 0) return false;
  if (work.set_ppm > 1'000'000 || (work.set_ppm != 0 && work.sm_ppm > work.set_ppm)) return false;
  switch (work.kind) {
    case WorkKind::kKernel:
      return work.sm_ppm >= 1 && work.sm_ppm <= 1'000'000 && work.amount <= kMaxAmount;
    case WorkKind::kEndless:
      return work.sm_ppm >= 1 && work.sm_ppm <= 1'000'000;
    case WorkKind::kCollective:
      return work.sm_ppm >= 1 && work.sm_ppm <= 1'000'000 && work.amount <= kMaxAmount &&
             work.ranks >= 2 && work.ranks <= kMaxRanks && work.communicator != 0;
    case WorkKind::kCopy:
      return work.direction >= Direction::kHostToDevice &&
             work.direction <= Direction::kDeviceToDevice && work.amount <= kMaxAmount;
    case WorkKind::kMarker:
    case WorkKind::kWait:
    case WorkKind::kGate:
      return true;
  }
  return false;
}

}  // namespace

EngineModel& Model::engine(const Group& group) {
  return group.context->device->engines[group.kind];
}

void Model::submit(uint32_t client, const Work& work) {
  Client* owner = find_client(client);
  Context* context = find_context(client, work.context);
  if (context == nullptr || !is_well_formed(work) || owner->work.contains(work.sequence)) {
    if (owner != nullptr)
      outbox_.emplace_back(client,
                           Completion{work.sequence, stored_ns(now_), stored_ns(now_), EINVAL, 0});
    return deliver();
  }
  Queue& queue = context->queues[work.queue];
  queue.context = context;
  auto item = std::make_unique<Item>();
  item->work = work;
  item->queue = &queue;
  item->member = context->member;
  item->is_from_idle = queue.items.empty();
  if (work.kind == WorkKind::kCopy) {
    const double rate = work.direction == Direction::kDeviceToDevice
                            ? parameters_.device_copy_bytes_per_ns
                            : parameters_.host_copy_bytes_per_ns;
    item->left_ns = static_cast<double>(work.amount) / rate;
    item->channel =
        &context->groups[static_cast<size_t>(work.direction)].channels[work.queue % kCopyChannels];
  } else if (work.kind == WorkKind::kKernel || work.kind == WorkKind::kEndless ||
             work.kind == WorkKind::kCollective) {
    item->left_ns = work.kind == WorkKind::kEndless ? kForever : static_cast<double>(work.amount);
    item->weight = work.sm_ppm / 1e6;
    item->groups = work.set_ppm == 0 ? 0 : work.sm_groups;
    item->set = item->groups == 0 ? 1 : static_cast<double>(work.set_ppm) / 1e6;
    item->channel = &context->groups[0].channels[work.queue % kGraphicsChannels];
  }
  if (work.kind == WorkKind::kCollective) join_meeting(*context, *item);
  owner->work.emplace(work.sequence, item.get());
  queue.items.push_back(std::move(item));
  pumps_.push_back(&queue);
  run_pumps();
  deliver();
}

void Model::touch(uint32_t client, uint32_t context, Nanos work) {
  if (find_context(client, context) == nullptr) return;
  submit(client, {kOwnWork | next_touch_++, context, kOwnQueue, WorkKind::kKernel, Direction::kNone,
                  static_cast<uint64_t>(work.count()), 1'000'000, 0, 0});
}

// The kernel sees the stop only while it runs, as a real kernel that polls a flag.
void Model::stop(uint32_t client, uint64_t sequence) {
  Client* owner = find_client(client);
  if (owner == nullptr) return;
  const auto found = owner->work.find(sequence);
  if (found == owner->work.end()) return;
  Item& item = *found->second;
  Queue& queue = *item.queue;
  const bool has_begun = queue.has_begun && queue.items.front().get() == &item;
  if (item.work.kind == WorkKind::kEndless) {
    if (has_begun) {
      engine(*item.channel->group).end_soon(item, now_);
    } else {
      item.left_ns = 0;
    }
  } else if (item.work.kind == WorkKind::kGate) {
    if (has_begun) {
      finish(item, 0);
    } else {
      item.work.kind = WorkKind::kMarker;  // the gate is open before it is reached
    }
  }
  run_pumps();
  deliver();
}

ProgressReply Model::progress(uint32_t client, uint64_t sequence) const {
  ProgressReply reply{};
  reply.now_ns = stored_ns(now_);
  const Client* owner = find_client(client);
  if (owner == nullptr) return reply;
  const auto found = owner->work.find(sequence);
  if (found == owner->work.end()) return reply;
  const Item& item = *found->second;
  double executed = item.executed_ns;
  if (item.channel != nullptr)
    executed = item.channel->group->context->device->engines[item.channel->group->kind].executed(
        item, now_);
  reply.state = executed > 0 ? WorkState::kRunning : WorkState::kQueued;
  reply.executed_ns = static_cast<uint64_t>(executed);
  return reply;
}

// --- queues -----------------------------------------------------------------------------------

void Model::run_pumps() {
  while (!pumps_.empty()) {
    Queue& queue = *pumps_.front();
    pumps_.pop_front();
    while (!queue.items.empty() && !queue.has_begun)
      if (!begin(queue, *queue.items.front())) break;
  }
  look_at_meetings();
}

// Begins the queue's first item. True when it ended at once and the next one can be examined.
bool Model::begin(Queue& queue, Item& item) {
  switch (item.work.kind) {
    case WorkKind::kMarker:
      finish(item, 0);
      return true;
    case WorkKind::kWait: {
      Client& client = *queue.context->client;
      if (item.work.amount == item.work.sequence || !client.work.contains(item.work.amount)) {
        finish(item, 0);
        return true;
      }
      client.waiters.emplace(item.work.amount, &queue);
      queue.has_begun = true;
      return false;
    }
    case WorkKind::kGate:
      queue.has_begun = true;
      return false;
    case WorkKind::kKernel:
    case WorkKind::kEndless:
    case WorkKind::kCollective:
    case WorkKind::kCopy:
      if (item.channel->freezes > 0) return false;
      item.channel->has_worked = true;
      engine(*item.channel->group).start(item.channel->group->entry, item, now_);
      queue.has_begun = true;
      return false;
  }
  return false;
}

// Requires that the item is the first of its queue and not on an engine any more.
void Model::finish(Item& item, uint32_t status) {
  Queue& queue = *item.queue;
  Client& client = *queue.context->client;
  const Time started = item.has_started ? item.started : now_;
  if ((item.work.sequence & kOwnWork) == 0)
    outbox_.emplace_back(client.handle, Completion{item.work.sequence, stored_ns(started),
                                                   stored_ns(now_), status, 0});
  const uint64_t sequence = item.work.sequence;
  leave_meeting(item);
  client.work.erase(sequence);
  queue.items.pop_front();
  queue.has_begun = false;
  pumps_.push_back(&queue);
  release_waiters(client, sequence);
}

void Model::release_waiters(Client& client, uint64_t sequence) {
  const auto [first, last] = client.waiters.equal_range(sequence);
  for (auto each = first; each != last; ++each) {
    each->second->has_begun = false;
    pumps_.push_back(each->second);
  }
  client.waiters.erase(first, last);
}

void Model::drop_work(Queue& queue) {
  Client& client = *queue.context->client;
  if (queue.has_begun) {
    Item& first = *queue.items.front();
    if (first.channel != nullptr)
      engine(*first.channel->group).withdraw(first.channel->group->entry, first, now_);
  }
  for (const auto& item : queue.items) {
    leave_meeting(*item);
    client.work.erase(item->work.sequence);
    release_waiters(client, item->work.sequence);
  }
  queue.items.clear();
  queue.has_begun = false;
}

void Model::deliver() {
  if (is_delivering_) return;  // the outer call delivers what a sink adds
  is_delivering_ = true;
  while (!outbox_.empty()) {
    const auto [client, completion] = outbox_.front();
    outbox_.pop_front();
    if (completion_sink_) completion_sink_(client, completion);
  }
  is_delivering_ = false;
}

}  // namespace gpushare::sim
