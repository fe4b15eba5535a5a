// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/nvml.h"

#include <dlfcn.h>

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

constexpr unsigned long long kOldestUs = 2'000'000;

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
void* Nvml::device_of(const std::string& uuid) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = devices_.find(uuid); known != devices_.end()) return known->second;
  }
  void* device = nullptr;
  if (api_->by_uuid(uuid.c_str(), &device) != kSuccess) device = nullptr;
  const std::lock_guard lock(mutex_);
  return devices_[uuid] = device;
}

std::optional<std::vector<Utilisation>> Nvml::utilisation(const std::string& uuid, uint32_t gpu) {
  void* const device = device_of(uuid);
  if (device == nullptr) return std::nullopt;

  using std::chrono::system_clock;
  const auto now_us = static_cast<unsigned long long>(
      std::chrono::duration_cast<Micros>(system_clock::now().time_since_epoch()).count());
  unsigned count = 0;
  int rc = api_->samples(device, nullptr, &count, now_us - kOldestUs);
  if (rc == kNotFound) return std::vector<Utilisation>{};
  if (rc != kSuccess && rc != kInsufficientSize) return std::nullopt;
  std::vector<Sample> samples(count);
  rc = api_->samples(device, samples.data(), &count, now_us - kOldestUs);
  if (rc == kNotFound) return std::vector<Utilisation>{};
  if (rc != kSuccess) return std::nullopt;
  samples.resize(count);

  std::map<unsigned, Sample> newest;
  for (const Sample& sample : samples) {
    Sample& kept = newest[sample.pid];
    if (sample.timestamp_us >= kept.timestamp_us) kept = sample;
  }
  std::vector<Utilisation> result;
  for (const auto& [pid, sample] : newest)
    if (pid != 0 && sample.timestamp_us + kOldestUs >= now_us)
      result.push_back({static_cast<pid_t>(pid), gpu, sample.sm / 100.0});
  return result;
}

}  // namespace gpushare::nvrm
