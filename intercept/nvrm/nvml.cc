// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>

namespace gpushare::nvrm {
namespace {

// Our own declarations of nvml.h's return codes and of nvmlProcessUtilizationSample_t.
constexpr int kSuccess = 0;
constexpr int kNotFound = 6;  // there is no sample since the time that was asked for
constexpr int kInsufficientSize = 7;

struct Sample {
  unsigned pid = 0;
  unsigned long long timestamp_us = 0;                    // wall clock
  unsigned sm = 0, memory = 0, encoder = 0, decoder = 0;  // percent
};

constexpr unsigned kSpareRows = 16;  // for processes that come meanwhile
// No sample tells of more time than that.
constexpr unsigned long long kLongestUs = 1'000'000;
// The driver samples so often, and is late by some 10 ms (bench/results/samples.jsonl, H200).
constexpr Nanos kTick = std::chrono::milliseconds(200);
// If it has nothing for so long, nobody was there.
constexpr unsigned long long kSilenceUs = 600'000, kLatestUs = 300'000;

}  // namespace

struct Nvml::Api {
  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_uuid)(const char*, void**) = nullptr;
  int (*samples)(void*, Sample*, unsigned*, unsigned long long) = nullptr;

  ~Api() {
    if (library != nullptr) ::dlclose(library);
  }
  template <class F>
  bool find(F& function, const char* name) {
    function = reinterpret_cast<F>(::dlsym(library, name));
    return function != nullptr;
  }
};

Nvml::Nvml(std::unique_ptr<Api> api) : api_(std::move(api)) {}

Nvml::~Nvml() { api_->shutdown(); }

std::unique_ptr<Nvml> Nvml::load() {
  auto api = std::make_unique<Api>();
  api->library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (api->library == nullptr) return nullptr;
  if (!api->find(api->init, "nvmlInit_v2") || !api->find(api->shutdown, "nvmlShutdown") ||
      !api->find(api->by_uuid, "nvmlDeviceGetHandleByUUID") ||
      !api->find(api->samples, "nvmlDeviceGetProcessUtilization"))
    return nullptr;
  if (api->init() != kSuccess) return nullptr;
  return std::unique_ptr<Nvml>(new Nvml(std::move(api)));
}

// Nothing waits for a GPU that does not answer but what asks for that one.
Nvml::Device Nvml::device_of(const std::string& uuid) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = devices_.find(uuid); known != devices_.end()) return known->second;
  }
  Device device;
  if (api_->by_uuid(uuid.c_str(), &device.handle) != kSuccess) device.handle = nullptr;
  note(uuid, device);
  return device;
}

void Nvml::note(const std::string& uuid, const Device& device) {
  const std::lock_guard lock(mutex_);
  devices_[uuid] = device;
}

// NVML gives one row for each process: the mean of what it sampled since the instant that it is
// asked for.
std::optional<UtilisationSample> Nvml::utilisation(const std::string& uuid) {
  Device device = device_of(uuid);
  if (device.handle == nullptr) return std::nullopt;

  using std::chrono::system_clock;
  const auto now_us = static_cast<unsigned long long>(
      std::chrono::duration_cast<Micros>(system_clock::now().time_since_epoch()).count());
  const Time now = MonotonicClock().now();
  const auto at = [&](unsigned long long stamp_us) {
    return now - Micros(static_cast<int64_t>(now_us) - static_cast<int64_t>(stamp_us));
  };
  // The wall clock may have been set.
  if (device.newest_us > now_us) device.newest_us = 0;
  const unsigned long long since = std::max(device.newest_us, now_us - kLongestUs);
  std::vector<Sample> samples(device.rows);
  unsigned count = device.rows;
  int rc = api_->samples(device.handle, samples.data(), &count, since);
  if (rc == kInsufficientSize) {
    count += kSpareRows;
    samples.assign(count, {});
    device.rows = count;
    rc = api_->samples(device.handle, samples.data(), &count, since);
  }
  if (rc != kSuccess && rc != kNotFound) return std::nullopt;
  samples.resize(rc == kSuccess ? std::min<size_t>(count, samples.size()) : 0);

  unsigned long long newest = since;
  if (rc == kNotFound && now_us - since >= kSilenceUs) newest = now_us - kLatestUs;
  UtilisationSample result;
  for (const Sample& sample : samples) {
    if (sample.pid == 0 || sample.timestamp_us <= since) continue;
    newest = std::max(newest, sample.timestamp_us);
    result.of.push_back({static_cast<pid_t>(sample.pid), sample.sm / 100.0});
  }
  result.from = at(since);
  result.until = at(newest);
  result.tick = kTick;
  device.newest_us = newest;
  note(uuid, device);
  return result;
}

}  // namespace gpushare::nvrm
