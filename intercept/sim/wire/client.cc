// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/wire/client.h"
#include "shmctl/base/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace gpushare::sim {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <class T>
Result<T> as(std::span<const std::byte> bytes, const char* step) {
  T value;
  if (bytes.size() < sizeof value) return make_error(std::errc::bad_message, step);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::unexpected<Error> broken(const char* step) {
  return make_error(std::errc::connection_reset, step, "the simulated GPU's server went away");
}

}  // namespace

Client::Client(Fd socket, CompletionHandler on_completion, EventHandler on_event)
    : socket_(std::move(socket)),
      on_completion_(std::move(on_completion)),
      on_event_(std::move(on_event)),
      inbox_(kMaxMessageBytes) {}

Result<std::unique_ptr<Client>> Client::connect(const std::string& path, Role role,
                                                CompletionHandler on_completion,
                                                EventHandler on_event) {
  auto socket = connect_to_socket(path, "connect to the simulated GPU");
  if (!socket) return std::unexpected(socket.error());
  std::unique_ptr<Client> client(
      new Client(std::move(*socket), std::move(on_completion), std::move(on_event)));
  struct stat about{};
  ::fstat(client->socket_.get(), &about);  // of an open descriptor it cannot fail
  const Hello hello{kProtocolMagic, kProtocolVersion, role, 0, about.st_ino};
  auto reply = client->ask<HelloReply>(Kind::kHello, hello, "greet the simulated GPU");
  if (!reply) return std::unexpected(reply.error());
  client->gpu_count_ = reply->gpu_count;
  client->load_ = reply->load;
  return client;
}

// --- requests ---------------------------------------------------------------------------------

template <class Reply, class Request>
Result<Reply> Client::ask(Kind kind, const Request& request, const char* step) {
  auto answer = call(kind, bytes_of(request), {}, step);
  if (!answer) return std::unexpected(answer.error());
  return as<Reply>(*answer, step);
}

Result<std::vector<std::byte>> Client::call(Kind kind, std::span<const std::byte> body,
                                            std::span<const std::byte> extra, const char* step) {
  uint64_t tag = 0;
  {
    const std::lock_guard lock(mutex_);
    tag = next_tag_++;
    awaited_.insert(tag);
  }
  std::vector<std::byte> answer;
  auto done = send(kind, tag, body, extra);
  if (done) {
    done = wait_until([&] {
      const auto found = answers_.find(tag);
      if (found == answers_.end()) return false;
      answer = std::move(found->second);
      answers_.erase(found);
      return true;
    });
  }
  if (!done) {
    const std::lock_guard lock(mutex_);
    awaited_.erase(tag);
    return broken(step);
  }
  const auto head = as<ReplyHead>(answer, step);
  if (!head) return std::unexpected(head.error());
  if (head->status != 0) return make_error(static_cast<std::errc>(head->status), step);
  return answer;
}

Result<DescribeReply> Client::describe(uint32_t gpu) {
  return ask<DescribeReply>(Kind::kDescribe, GpuRequest{gpu, 0}, "describe simulated GPU");
}

Result<MemoryReply> Client::memory(uint32_t gpu) {
  return ask<MemoryReply>(Kind::kMemory, GpuRequest{gpu, 0}, "read simulated GPU's free memory");
}

Result<ContextReply> Client::create_context(uint32_t gpu, uint32_t mps_server, bool is_hidden) {
  return ask<ContextReply>(Kind::kCreateContext, CreateContext{gpu, mps_server, is_hidden, 0},
                           "create simulated context");
}

Result<> Client::destroy_context(uint32_t context) {
  auto reply =
      ask<ReplyHead>(Kind::kDestroyContext, ObjectRequest{context, 0}, "destroy simulated context");
  if (!reply) return std::unexpected(reply.error());
  const std::lock_guard lock(mutex_);
  std::erase_if(unfinished_, [&](const auto& item) { return item.second == context; });
  changed_.notify_all();
  return {};
}

Result<uint32_t> Client::allocate(uint32_t context, uint64_t bytes) {
  auto reply = ask<ObjectReply>(Kind::kAllocate, Allocate{context, 0, bytes},
                                "allocate simulated GPU memory");
  if (!reply) return std::unexpected(reply.error());
  return reply->object;
}

Result<> Client::free(uint32_t memory) {
  auto reply = ask<ReplyHead>(Kind::kFree, ObjectRequest{memory, 0}, "free simulated GPU memory");
  if (!reply) return std::unexpected(reply.error());
  return {};
}

Result<> Client::submit(const Work& work) {
  {
    const std::lock_guard lock(mutex_);
    if (is_broken_) return broken("submit work");
    unfinished_.emplace(work.sequence, work.context);
  }
  return send(Kind::kSubmit, 0, bytes_of(work), {});
}

Result<> Client::stop(uint64_t sequence) {
  return send(Kind::kStop, 0, bytes_of(SequenceRequest{sequence}), {});
}

Result<ProgressReply> Client::query(uint64_t sequence) {
  return ask<ProgressReply>(Kind::kQuery, SequenceRequest{sequence}, "query progress of work");
}

// --- waiting ----------------------------------------------------------------------------------

bool Client::is_done(uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  return !unfinished_.contains(sequence);
}

Result<> Client::wait(uint64_t sequence) {
  return wait_until([&] { return !unfinished_.contains(sequence); });
}

// At most one thread reads, and the others wait for what it dispatches. A reader that has what it
// waited for wakes the others, one of which takes its place.
template <class Predicate>
Result<> Client::wait_until(Predicate is_satisfied) {
  std::unique_lock lock(mutex_);
  while (!is_satisfied()) {
    if (is_broken_) return broken("wait for the simulated GPU");
    if (has_reader_) {
      changed_.wait(lock);
      continue;
    }
    if (!read_as_reader(lock, true)) continue;  // is_broken_ is set
  }
  return {};
}

Result<> Client::poll() {
  std::unique_lock lock(mutex_);
  if (is_broken_) return broken("poll the simulated GPU");
  if (has_reader_) return {};
  return read_as_reader(lock, false);
}

// Requires that no other thread reads. Gives the lock up during the read.
Result<> Client::read_as_reader(std::unique_lock<std::mutex>& lock, bool may_block) {
  has_reader_ = true;
  lock.unlock();
  auto read = read_some(may_block);
  lock.lock();
  has_reader_ = false;
  if (!read) is_broken_ = true;
  changed_.notify_all();
  return read;
}

// --- the socket -------------------------------------------------------------------------------

Result<> Client::send(Kind kind, uint64_t tag, std::span<const std::byte> body,
                      std::span<const std::byte> extra) {
  const Header header{static_cast<uint32_t>(sizeof(Header) + body.size() + extra.size()),
                      static_cast<uint16_t>(kind), 0, tag};
  std::array<std::span<const std::byte>, 3> parts{bytes_of(header), body, extra};
  const std::lock_guard lock(send_mutex_);
  size_t left = header.bytes;
  while (left > 0) {
    std::array<iovec, 3> vectors{};
    for (size_t i = 0; i < parts.size(); ++i)
      vectors[i] = {const_cast<std::byte*>(parts[i].data()), parts[i].size()};
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = vectors.size();
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return errno_error("send to the simulated GPU");
    }
    left -= static_cast<size_t>(sent);
    size_t skip = static_cast<size_t>(sent);
    for (auto& part : parts) {
      const size_t taken = std::min(skip, part.size());
      part = part.subspan(taken);
      skip -= taken;
    }
  }
  return {};
}

Result<> Client::read_some(bool may_block) {
  for (bool is_first = true;; is_first = false) {
    const size_t room = inbox_.size() - inbox_used_;
    // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): wait_until() has unlocked
    const ssize_t got = ::recv(socket_.get(), inbox_.data() + inbox_used_, room,
                               may_block && is_first ? 0 : MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR || errno == EAGAIN) return {};
      return errno_error("read from the simulated GPU");
    }
    if (got == 0) return broken("read from the simulated GPU");
    inbox_used_ += static_cast<size_t>(got);
    if (auto done = dispatch_inbox(); !done) return done;
    if (static_cast<size_t>(got) < room) return {};
  }
}

// Dispatches the whole messages and moves what is left to the front, so that there is always room.
Result<> Client::dispatch_inbox() {
  size_t at = 0;
  while (inbox_used_ - at >= sizeof(Header)) {
    Header header;
    std::memcpy(&header, inbox_.data() + at, sizeof header);
    if (header.bytes < sizeof header || header.bytes > kMaxMessageBytes)
      return make_error(std::errc::bad_message, "read from the simulated GPU");
    if (inbox_used_ - at < header.bytes) break;
    const auto body = std::span(inbox_).subspan(at + sizeof header, header.bytes - sizeof header);
    if (auto done = dispatch(header, body); !done) return done;
    at += header.bytes;
  }
  inbox_used_ -= at;
  std::memmove(inbox_.data(), inbox_.data() + at, inbox_used_);
  return {};
}

Result<> Client::dispatch(const Header& header, std::span<const std::byte> body) {
  if (header.kind == static_cast<uint16_t>(Kind::kCompletion)) {
    const auto completion = as<Completion>(body, "read a completion");
    if (!completion) return std::unexpected(completion.error());
    if (on_completion_) on_completion_(*completion);
    const std::lock_guard lock(mutex_);
    unfinished_.erase(completion->sequence);
  } else if (header.kind == static_cast<uint16_t>(Kind::kEvent)) {
    const auto event = as<Event>(body, "read an event");
    if (!event) return std::unexpected(event.error());
    if (on_event_) on_event_(*event);
  } else {
    const std::lock_guard lock(mutex_);
    if (awaited_.erase(header.tag) != 0)
      answers_.emplace(header.tag, std::vector(body.begin(), body.end()));
  }
  return {};
}

}  // namespace gpushare::sim
