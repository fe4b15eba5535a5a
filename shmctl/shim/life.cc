// SPDX-License-Identifier: Apache-2.0
#include "shmctl/shim/life.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <system_error>

namespace gpushare {
namespace {

static_assert(sizeof(pthread_mutex_t) <= offsetof(ShimLife, magic));

pthread_mutex_t* mutex_of(ShimLife* life) { return reinterpret_cast<pthread_mutex_t*>(life); }

int make_held(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  return ::pthread_mutex_lock(mutex);
}

}  // namespace

Result<std::unique_ptr<AgentLife>> AgentLife::begin() {
  constexpr const char* kStep = "make the page that says that the agent lives";
  Fd file(::memfd_create("gpushare-life", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open() || ::ftruncate(file.get(), kShimLifeBytes) != 0) return errno_error(kStep);
  void* const mapped =
      ::mmap(nullptr, kShimLifeBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return errno_error(kStep);
  // Our mapping is older than the seal, and stays the only one that can be written.
  constexpr int kSeals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    const auto error = errno_error(kStep);
    ::munmap(mapped, kShimLifeBytes);
    return error;
  }
  auto* const life = static_cast<ShimLife*>(mapped);
  if (const int error = make_held(mutex_of(life)); error != 0) {
    ::munmap(mapped, kShimLifeBytes);
    return std::unexpected(Error{std::error_code(error, std::generic_category()), kStep, {}});
  }
  life->magic.store(kShimLifeMagic, std::memory_order_release);
  return std::unique_ptr<AgentLife>(new AgentLife(std::move(file), life));
}

AgentLife::~AgentLife() {
  // On another thread it stays held, and in that thread's list, until that thread ends.
  if (::pthread_mutex_unlock(mutex_of(life_)) == 0) ::munmap(life_, kShimLifeBytes);
}

}  // namespace gpushare
