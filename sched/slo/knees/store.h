// SPDX-License-Identifier: Apache-2.0
// Knees that were found, kept across runs: the same command on the same GPU model starts with what
// its last run learned. A small JSON file, replaced whole; the agent owns it and is its only
// writer. Not thread-safe.
//
//   {"format":1,"knees":[{"command":"9f86d081884c7d65","gpu":"NVIDIA H200","knee":5,
//     "widest":15,"is_bounded":false,"run":17}]}
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shmctl/base/error.h"

namespace gpushare {

struct KnownKnee {
  uint32_t knee = 0;        // groups
  uint32_t widest = 0;      // the search started there
  bool is_bounded = false;  // KneeFinder::is_bounded()

  bool operator==(const KnownKnee&) const = default;
};

class KneeStore {
 public:
  static constexpr size_t kMostKnees = 1024;  // the one unused for most runs makes room
  static constexpr const char* kContents = "knees";
  static constexpr std::chrono::seconds kLeastPause{0};  // between two writings

  // Keeps nothing: find() finds nothing, and put() is forgotten.
  KneeStore() = default;

  // A file that is missing is an empty store. One that is no such file is an error: it is
  // somebody's, and save() would destroy it.
  static Result<KneeStore> open(std::string path);

  // Finding a knee also counts as its use.
  std::optional<KnownKnee> find(std::string_view command, std::string_view gpu);
  void put(std::string_view command, std::string_view gpu, const KnownKnee& knee);
  // Returns true once after put(): the owner should save(). So that a policy does no I/O.
  bool take_save_request() { return std::exchange(wants_saving_, false); }
  // The text that the file should have; nullopt: it has it, as far as this object knows. The caller
  // writes it, and says so if that has failed.
  std::optional<std::string> take_text();
  void note_failure() { is_changed_ = true; }
  // Replaces the file whole, for all to read. Any thread may call, one at a time.
  static Result<> write(const std::string& path, const std::string& text);
  // Both, on this thread.
  Result<> save();
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string command, gpu;
    KnownKnee knee;
    uint64_t run = 0;  // when it was used last, counted in openings of the file
  };

  explicit KneeStore(std::string path) : path_(std::move(path)) {}
  Result<> parse(const std::string& text);
  Entry* entry(std::string_view command, std::string_view gpu);

  std::string path_;  // empty: nothing is kept
  std::vector<Entry> entries_;
  uint64_t run_ = 1;
  bool is_changed_ = false, wants_saving_ = false;
};

}  // namespace gpushare
