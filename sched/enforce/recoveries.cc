// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/recoveries.h"

#include <atomic>
#include <latch>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

#include "shmctl/base/last_threads.h"
#include "shmctl/base/log.h"
#include "shmctl/plane/ledger.h"

namespace gpushare {

// Its thread has it, too, and alone touches `recovery` and `gpu` until `is_over`.
struct Recoveries::Job {
  Job(const Ledger& ledger, const ProcReader& processes, const std::set<LedgerKey>& groups,
      std::shared_ptr<Gpu> given, Writer of, Time now)
      : recovery(ledger, processes, &groups),
        gpu(std::move(given)),
        asked(gpu.get()),
        writer(of),
        since(now) {}

  void carry_out() {
    recovery.carry_out(*gpu, stop.get_token());
    gpu.reset();                                     // closing the driver is a call of it as well
    is_over.store(true, std::memory_order_release);  // pairs with the acquire in collect()
  }

  Recovery recovery;
  std::shared_ptr<Gpu> gpu;
  const void* const asked;
  const Writer writer;
  const Time since;
  std::stop_source stop;
  std::latch is_named{1};
  std::atomic<bool> is_over = false;
};

Recoveries::Recoveries(Region& region, const ProcReader& processes, const Clock& clock,
                       Recovery::Resume resume, std::function<void()> told)
    : region_(region),
      processes_(processes),
      clock_(clock),
      resume_(std::move(resume)),
      told_(std::move(told)) {}

Recoveries::~Recoveries() { call_off(); }

RecoveryReport Recoveries::begin(const std::shared_ptr<Gpu>& gpu, Writer writer,
                                 const std::set<uint32_t>& but) {
  std::set<LedgerKey> stopped;
  std::map<uint32_t, std::set<LedgerKey>> groups;  // by GPU
  for (const LedgerKey& key : Ledger(region_).groups())
    (key.is_process() ? stopped : groups[key.gpu]).insert(key);
  if (gpu != nullptr)
    for (const auto& [index, keys] : groups)
      if (!jobs_.contains(index) && !but.contains(index)) start(gpu, index, keys, writer);
  return resume_stopped(stopped, writer);
}

RecoveryReport Recoveries::resume_stopped(const std::set<LedgerKey>& stopped, Writer writer) {
  if (stopped.empty()) return {};
  Ledger ledger(region_);
  Recovery recovery(ledger, processes_, &stopped);
  recovery.resume(resume_);
  return writer == Writer::kHasEnded ? recovery.finish(ledger, processes_)
                                     : recovery.tell(processes_);
}

void Recoveries::start(const std::shared_ptr<Gpu>& gpu, uint32_t index,
                       const std::set<LedgerKey>& groups, Writer writer) {
  const auto job =
      std::make_shared<Job>(Ledger(region_), processes_, groups, gpu, writer, clock_.now());
  jobs_[index] = job;
  try {
    std::thread([job, index, told = told_] {
      name_gpu_thread(index);
      job->is_named.count_down();
      job->carry_out();
      told();
    }).detach();
    // Otherwise an agent that is started now would find nobody who asks this GPU.
    job->is_named.wait();
  } catch (const std::system_error& error) {
    log_warning("GPU {}: recovery waits for the driver itself: {}", index, error.what());
    job->carry_out();
  }
}

std::vector<Recoveries::Over> Recoveries::collect() {
  std::vector<Over> over;
  std::erase_if(jobs_, [&](const auto& one) {
    const auto& [index, job] = one;
    if (!job->is_over.load(std::memory_order_acquire)) return false;
    Ledger ledger(region_);
    over.push_back({index, job->writer, job->asked,
                    job->writer == Writer::kHasEnded ? job->recovery.finish(ledger, processes_)
                                                     : job->recovery.tell(processes_)});
    return true;
  });
  return over;
}

std::map<uint32_t, Time> Recoveries::under_way() const {
  std::map<uint32_t, Time> since;
  for (const auto& [index, job] : jobs_) since[index] = job->since;
  return since;
}

void Recoveries::call_off() {
  for (const auto& [index, job] : jobs_) job->stop.request_stop();
  jobs_.clear();
}

}  // namespace gpushare
