// SPDX-License-Identifier: Apache-2.0
// One GPU as the program sees it: the partitions that this process has made on it, the partition
// that the agent wants, and what is known of the streams of its primary context. Any thread; the
// members behind `lock` are protected by it.
#pragma once

#include <atomic>
#include <cstdint>

#include "intercept/shim/streams/drain.h"
#include "intercept/shim/streams/stream.h"
#include "shmctl/shim/slot.h"

namespace gpushare::shim {

// Why a launch of a device has more to do than to look at its stream's place.
enum Concern : uint32_t {
  kStreamLacks = 1,   // some stream that is used has no stand-in in the target
  kStreamLate = 2,    // some stream, or work of it, is elsewhere than in the target
  kMilestoneDue = 4,  // the next launch puts a milestone into its stream
  kAtHome = 8,        // launches are at home although a partition is wanted
};

struct alignas(64) Device {
  static constexpr int kSpares = 4;

  std::atomic<CUcontext> primary;  // null: the program has not retained it
  CUdevice ordinal;
  uint32_t retains;                // by the program; protected by `lock`
  std::atomic<int> gpu;            // index into ShimSlot::gpus; -1: the agent does not share it
  std::atomic<uint64_t> followed;  // the value of ShimGpu::wanted that `target` was made from
  std::atomic<Partitions::Place> target;  // where launches take their streams
  std::atomic<uint32_t> concerns;         // Concern
  // Something is in the way of what the agent wants. Launches try again at that time, or when the
  // agent wants something else, or contexts of the program's own have come or gone. 0: nothing is.
  std::atomic<uint64_t> hindered_until_ns, hindered_wanted;
  std::atomic<int> hindered_contexts;
  std::atomic<uint32_t> away;         // streams that are not at home, or about to leave it
  std::atomic<uint32_t> own_streams;  // threads' own default streams; never falls
  std::atomic<Stream*> own;           // a list of them; it never shrinks
  // A blocking stream was destroyed with work that the legacy stream has not waited for. That work
  // is in line at home, so the home of the legacy stream waits for it.
  std::atomic<bool> has_left_work;
  std::atomic<uint32_t> ending;  // streams that are being destroyed, and not noted in `left` yet
  std::atomic<uint32_t> inhabitants[1 + Partitions::kMost];  // streams, by place; [0] is not kept
  std::atomic<uint32_t> captured;     // bit n: a graph may hold kernels of the n-th partition
  std::atomic<uint32_t> captures_at;  // 1 + the place where graphs are captured; 0: none was yet
  // Of ShimSoon: the partitions that were made for all streams or cannot be. An announcement that
  // differs from its entry here is looked at.
  std::atomic<uint64_t> prepared[kShimSoon];
  // A graph was launched in a stream that was away. As in Stream, of streams that have ended or
  // captured since: `left` waits for them.
  std::atomic<bool> has_graphs;
  std::atomic<uint32_t> left_graphs, left_graphs_seen;
  // A list of all blocking streams that are dirty, and others; protected by `listing`.
  Stream* dirty;
  SpinLock listing;
  Milestones milestones;
  // Held while the legacy stream collects the dirty streams, and while a capture begins.
  SpinLock gathering;
  SpinLock lock;
  Partitions partitions;     // protected by `lock`, like all that follows, but for `legacy`
  const ShimSlot* found_in;  // in which `gpu` is an index; null: it was not looked for yet
  uint64_t next_try_ns;      // when to look again whether a partition can make room
  uint64_t idle_since_ns[1 + Partitions::kMost];  // by place; 0: it was not idle at the last look
  Stream* next_heirloom;    // of `own`: which may be looked at next; null: the first
  Drain drain;              // of launches that wait for a partition
  Drain lacking;            // of those that wait for a stand-in in one that is there
  uint64_t next_settle_ns;  // when to look again whether all streams have arrived
  // By place: streams that wait there for a stream of the program that has no stand-in yet.
  CUstream spares[1 + Partitions::kMost][kSpares];
  // Attempts to make what was announced that failed in a row, and when to try again.
  uint64_t soon_after_ns;
  uint32_t soon_tries;
  CUstream left;  // ours; waits for the work of destroyed streams; null: there was none
  // By place: recorded in `left` behind the last such work that may run there; null: none was. And
  // bit n: it is to be asked for the n-th place.
  CUevent left_at[1 + Partitions::kMost];
  uint32_t left_places;
  Stream legacy;
};

}  // namespace gpushare::shim
