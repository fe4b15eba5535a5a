// SPDX-License-Identifier: Apache-2.0
// Late attach: finds the driver objects of a process that opened the driver before the agent
// started. RM tells the class and the parent of any handle to a process that holds a descriptor of
// the client, so the search takes a copy of each of the process's /dev/nvidiactl descriptors and
// asks for one handle after the other (2.9 us a question on an H200). Handles are dense: clients
// are 0xC1D00000 + n with n counting up in the machine, and the objects that libcuda makes are
// 0x5C000000 + n with n counting up in the process. Any thread may search, each for another
// process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "intercept/event.h"
#include "intercept/gpu.h"
#include "intercept/nvrm/client.h"

namespace gpushare::nvrm {

// What searches have learnt of a process's descriptors, so that the next one goes on where they
// stopped: a job whose client is very old is found at last, and what was asked is not asked again.
// Numbers count from 0 and wrap, as RM's do.
struct LearntFile {
  std::vector<uint32_t> clients;  // handles of those that were found on it last
  uint32_t newest = 0;            // the newest number at that time
  uint32_t back = 0;              // so many numbers before it were asked for
};
using LearntFiles = std::map<int, LearntFile>;  // by the number of the descriptor
// Several searches may use it at once, each for another process.
class Learnt {
 public:
  LearntFiles of(const ProcessId& process) const {
    const std::lock_guard lock(mutex_);
    const auto at = files_.find(process);
    return at == files_.end() ? LearntFiles{} : at->second;
  }
  void put(const ProcessId& process, LearntFiles files) {
    const std::lock_guard lock(mutex_);
    if (files_.size() >= kMost) files_.clear();  // that one has ended is not told here
    files_[process] = std::move(files);
  }
  // Some of the processes in which this client was found, each with its descriptor.
  std::vector<std::pair<ProcessId, int>> holders(uint32_t client) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::pair<ProcessId, int>> found;
    for (const auto& [process, files] : files_)
      for (const auto& [number, file] : files)
        if (found.size() < kMostHolders &&
            std::ranges::find(file.clients, client) != file.clients.end())
          found.emplace_back(process, number);
    return found;
  }
  void forget(const ProcessId& process) {
    const std::lock_guard lock(mutex_);
    files_.erase(process);
  }

 private:
  static constexpr std::size_t kMost = 4096;  // processes
  static constexpr std::size_t kMostHolders = 16;
  mutable std::mutex mutex_;
  std::map<ProcessId, LearntFiles> files_;
};

// The answer are the events that would have been seen, parents first, beginning with an empty
// ProcessOpened (the caller knows the process), and without MemoryAllocated, because RM does not
// tell sizes. A search asks at most 65,536 times for clients, for all descriptors together; the
// next one goes on there. The objects `known` (see Gpu::attach) are asked for by name. Error
// no_such_process when the process has ended; others when its descriptors cannot be taken now.
// `ours` and `learnt` must outlive the search.
std::unique_ptr<ObjectSearch> find_objects(const RmClient& ours, ProcessId process,
                                           std::span<const ObjectRef> known, Learnt& learnt);

}  // namespace gpushare::nvrm
