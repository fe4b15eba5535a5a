// SPDX-License-Identifier: Apache-2.0
// What launches need of their partition: the SMs on which all of their blocks are at once. Blocks
// may wait for each other, and then a kernel never ends where some of them do not get on the GPU.
// Nothing shows beforehand that a kernel does so, and nothing can end it; so what may still run is
// said in the slot (ShimNeeds), and the agent widens the partition of a program that does not get
// on, for later. Any thread of the program; where streams move, and for launches in a partition.
#pragma once

#include <atomic>
#include <cstdint>

#include "intercept/shim/calls/waits.h"
#include "intercept/shim/driver/table.h"
#include "intercept/shim/link/attach.h"
#include "intercept/shim/link/hash.h"

namespace gpushare::shim {

struct Grid {
  CUfunction function = nullptr;
  uint64_t blocks = 0;  // 0: the launch is no kernel, or names none
  uint32_t threads = 0;
  uint32_t shared_bytes = 0;
};

// Of the arguments of a launch.
template <class... Rest>
Grid grid_of(const Rest&...) {
  return {};
}
template <class... Rest>
Grid grid_of(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads_x,
             unsigned threads_y, unsigned threads_z, unsigned shared_bytes, CUstream,
             const Rest&...) {
  return {function, uint64_t{x} * y * z, threads_x * threads_y * threads_z, shared_bytes};
}
template <class... Rest>
Grid grid_of(const CUlaunchConfig* config, CUfunction function, const Rest&...) {
  return {function, uint64_t{config->gridDimX} * config->gridDimY * config->gridDimZ,
          config->blockDimX * config->blockDimY * config->blockDimZ, config->sharedMemBytes};
}

// Returns true for the refusal of a launch whose blocks must all be there at once.
constexpr bool is_cooperative_too_large(CUresult result) {
  constexpr unsigned kCooperativeLaunchTooLarge = 720;
  return result == kCooperativeLaunchTooLarge;
}

// The same, and for what else may be refused in a partition only: clusters of blocks do not run in
// every group of SMs.
constexpr bool is_too_large(CUresult result) {
  constexpr unsigned kInvalidClusterSize = 912;
  return result == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES || result == kInvalidClusterSize ||
         is_cooperative_too_large(result);
}

// How many blocks of a function an SM takes, of which the driver was asked once: programs launch
// few functions with many numbers of blocks. Zero bytes know nothing.
class KnownGrids {
 public:
  // How many SMs all blocks of a grid need at once. 0: it is not known, or the whole GPU has not as
  // many. The driver may load a function when it is asked, so `may_ask` is false during a capture.
  [[gnu::always_inline]] inline uint32_t sms_of(const Grid& grid, bool may_ask) {
    Entry& entry = entries_[place_of(grid)];
    if (__builtin_expect(entry.function.load(std::memory_order_relaxed) != grid.function ||
                             entry.shape.load(std::memory_order_relaxed) != shape_of(grid),
                         0)) {
      if (!may_ask) return 0;
      ask(entry, grid);
    }
    const uint32_t blocks = entry.blocks_of_sm.load(std::memory_order_relaxed);
    const uint32_t all = entry.all_sms.load(std::memory_order_relaxed);
    if (blocks == 0 || grid.blocks > uint64_t{blocks} * all) return 0;
    return (static_cast<uint32_t>(grid.blocks) + blocks - 1) / blocks;
  }

 private:
  static constexpr uint32_t kEntries = 1024;
  // Two threads that write one entry may leave what belongs to two functions. Then a launch counts
  // for too much or too little, until another one has the entry.
  struct Entry {
    std::atomic<CUfunction> function;
    std::atomic<uint64_t> shape;
    std::atomic<uint32_t> blocks_of_sm, all_sms;
  };

  static uint64_t shape_of(const Grid& grid) {
    return uint64_t{grid.threads} << 32 | grid.shared_bytes;
  }
  static uint32_t place_of(const Grid& grid) {
    return place_in_table<kEntries>(reinterpret_cast<uintptr_t>(grid.function) + shape_of(grid));
  }
  static void ask(Entry& entry, const Grid& grid);

  Entry entries_[kEntries];
};

extern KnownGrids known_grids;
// The most that any launch needed which a graph of this process may repeat.
extern std::atomic<uint32_t> captured_sms;

// The thread has launched what needs so many SMs of this GPU, by its entry of ShimSlot::gpus.
[[gnu::always_inline]] inline void say_need(int gpu, uint32_t sms) {
  uint32_t& own = detail::own_waits.sms[gpu];
  if (__builtin_expect(sms > own, 0)) own = sms;
  raise(slot().needs[gpu].at_once_sms, sms);
}

// A launch in a partition of this GPU may run from now on.
[[gnu::always_inline]] inline void note_blocks(const Grid& grid, int gpu, bool is_capturing) {
  if (grid.blocks == 0 || gpu < 0) return;
  const uint32_t sms = known_grids.sms_of(grid, !is_capturing);
  if (is_capturing) return raise(captured_sms, sms);
  say_need(gpu, sms);
}

// The same for a graph.
inline void note_graph(int gpu) {
  const uint32_t sms = captured_sms.load(std::memory_order_relaxed);
  if (gpu >= 0 && sms != 0) say_need(gpu, sms);
}

// The driver has refused a cooperative launch as too large for the partition. It is to run in the
// whole GPU.
void note_refused(const Grid& grid, int gpu);

// The host has seen some work of this thread end, and the thread is not counted as waiting any
// more. What other threads wait for stays said: the agent asks for nothing else. Who has launched
// and does not wait yet says it again when it does (begin_wait()). That counts first and looks
// then, and this takes back first and counts then, so that one of the two sees the other.
inline void note_end() {
  for (uint32_t& own : detail::own_waits.sms) own = 0;
  ShimSlot& mine = slot();
  for (ShimNeeds& one : mine.needs) {
    if (one.at_once_sms.load(std::memory_order_relaxed) == 0) continue;
    if (mine.waits.load(std::memory_order_relaxed) != 0) return;
    const uint32_t taken = one.at_once_sms.exchange(0, std::memory_order_seq_cst);
    if (mine.waits.load(std::memory_order_seq_cst) != 0) raise(one.at_once_sms, taken);
  }
}

}  // namespace gpushare::shim
