// SPDX-License-Identifier: Apache-2.0
// FakeKmod: the kernel module's side of /dev/gpushare in memory. The test writes its ring, and it
// records the calls that were made. push() may run on a thread of its own, as the module does.
#pragma once

#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "intercept/kmod/device.h"
#include "kmod/uapi/gpushare.h"

namespace gpushare::test {

class FakeKmod final : public kmod::Device {
 public:
  explicit FakeKmod(uint32_t records = 8) : ring_(records) {
    query.uapi_version = GPUSHARE_UAPI_VERSION;
    query.record_bytes = sizeof(gpushare_event);
    query.record_count = records;
    query.producer_bytes = query.consumer_bytes = 4096;
    query.consumer_offset = 4096;
    query.records_offset = 8192;
    query.records_bytes = records * sizeof(gpushare_event);
    std::strcpy(query.module_version, "9.9");
  }

  int fd() const override { return event_.get(); }
  Result<> call(unsigned long request, void* argument, const char* step) override {
    calls.push_back(request);
    if (request == fails) {
      errno = error;
      return errno_error(step);
    }
    if (request == GPUSHARE_IOC_QUERY) *static_cast<gpushare_query*>(argument) = query;
    if (request == GPUSHARE_IOC_REPLAY)
      for (const gpushare_event& event : replayed) push(event);
    if (request == GPUSHARE_IOC_SET_GPU) gpus.push_back(*static_cast<gpushare_gpu*>(argument));
    if (request == GPUSHARE_IOC_SET_POLICY) policy = static_cast<gpushare_policy*>(argument)->name;
    if (request == GPUSHARE_IOC_PUBLISH) take(*static_cast<gpushare_publish*>(argument));
    return {};
  }
  Result<std::shared_ptr<void>> map(uint64_t offset, uint64_t, bool is_writable) override {
    void* memory = &producer_;
    if (offset == query.consumer_offset) memory = &consumer_;
    if (offset == query.records_offset) memory = ring_.data();
    if (is_writable != (memory == &consumer_)) {
      errno = EACCES;
      return errno_error("map");
    }
    return std::shared_ptr<void>(memory, [](void*) {});
  }

  // Returns false when the ring was full, and counts the loss.
  bool push(const gpushare_event& event) {
    if (head_ - __atomic_load_n(&consumer_.tail, __ATOMIC_ACQUIRE) >= ring_.size()) {
      __atomic_store_n(&producer_.lost, ++lost_, __ATOMIC_RELAXED);
      return false;
    }
    ring_[head_ % ring_.size()] = event;
    __atomic_store_n(&producer_.head, ++head_, __ATOMIC_RELEASE);
    ::eventfd_write(event_.get(), 1);
    return true;
  }
  bool is_empty() const { return __atomic_load_n(&consumer_.tail, __ATOMIC_ACQUIRE) == head_; }
  std::size_t count(unsigned long request) const {
    return static_cast<std::size_t>(std::ranges::count(calls, request));
  }

  gpushare_query query{};
  std::vector<gpushare_event> replayed;  // the records that REPLAY writes
  unsigned long fails = 0;               // the request that fails with `error`
  int error = 0;
  std::vector<unsigned long> calls;
  std::vector<gpushare_gpu> gpus;
  std::vector<std::vector<gpushare_usage>> published;  // by call
  std::string policy;

 private:
  void take(const gpushare_publish& argument) {
    const auto* usages = reinterpret_cast<const gpushare_usage*>(argument.usages);
    published.emplace_back(usages, usages + argument.count);
  }

  Fd event_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  gpushare_producer producer_{};
  gpushare_consumer consumer_{};
  std::vector<gpushare_event> ring_;
  uint64_t head_ = 0, lost_ = 0;
};

// --- records ----------------------------------------------------------------------------------

inline constexpr pid_t kPid = 4711;
inline constexpr uint64_t kTicks = 99;

inline gpushare_event kmod_record(gpushare_event_kind kind, uint32_t flags = 0) {
  gpushare_event event{};
  event.time_ns = 1'000;
  event.start_ticks = kTicks;
  event.pid = kPid;
  event.kind = kind;
  event.flags = flags;
  return event;
}
inline gpushare_event kmod_opened(const char* tenant, pid_t pid = kPid, uint64_t ticks = kTicks) {
  gpushare_event event = kmod_record(GPUSHARE_EVENT_PROCESS_OPENED);
  event.pid = static_cast<uint32_t>(pid);
  event.start_ticks = ticks;
  event.opened.ns_pid = 7;
  event.opened.uid = 1000;
  event.opened.cgroup_id = 42;
  std::strcpy(event.opened.comm, "train");
  std::strcpy(event.opened.tenant, tenant);
  return event;
}
inline gpushare_event kmod_moved(const char* tenant, pid_t pid = kPid, uint64_t ticks = kTicks) {
  gpushare_event event = kmod_record(GPUSHARE_EVENT_PROCESS_MOVED);
  event.pid = static_cast<uint32_t>(pid);
  event.start_ticks = ticks;
  std::strcpy(event.moved.tenant, tenant);
  return event;
}
inline gpushare_event kmod_settings(const char* tenant, uint32_t setting) {
  gpushare_event event{};
  event.kind = GPUSHARE_EVENT_SETTINGS_CHANGED;
  event.settings.setting = setting;
  std::strcpy(event.settings.tenant, tenant);
  return event;
}

}  // namespace gpushare::test
