// SPDX-License-Identifier: Apache-2.0
// PolicyEntry: all that the rest of gpushared needs to know of a policy, in one value. From it
// follow the keys of `[gpu.N]` and their check, the comparison at reload, `gpushared --policies`,
// the manual's list and what the shim is asked to do. The entries stand in sched/policies; who
// needs them is given them, so that nothing else names a policy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sched/policy/policy.h"

namespace gpushare {

// A whole number that `[gpu.N]` may set, or `[agent]` for all GPUs.
struct PolicyOption {
  std::string_view key;  // ends with its unit: "round_target_ms"
  int64_t least, most, otherwise;
  std::string_view help;
  bool is_spatial = false;  // only with sharing = "spatial"
};

// The values of a policy's options, each within its range.
class PolicyOptions {
 public:
  // All at their defaults. `options` outlives this.
  explicit PolicyOptions(std::span<const PolicyOption> options);

  bool has(std::string_view key) const { return find(key) != values_.size(); }
  // Both require has(key).
  int64_t operator[](std::string_view key) const { return values_[find(key)]; }
  void set(std::string_view key, int64_t value) { values_[find(key)] = value; }

  bool operator==(const PolicyOptions& other) const { return values_ == other.values_; }

 private:
  std::size_t find(std::string_view key) const;

  std::span<const PolicyOption> options_;
  std::vector<int64_t> values_;
};

struct PolicyNeeds {
  bool iterations = false;  // every program with the shim counts its iterations
  bool spatial = false;     // sharing = "spatial", and every program with the shim is confined
  bool turns = false;       // it orders jobs: every program with the shim has a gate

  bool operator==(const PolicyNeeds&) const = default;
};

struct PolicyMistake {
  std::string_view key, text;
};

struct PolicyEntry {
  std::string_view name;     // lower-case letters, at most 15
  std::string_view summary;  // one sentence
  PolicyNeeds needs;
  std::span<const PolicyOption> options;
  std::function<std::unique_ptr<Policy>(const GpuView&, const PolicyOptions&)> make;
  // What is wrong with options that are each in their range; may be empty.
  std::function<std::optional<PolicyMistake>(const PolicyOptions&)> check{};
};

// The policy that a GPU is to run.
struct PolicyChoice {
  const PolicyEntry* entry;
  PolicyOptions options;

  explicit PolicyChoice(const PolicyEntry& chosen) : entry(&chosen), options(chosen.options) {}
  std::unique_ptr<Policy> make(const GpuView& gpu) const { return entry->make(gpu, options); }
  bool operator==(const PolicyChoice&) const = default;
};

// Of so many entries the one of this name; nullptr: there is none.
const PolicyEntry* find_policy(std::span<const PolicyEntry> entries, std::string_view name);

// What `gpushared --policies` prints: each policy with its needs and options, one option a line.
std::string describe_policies(std::span<const PolicyEntry> entries);

}  // namespace gpushare
