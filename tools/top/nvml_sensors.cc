// SPDX-License-Identifier: Apache-2.0
#include "tools/top/nvml_sensors.h"

#include <dlfcn.h>
#include <signal.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace gpushare {
namespace {

// Our own declarations of what nvml.h has: 0 is success, a device is a pointer, the sensor of the
// GPU itself and the clock of the SMs have these numbers, memory is in bytes, power in mW.
constexpr int kSuccess = 0;
constexpr int kGpuTemperature = 0;
constexpr int kSmClock = 1;
struct Memory {
  unsigned long long total = 0, free = 0, used = 0;
};

class Library {
 public:
  Library() : handle_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) return;
    int (*init)() = nullptr;
    find(init, "nvmlInit_v2");
    find(by_uuid_, "nvmlDeviceGetHandleByUUID");
    find(power_, "nvmlDeviceGetPowerUsage");
    find(power_limit_, "nvmlDeviceGetEnforcedPowerLimit");
    find(temperature_, "nvmlDeviceGetTemperature");
    find(clock_, "nvmlDeviceGetClockInfo");
    find(memory_, "nvmlDeviceGetMemoryInfo");
    has_begun_ = init != nullptr && by_uuid_ != nullptr && init() == kSuccess;
  }
  // The library stays loaded until the process ends, which is soon.
  bool has_begun() const { return has_begun_; }

  GpuSensors read(const std::string& uuid) {
    auto [device, is_new] = devices_.try_emplace(uuid, nullptr);
    if (is_new && by_uuid_(uuid.c_str(), &device->second) != kSuccess) device->second = nullptr;
    GpuSensors found;
    if (device->second == nullptr) return found;
    const auto ask = [&](auto function, uint32_t& into, auto... which) {
      unsigned value = 0;
      if (function != nullptr && function(device->second, which..., &value) == kSuccess)
        into = value;
    };
    ask(power_, found.power_mw);
    ask(power_limit_, found.power_limit_mw);
    ask(temperature_, found.temperature_c, kGpuTemperature);
    ask(clock_, found.sm_clock_mhz, kSmClock);
    Memory memory;
    if (memory_ != nullptr && memory_(device->second, &memory) == kSuccess)
      found.memory_used_bytes = memory.used;
    return found;
  }

 private:
  template <class F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(::dlsym(handle_, name));
  }

  void* handle_ = nullptr;
  bool has_begun_ = false;
  int (*by_uuid_)(const char*, void**) = nullptr;
  int (*power_)(void*, unsigned*) = nullptr;
  int (*power_limit_)(void*, unsigned*) = nullptr;
  int (*temperature_)(void*, int, unsigned*) = nullptr;
  int (*clock_)(void*, int, unsigned*) = nullptr;
  int (*memory_)(void*, Memory*) = nullptr;
  std::map<std::string, void*> devices_;
};

}  // namespace

struct NvmlSensors::Shared {
  std::mutex mutex;
  std::condition_variable asked;
  bool is_asked = false, has_ended = false;
  std::vector<std::string> uuids;
  SensorsLook found;
};

NvmlSensors::NvmlSensors() : shared_(std::make_shared<Shared>()) {
  // Signals are the main thread's, whose wait for a key they end.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([shared = shared_] {
    Library library;
    std::unique_lock lock(shared->mutex);
    shared->found.has_library = library.has_begun();
    while (library.has_begun()) {
      shared->asked.wait(lock, [&] { return shared->is_asked || shared->has_ended; });
      if (shared->has_ended) return;
      shared->is_asked = false;
      const std::vector<std::string> uuids = shared->uuids;
      lock.unlock();
      std::vector<GpuSensors> gpus;
      gpus.reserve(uuids.size());
      for (const std::string& uuid : uuids) gpus.push_back(library.read(uuid));
      lock.lock();
      shared->found.gpus = std::move(gpus);
    }
  }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

NvmlSensors::~NvmlSensors() {
  const std::lock_guard lock(shared_->mutex);
  shared_->has_ended = true;
  shared_->asked.notify_one();
}

SensorsLook NvmlSensors::read(const std::vector<std::string>& uuids) {
  const std::lock_guard lock(shared_->mutex);
  const bool is_same = shared_->uuids == uuids;
  shared_->uuids = uuids;
  shared_->is_asked = true;
  shared_->asked.notify_one();
  SensorsLook found = shared_->found;
  // What was found belongs to other GPUs.
  if (!is_same || found.gpus.size() != uuids.size()) found.gpus.assign(uuids.size(), {});
  return found;
}

}  // namespace gpushare
