// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/lifeline.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

#include "shmctl/base/aside.h"

namespace gpushare {

struct Lifeline::Shared {
  pthread_mutex_t alive;  // held by the agent
  sem_t is_held;          // posted when the agent holds it, or never will
};

void Lifeline::Unmap::operator()(Shared* shared) const { ::munmap(shared, sizeof(Shared)); }

Result<std::unique_ptr<Lifeline::Shared, Lifeline::Unmap>> Lifeline::map(int fd) {
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return errno_error("map the lifeline");
  return std::unique_ptr<Shared, Unmap>(static_cast<Shared*>(memory));
}

struct Lifeline::Watch {
  std::unique_ptr<Shared, Unmap> shared;
  std::atomic<bool> has_fired = false;
};

Result<std::unique_ptr<Lifeline>> Lifeline::create(int signal) {
  constexpr const char* kStep = "make the lifeline";
  Fd fd(::memfd_create("gpushare-lifeline", MFD_CLOEXEC));
  if (!fd.is_open()) return errno_error(kStep);
  if (::ftruncate(fd.get(), sizeof(Shared)) != 0) return errno_error(kStep);
  auto shared = map(fd.get());
  if (!shared) return std::unexpected(shared.error());

  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&(*shared)->alive, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  ::sem_init(&(*shared)->is_held, 1, 0);

  const auto watch = std::make_shared<Watch>();
  watch->shared = std::move(*shared);
  try {
    start_quietly([watch, signal] {
      Shared& held = *watch->shared;
      while (::sem_wait(&held.is_held) != 0 && errno == EINTR) {
      }
      if (::pthread_mutex_lock(&held.alive) == EOWNERDEAD) {
        watch->has_fired = true;
        ::kill(::getpid(), signal);
      }
      ::pthread_mutex_unlock(&held.alive);
    }).detach();
  } catch (const std::system_error& error) {
    return std::unexpected(Error{error.code(), kStep, {}});
  }
  std::unique_ptr<Lifeline> made(new Lifeline(std::move(fd)));
  made->watch_ = watch;
  return made;
}

Lifeline::~Lifeline() {
  ::sem_post(&watch_->shared->is_held);  // for an agent that died before it held the mutex
}

bool Lifeline::has_fired() const { return watch_->has_fired; }

void Lifeline::keep_for_child(int fd) { ::fcntl(fd, F_SETFD, 0); }

Result<> Lifeline::hold(int fd) {
  auto shared = map(fd);
  if (!shared) return std::unexpected(shared.error());
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  if (int error = ::pthread_mutex_lock(&(*shared)->alive))
    return std::unexpected(
        Error{std::error_code(error, std::generic_category()), "hold the lifeline", {}});
  ::sem_post(&(*shared)->is_held);
  // The memory stays mapped until the process ends.
  [[maybe_unused]] const auto* const kept = shared->release();
  return {};
}

}  // namespace gpushare
