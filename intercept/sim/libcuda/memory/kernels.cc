// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/libcuda/memory/kernels.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>

#include "intercept/cuda/kernel_math.h"

namespace gpushare::standin {
namespace {

using kernels::Affine;
using kernels::kRoundsPerUnit;

constexpr double kClockGhz = 1.98;
constexpr uint64_t kSchedulersPerSm = 4;
constexpr uint64_t kWarpsPerSm = 64;
constexpr uint64_t kCyclesPerIssue = 2;
constexpr uint64_t kCyclesToResult = 4;

uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// The time of so many rounds in every thread. Blocks that do not fit at once run in further waves
// of equal length.
uint64_t rounds_ns(const KernelLaunch& launch, uint64_t rounds) {
  const uint64_t warps_per_block = std::max<uint64_t>(divide_up(launch.threads_per_block, 32), 1);
  const uint64_t blocks_per_sm = divide_up(launch.blocks, launch.sm_count);
  const uint64_t resident =
      std::min(blocks_per_sm, std::max<uint64_t>(kWarpsPerSm / warps_per_block, 1));
  const uint64_t warps_per_scheduler = divide_up(resident * warps_per_block, kSchedulersPerSm);
  const uint64_t cycles = std::max(kCyclesToResult, kCyclesPerIssue * warps_per_scheduler);
  const uint64_t waves = divide_up(blocks_per_sm, resident);
  return static_cast<uint64_t>(static_cast<double>(waves * rounds * cycles) / kClockGhz);
}

uint64_t stream_ns(uint64_t bytes) {
  return kKernelOverheadNs + static_cast<uint64_t>(static_cast<double>(bytes) / kMemoryBytesPerNs);
}

uint32_t low(uint64_t argument) { return static_cast<uint32_t>(argument); }

// A kernel with one thread for each element handles no more elements than it has threads.
uint32_t elements(const KernelLaunch& launch, size_t count_argument) {
  return low(std::min<uint64_t>(low(launch.arguments[count_argument]),
                                launch.blocks * launch.threads_per_block));
}

uint64_t empty_cost(const KernelLaunch&) { return kKernelOverheadNs; }

// gs_spin(out, seed, units, mul, add, back_mul, back_add)
constexpr std::array<uint8_t, 7> kSpinParameters{8, 4, 4, 4, 4, 4, 4};

uint64_t spin_cost(const KernelLaunch& launch) {
  return kKernelOverheadNs + rounds_ns(launch, uint64_t{low(launch.arguments[2])} * kRoundsPerUnit);
}

bool spin_run(const KernelLaunch& launch, const MemoryMap& memory) {
  const auto& a = launch.arguments;
  auto* out = memory.resolve<uint32_t>(a[0]);
  if (out == nullptr) return false;
  const Affine round{low(a[3]), low(a[4])}, back{low(a[5]), low(a[6])};
  const Affine all = round.times(uint64_t{low(a[2])} * kRoundsPerUnit).then(back);
  const uint64_t threads = launch.blocks * launch.threads_per_block;
  *out += all.of_sum(kernels::sum_of_starts(low(a[1]), 0, threads), low(threads));
  return true;
}

// gs_endless(progress, stop, out, seed, units, mul, add)
constexpr std::array<uint8_t, 7> kEndlessParameters{8, 8, 8, 4, 4, 4, 4};

uint64_t endless_cost(const KernelLaunch& launch) {
  return std::max<uint64_t>(rounds_ns(launch, uint64_t{low(launch.arguments[4])} * kRoundsPerUnit),
                            1);
}

// Adds what every block adds at its end, by the turns that it counted.
bool endless_run(const KernelLaunch& launch, const MemoryMap& memory) {
  const auto& a = launch.arguments;
  const auto* turns = memory.resolve<uint64_t>(a[0], launch.blocks);
  auto* out = memory.resolve<uint32_t>(a[2], launch.blocks);
  if (turns == nullptr || out == nullptr) return false;
  const Affine round{low(a[5]), low(a[6])};
  const uint64_t threads = launch.threads_per_block;
  for (uint64_t block = 0; block < launch.blocks; ++block) {
    const Affine all = round.times(turns[block] * low(a[4]) * kRoundsPerUnit);
    out[block] +=
        all.of_sum(kernels::sum_of_starts(low(a[3]), block * threads, threads), low(threads));
  }
  return true;
}

// gs_fill(buffer, count, seed)
constexpr std::array<uint8_t, 3> kFillParameters{8, 4, 4};

uint64_t fill_cost(const KernelLaunch& launch) { return stream_ns(4ull * elements(launch, 1)); }

bool fill_run(const KernelLaunch& launch, const MemoryMap& memory) {
  const uint32_t count = elements(launch, 1);
  auto* buffer = memory.resolve<uint32_t>(launch.arguments[0], count);
  if (buffer == nullptr) return false;
  for (uint32_t i = 0; i < count; ++i) buffer[i] = kernels::fill_value(low(launch.arguments[2]), i);
  return true;
}

// gs_mix(to, from, count, shift)
constexpr std::array<uint8_t, 4> kMixParameters{8, 8, 4, 4};

uint64_t mix_cost(const KernelLaunch& launch) { return stream_ns(12ull * elements(launch, 2)); }

bool mix_run(const KernelLaunch& launch, const MemoryMap& memory) {
  const auto& a = launch.arguments;
  const uint32_t count = elements(launch, 2), length = low(a[2]), shift = low(a[3]);
  auto* to = memory.resolve<uint32_t>(a[0], count);
  const auto* from = memory.resolve<uint32_t>(a[1], length);
  if (to == nullptr || from == nullptr || shift >= length) return false;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t j = uint64_t{i} + shift;
    to[i] = kernels::mix_value(to[i], from[j >= length ? j - length : j]);
  }
  return true;
}

// gs_fold(buffer, count, out)
constexpr std::array<uint8_t, 3> kFoldParameters{8, 4, 8};

uint64_t fold_cost(const KernelLaunch& launch) { return stream_ns(4ull * elements(launch, 1)); }

bool fold_run(const KernelLaunch& launch, const MemoryMap& memory) {
  const uint32_t count = elements(launch, 1);
  const auto* buffer = memory.resolve<uint32_t>(launch.arguments[0], count);
  auto* out = memory.resolve<uint32_t>(launch.arguments[2]);
  if (buffer == nullptr || out == nullptr) return false;
  for (uint32_t i = 0; i < count; ++i) *out += kernels::fold_value(buffer[i], i);
  return true;
}

// gs_stamp(base, stride_bytes, count, value)
constexpr std::array<uint8_t, 4> kStampParameters{8, 8, 4, 4};
constexpr uint64_t kSectorBytes = 32;

uint64_t stamp_cost(const KernelLaunch& launch) {
  return stream_ns(kSectorBytes * elements(launch, 2));
}

// The word at the begin of stride i, or null when the kernel may not touch it.
uint32_t* stamped_word(const KernelLaunch& launch, const MemoryMap& memory, uint32_t i) {
  return memory.resolve<uint32_t>(launch.arguments[0] + i * launch.arguments[1]);
}

bool stamp_run(const KernelLaunch& launch, const MemoryMap& memory) {
  for (uint32_t i = 0; i < elements(launch, 2); ++i) {
    uint32_t* word = stamped_word(launch, memory, i);
    if (word == nullptr) return false;
    *word = low(launch.arguments[3]) + i;
  }
  return true;
}

// gs_stamps(base, stride_bytes, count, out)
constexpr std::array<uint8_t, 4> kStampsParameters{8, 8, 4, 8};

bool stamps_run(const KernelLaunch& launch, const MemoryMap& memory) {
  auto* out = memory.resolve<uint32_t>(launch.arguments[3]);
  if (out == nullptr) return false;
  for (uint32_t i = 0; i < elements(launch, 2); ++i) {
    const uint32_t* word = stamped_word(launch, memory, i);
    if (word == nullptr) return false;
    *out += kernels::fold_value(*word, i);
  }
  return true;
}

// gs_sms(out, units)
constexpr std::array<uint8_t, 2> kSmsParameters{8, 4};

uint64_t sms_cost(const KernelLaunch& launch) {
  return kKernelOverheadNs + rounds_ns(launch, uint64_t{low(launch.arguments[1])} * kRoundsPerUnit);
}

// The blocks are given to the SMs in turns.
bool sms_run(const KernelLaunch& launch, const MemoryMap& memory) {
  uint64_t blocks = launch.blocks;
  for (uint32_t i = 0; blocks > 0 && i < launch.sm_count; ++i) {
    uint32_t sm = i;
    if (launch.sm_groups != 0) {  // only the last one may have fewer SMs
      uint64_t groups = launch.sm_groups;
      for (uint32_t skip = i / kSmsOfGroup; skip > 0; --skip) groups &= groups - 1;
      sm = static_cast<uint32_t>(std::countr_zero(groups)) * kSmsOfGroup + i % kSmsOfGroup;
    }
    auto* word = memory.resolve<uint32_t>(launch.arguments[0] + sm / 32 * uint64_t{4});
    if (word == nullptr) return false;
    *word |= 1u << sm % 32;
    --blocks;
  }
  return true;
}

// gs_note(list, value)
constexpr std::array<uint8_t, 2> kNoteParameters{8, 4};

bool note_run(const KernelLaunch& launch, const MemoryMap& memory) {
  const uint64_t list = launch.arguments[0];
  const auto* length = memory.resolve<uint32_t>(list);
  auto* words = length == nullptr ? nullptr : memory.resolve<uint32_t>(list, uint64_t{*length} + 2);
  if (words == nullptr) return false;
  words[words[0] + 1] = low(launch.arguments[1]);
  std::atomic_ref(words[0]).store(words[0] + 1, std::memory_order_release);  // the host reads it
  return true;
}

// gs_meet(come, out)
constexpr std::array<uint8_t, 2> kMeetParameters{8, 8};

bool meet_run(const KernelLaunch& launch, const MemoryMap& memory) {
  auto* come = memory.resolve<uint32_t>(launch.arguments[0]);
  auto* out = memory.resolve<uint32_t>(launch.arguments[1]);
  if (come == nullptr || out == nullptr) return false;
  *come += low(launch.blocks);
  *out += low(launch.blocks);
  return true;
}

constexpr KernelModel kKernels[] = {
    {"gs_empty", {}, empty_cost, nullptr},
    {"gs_spin", kSpinParameters, spin_cost, spin_run},
    {"gs_endless", kEndlessParameters, endless_cost, endless_run, true},
    {"gs_fill", kFillParameters, fill_cost, fill_run},
    {"gs_mix", kMixParameters, mix_cost, mix_run},
    {"gs_fold", kFoldParameters, fold_cost, fold_run},
    {"gs_stamp", kStampParameters, stamp_cost, stamp_run},
    {"gs_stamps", kStampsParameters, stamp_cost, stamps_run},
    {"gs_sms", kSmsParameters, sms_cost, sms_run},
    {"gs_note", kNoteParameters, empty_cost, note_run},
    {"gs_meet", kMeetParameters, empty_cost, meet_run, false, true},
};

}  // namespace

const KernelModel* find_kernel(std::string_view name) {
  const auto* found = std::ranges::find(kKernels, name, &KernelModel::name);
  return found == std::end(kKernels) ? nullptr : found;
}

EndlessMemory endless_memory(const KernelLaunch& launch, const MemoryMap& memory) {
  const EndlessMemory found{memory.resolve<uint64_t>(launch.arguments[0], launch.blocks),
                            memory.resolve<uint32_t>(launch.arguments[1])};
  return found.turns == nullptr || found.stop == nullptr ? EndlessMemory{} : found;
}

}  // namespace gpushare::standin
