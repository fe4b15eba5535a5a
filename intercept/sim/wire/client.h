// SPDX-License-Identifier: Apache-2.0
// One connection to a simulated GPU (gpushare-sim): what the stand-in libcuda.so.1 submits work
// through and what RemoteGpu controls through.
//
// Thread-safe. There is no thread inside: a thread that waits for an answer or a completion reads
// the socket itself, and hands to the others what is theirs; so an answer costs two context
// switches. When the server goes away every call, also one that waits, returns connection_reset.
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
  // Called once for each piece of work, in the order of completion, never two at a time, on
  // whichever thread reads; before wait() or is_done() show the completion. It may call submit()
  // and stop(), and nothing else of this class.
  using CompletionHandler = std::function<void(const Completion&)>;
  using EventHandler = std::function<void(const Event&)>;

  // The server knows the caller by its socket credentials.
  // Errors: those of connect(2); protocol_error when the server speaks another version.
  static Result<std::unique_ptr<Client>> connect(const std::string& path, Role role,
                                                 CompletionHandler on_completion = {},
                                                 EventHandler on_event = {});

  uint32_t gpu_count() const { return gpu_count_; }
  int fd() const { return socket_.get(); }  // readable when poll() has something to do

  Result<DescribeReply> describe(uint32_t gpu);
  Result<MemoryReply> memory(uint32_t gpu);

  Result<ContextReply> create_context(uint32_t gpu, uint32_t mps_server = 0);
  // Its unfinished work is dropped: it is done for wait(), without a call of the handler.
  Result<> destroy_context(uint32_t context);
  Result<uint32_t> allocate(uint32_t context, uint64_t bytes);  // not_enough_memory
  Result<> free(uint32_t memory);

  // Returns when the message is in the socket; blocks only while that is full.
  Result<> submit(const Work& work);
  Result<> stop(uint64_t sequence);
  Result<ProgressReply> query(uint64_t sequence);

  // Submitted and not completed is the only state in which work is not done.
  bool is_done(uint64_t sequence) const;
  Result<> wait(uint64_t sequence);
  // Takes in what has arrived; never blocks.
  Result<> poll();

  // One request and its answer, for everything else: `body` and `extra` are sent behind each other.
  // The answer is the reply's body, ReplyHead first, its status already turned into an error;
  // `step` is that error's.
  Result<std::vector<std::byte>> call(Kind kind, std::span<const std::byte> body,
                                      std::span<const std::byte> extra, const char* step);

 private:
  Client(Fd socket, CompletionHandler on_completion, EventHandler on_event);

  Result<> send(Kind kind, uint64_t tag, std::span<const std::byte> body,
                std::span<const std::byte> extra);
  template <class Predicate>
  Result<> wait_until(Predicate is_satisfied);
  Result<> read_some(bool may_block);
  Result<> dispatch_inbox();
  Result<> dispatch(const Header& header, std::span<const std::byte> body);
  template <class Reply, class Request>
  Result<Reply> ask(Kind kind, const Request& request, const char* step);

  const Fd socket_;
  const CompletionHandler on_completion_;
  const EventHandler on_event_;
  uint32_t gpu_count_ = 0;

  std::mutex send_mutex_;  // held for one whole message
  // Only the thread that set has_reader_ touches the inbox.
  std::vector<std::byte> inbox_;
  size_t inbox_used_ = 0;

  mutable std::mutex mutex_;  // protects what follows
  std::condition_variable changed_;
  bool has_reader_ = false;
  bool is_broken_ = false;
  uint64_t next_tag_ = 1;
  std::unordered_set<uint64_t> awaited_;                          // tags without an answer yet
  std::unordered_map<uint64_t, std::vector<std::byte>> answers_;  // by tag, until fetched
  std::unordered_map<uint64_t, uint32_t> unfinished_;             // sequence -> context
};

}  // namespace gpushare::sim
