// SPDX-License-Identifier: Apache-2.0
// Client: one connection to gpushare-sim. The stand-in libcuda.so.1 submits work through it, and
// RemoteGpu and SimObserver use it for the agent.
//
// Any thread may call. The client has no thread of its own: a thread that waits for an answer or a
// completion reads the socket itself and passes on what the others wait for, so that an answer
// costs two context switches. When the server goes away, every call returns connection_reset, also
// one that waits.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "intercept/sim/wire/protocol.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare::sim {

class Client {
 public:
  // Called once for each piece of work, in the order of completion, never two at a time, on the
  // thread that reads, before wait() or is_done() show the completion. It may call submit() and
  // stop(), and nothing else of this class.
  using CompletionHandler = std::function<void(const Completion&)>;
  using EventHandler = std::function<void(const Event&)>;

  // Connects to the server, which knows the caller by its socket credentials. Errors: those of
  // connect(2), and protocol_error when the server has another version.
  static Result<std::unique_ptr<Client>> connect(const std::string& path, Role role,
                                                 CompletionHandler on_completion = {},
                                                 EventHandler on_event = {});

  uint32_t gpu_count() const { return gpu_count_; }
  // HelloReply::load.
  uint64_t load() const { return load_; }
  // Readable when poll() has something to do.
  int fd() const { return socket_.get(); }

  Result<DescribeReply> describe(uint32_t gpu);
  Result<MemoryReply> memory(uint32_t gpu);

  Result<ContextReply> create_context(uint32_t gpu, uint32_t mps_server = 0,
                                      bool is_hidden = false);
  // Drops the context's unfinished work: wait() takes it as done, and the handler is not called.
  Result<> destroy_context(uint32_t context);
  // Error not_enough_memory when the GPU has not so much left.
  Result<uint32_t> allocate(uint32_t context, uint64_t bytes);
  Result<> free(uint32_t memory);

  // Returns when the message is in the socket, and blocks only while the socket is full.
  Result<> submit(const Work& work);
  Result<> stop(uint64_t sequence);
  Result<ProgressReply> query(uint64_t sequence);

  // False only for work that was submitted and has not completed.
  bool is_done(uint64_t sequence) const;
  Result<> wait(uint64_t sequence);
  // Reads what has arrived, without blocking.
  Result<> poll();

  // Makes any other request: `body` and then `extra` are sent. Returns the reply's body with its
  // ReplyHead, whose status has become the error; `step` says in it what was attempted.
  Result<std::vector<std::byte>> call(Kind kind, std::span<const std::byte> body,
                                      std::span<const std::byte> extra, const char* step);

 private:
  Client(Fd socket, CompletionHandler on_completion, EventHandler on_event);

  Result<> send(Kind kind, uint64_t tag, std::span<const std::byte> body,
                std::span<const std::byte> extra);
  template <class Predicate>
  Result<> wait_until(Predicate is_satisfied);
  Result<> read_as_reader(std::unique_lock<std::mutex>& lock, bool may_block);
  Result<> read_some(bool may_block);
  Result<> dispatch_inbox();
  Result<> dispatch(const Header& header, std::span<const std::byte> body);
  template <class Reply, class Request>
  Result<Reply> ask(Kind kind, const Request& request, const char* step);

  const Fd socket_;
  const CompletionHandler on_completion_;
  const EventHandler on_event_;
  uint32_t gpu_count_ = 0;
  uint64_t load_ = 0;

  std::mutex send_mutex_;  // held while one whole message is sent
  // Only the thread that set has_reader_ touches the inbox.
  std::vector<std::byte> inbox_;
  size_t inbox_used_ = 0;

  mutable std::mutex mutex_;  // protects the members that follow
  std::condition_variable changed_;
  bool has_reader_ = false;
  bool is_broken_ = false;
  uint64_t next_tag_ = 1;
  std::unordered_set<uint64_t> awaited_;                          // tags that have no answer yet
  std::unordered_map<uint64_t, std::vector<std::byte>> answers_;  // by tag, until fetched
  std::unordered_map<uint64_t, uint32_t> unfinished_;             // sequence -> context
};

}  // namespace gpushare::sim
