// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/lifeline.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

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

Result<std::unique_ptr<Lifeline>> Lifeline::create(int signal) {
  std::unique_ptr<Lifeline> made(new Lifeline);
  made->fd_.reset(::memfd_create("gpushare-lifeline", MFD_CLOEXEC));
  if (!made->fd_.is_open()) return errno_error("make the lifeline");
  if (::ftruncate(made->fd_.get(), sizeof(Shared)) != 0) return errno_error("make the lifeline");
  auto shared = map(made->fd_.get());
  if (!shared) return std::unexpected(shared.error());
  made->shared_ = std::move(*shared);

  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&made->shared_->alive, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  ::sem_init(&made->shared_->is_held, 1, 0);

  made->waiter_ = std::thread([shared_end = made->shared_.get(), signal] {
    while (::sem_wait(&shared_end->is_held) != 0 && errno == EINTR) {
    }
    if (::pthread_mutex_lock(&shared_end->alive) == EOWNERDEAD) ::kill(::getpid(), signal);
    ::pthread_mutex_unlock(&shared_end->alive);
  });
  return made;
}

Lifeline::~Lifeline() {
  if (!waiter_.joinable()) return;
  ::sem_post(&shared_->is_held);  // for an agent that died before it held the mutex
  waiter_.join();
}

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
