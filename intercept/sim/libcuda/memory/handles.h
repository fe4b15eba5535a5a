// SPDX-License-Identifier: Apache-2.0
// HandleTable: the objects behind the handles that programs hold. Handles are numbers that are
// never used twice, so that a stale or foreign one is found out instead of followed. An object
// lives until its handle is removed and the last call that uses it has returned. Any thread may
// call.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gpushare::standin {

// Larger than the handles that have a meaning of their own, such as CU_STREAM_LEGACY.
inline std::atomic<uintptr_t> next_handle{0x1000};

template <class Handle, class Object>
class HandleTable {
 public:
  Handle add(std::shared_ptr<Object> object) {
    const uintptr_t number = next_handle.fetch_add(16);
    const std::lock_guard lock(mutex_);
    objects_.emplace(number, std::move(object));
    return reinterpret_cast<Handle>(number);
  }

  // Null when there is no such handle.
  std::shared_ptr<Object> find(Handle handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }

  std::shared_ptr<Object> remove(Handle handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
    if (found == objects_.end()) return nullptr;
    auto object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  template <class Predicate>
  void remove_if(Predicate is_meant) {
    const std::lock_guard lock(mutex_);
    std::erase_if(objects_, [&](const auto& item) { return is_meant(*item.second); });
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uintptr_t, std::shared_ptr<Object>> objects_;
};

}  // namespace gpushare::standin
