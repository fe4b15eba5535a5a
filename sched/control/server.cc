// SPDX-License-Identifier: Apache-2.0
#include "sched/control/server.h"

#include <malloc.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <asio/local/stream_protocol.hpp>
#include <asio/post.hpp>
#include <asio/read_until.hpp>
#include <asio/steady_timer.hpp>
#include <asio/thread_pool.hpp>
#include <asio/write.hpp>
#include <deque>
#include <exception>
#include <future>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "sched/control/turns.h"
#include "shmctl/base/aside.h"
#include "shmctl/base/log.h"
#include "shmctl/base/unix_socket.h"

namespace gpushare {
namespace {

using Protocol = asio::local::stream_protocol;
using ErrorCode = std::error_code;

}  // namespace

struct ControlServer::Impl : std::enable_shared_from_this<Impl> {
  struct Session;
  using Sessions = std::set<std::shared_ptr<Session>>;

  Impl(asio::io_context& on, std::string socket_path, Handle handler, const Patience& patience_is)
      : loop(on),
        acceptor(on),
        path(std::move(socket_path)),
        handle(std::move(handler)),
        patience(patience_is),
        look(on) {}

  void accept();
  bool has_room(uid_t user) const;
  void close_all();
  void take_turn();
  void take_turn_aside();
  void account(Session& session, std::ptrdiff_t bytes);
  void look_around();
  void ask_for_group();

  asio::io_context& loop;
  Protocol::acceptor acceptor;
  const std::string path;
  const Handle handle;
  const Patience patience;
  std::optional<gid_t> admins;  // the group; refreshed at each look
  Sessions sessions;
  std::map<uid_t, std::size_t> unsent_of;  // bytes; no entry: none
  std::size_t unsent = 0;                  // their sum
  std::future<std::optional<gid_t>> asked_group;

  struct Request {
    std::shared_ptr<Session> session;
    std::string line;
  };
  struct Later {
    std::shared_ptr<Session> session;
    std::function<std::string()> make;
  };
  Turns<Request> requests;
  Turns<Later> laters;
  bool is_turn_due = false, is_busy_aside = false;
  asio::steady_timer look;
  asio::thread_pool aside{1};  // last, so that its thread ends first
};

// One connection. It lives while it is in Impl::sessions or one of its operations is pending.
struct ControlServer::Impl::Session : std::enable_shared_from_this<Session> {
  Session(const std::shared_ptr<Impl>& owner, Protocol::socket connected)
      : server(owner),
        socket(std::move(connected)),
        trace_end(socket.get_executor()),
        peer(identify_peer(socket.native_handle(), owner->admins)) {}

  // Reads one request. The next one is read when this one is answered.
  void read() {
    asio::async_read_until(
        socket, asio::dynamic_buffer(received, kLongestRequest), '\n',
        [self = shared_from_this()](ErrorCode error, std::size_t bytes) {
          if (error == asio::error::not_found) {
            self->is_ending = true;
            return self->send(refusal_line("the request is longer than 64 KiB", "usage"));
          }
          const auto owner = self->server.lock();
          if (error || !owner) return self->close();
          self->active = MonotonicClock().now();
          self->is_asking = true;
          owner->requests.add(self->peer.uid, {self, self->received.substr(0, bytes - 1)});
          self->received.erase(0, bytes);
          owner->take_turn();
        });
  }

  void answer(std::string line, const std::optional<Nanos>& trace = std::nullopt) {
    is_asking = false;
    send(std::move(line));
    if (trace) start_trace(*trace);
    if (socket.is_open()) read();
  }

  void start_trace(Nanos duration) {
    is_tracing = true;
    lost = 0;
    trace_end.expires_after(duration);
    trace_end.async_wait([self = shared_from_this()](ErrorCode error) {
      if (error) return;
      self->is_tracing = false;
      self->send(trace_end_line(self->lost));
    });
  }

  void send_traced(const std::string& line) {
    const auto owner = server.lock();
    if (!owner) return;
    const auto own = owner->unsent_of.find(peer.uid);
    // A trace with gaps is better than a connection that ends.
    if (own != owner->unsent_of.end() && own->second + line.size() > kMostUnsentOfUser / 2) {
      ++lost;
      return;
    }
    send(line);
  }

  void send(std::string line) {
    const auto owner = server.lock();
    if (!socket.is_open() || !owner) return;
    const auto bytes = static_cast<std::ptrdiff_t>(line.size() + 1);
    unsent.push_back(std::move(line));
    owner->account(*this, bytes);
    if (socket.is_open() && !is_writing) write();
  }

  // Everything that waits is written in one call.
  void write() {
    is_writing = true;
    active = MonotonicClock().now();
    writing.assign(std::make_move_iterator(unsent.begin()), std::make_move_iterator(unsent.end()));
    unsent.clear();
    std::vector<asio::const_buffer> buffers;
    buffers.reserve(2 * writing.size());
    for (const std::string& line : writing) {  // an added newline could double the string's memory
      buffers.push_back(asio::buffer(line));
      buffers.push_back(asio::buffer("\n", 1));
    }
    asio::async_write(socket, buffers,
                      [self = shared_from_this()](ErrorCode error, std::size_t bytes) {
                        self->is_writing = false;
                        if (error) return self->close();
                        self->writing.clear();
                        self->active = MonotonicClock().now();
                        if (const auto owner = self->server.lock())
                          owner->account(*self, -static_cast<std::ptrdiff_t>(bytes));
                        if (!self->unsent.empty()) return self->write();
                        if (self->is_ending) self->close();
                      });
  }

  // It neither asks, nor reads what it was sent.
  bool is_idle(Time now, Nanos longest) const {
    const bool is_at_rest = !is_writing && (is_tracing || is_asking);
    return !is_at_rest && now - active >= longest;
  }

  void close() {
    if (!socket.is_open()) return;
    ErrorCode ignored;
    (void)socket.close(ignored);
    trace_end.cancel();
    is_tracing = false;
    const auto owner = server.lock();
    if (!owner) return;
    owner->account(*this, -static_cast<std::ptrdiff_t>(unsent_bytes));
    owner->sessions.erase(shared_from_this());
  }

  const std::weak_ptr<Impl> server;
  Protocol::socket socket;
  asio::steady_timer trace_end;
  const Peer peer;
  std::string received;
  std::deque<std::string> unsent;
  std::vector<std::string> writing;
  std::size_t unsent_bytes = 0;  // of both; as Impl::account() keeps it
  Time active = MonotonicClock().now();
  bool is_writing = false, is_ending = false, is_tracing = false;
  bool is_asking = false;  // a request of it waits for its turn or its answer
  uint64_t lost = 0;       // trace lines that this client did not get
};

// Handles one request, and goes on in the next turn of the loop.
void ControlServer::Impl::take_turn() {
  if (std::exchange(is_turn_due, true)) return;
  asio::post(loop, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->is_turn_due = false;
    auto request = self->requests.take();
    if (!request) return;
    if (!self->requests.is_empty()) self->take_turn();
    const auto& session = request->session;
    if (!session->socket.is_open()) return;
    Answer answer = self->handle(request->line, session->peer);
    if (!answer.later) return session->answer(std::move(answer.line), answer.trace);
    self->laters.add(session->peer.uid, {session, std::move(answer.later)});
    self->take_turn_aside();
  });
}

// Makes one answer on the other thread, and goes on when it is there.
void ControlServer::Impl::take_turn_aside() {
  if (is_busy_aside) return;
  auto next = laters.take();
  if (!next) return;
  is_busy_aside = true;
  asio::post(aside, [weak = weak_from_this(), &on = loop, next = std::move(*next)]() mutable {
    std::string line = next.make();
    asio::post(on, [weak = std::move(weak), session = std::move(next.session),
                    line = std::move(line)]() mutable {
      const auto self = weak.lock();
      if (!self) return;
      self->is_busy_aside = false;
      if (session->socket.is_open()) session->answer(std::move(line));
      self->take_turn_aside();
    });
  });
}

// Counts bytes that wait from now on, or no longer, and ends the connections that this is too much
// for.
void ControlServer::Impl::account(Session& session, std::ptrdiff_t bytes) {
  const auto add = [bytes](std::size_t& sum) {
    sum = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(sum) + bytes);
  };
  std::size_t& own = unsent_of[session.peer.uid];
  add(session.unsent_bytes);
  add(own);
  add(unsent);
  if (own == 0) {
    unsent_of.erase(session.peer.uid);
  } else if (bytes > 0 && own > kMostUnsentOfUser) {
    session.close();
  } else if (bytes > 0 && unsent > kMostUnsent) {
    // Of the user who holds most: nobody is dropped for what others do not read.
    const auto most =
        std::ranges::max_element(sessions, {}, [&](const std::shared_ptr<Session>& one) {
          const auto user = unsent_of.find(one->peer.uid);
          return std::pair(user == unsent_of.end() ? 0 : user->second, one->unsent_bytes);
        });
    std::shared_ptr(*most)->close();  // a copy, because it leaves the set
  }
}

bool ControlServer::Impl::has_room(uid_t user) const {
  if (user == 0) return sessions.size() < kMostClients + kClientsOfRoot;
  const auto own = std::ranges::count_if(
      sessions, [&](const auto& session) { return session->peer.uid == user; });
  return sessions.size() < kMostClients && static_cast<std::size_t>(own) < kMostClientsOfUser;
}

void ControlServer::Impl::accept() {
  acceptor.async_accept([weak = weak_from_this()](ErrorCode error, Protocol::socket connected) {
    const auto self = weak.lock();
    if (!self || error == asio::error::operation_aborted) return;
    if (!error) {
      const auto session = std::make_shared<Session>(self, std::move(connected));
      if (self->has_room(session->peer.uid)) {
        self->sessions.insert(session);
        session->read();
      } else {  // its socket takes the line at once, or never
        const std::string line = refusal_line("too many connections", "busy") + "\n";
        (void)::send(session->socket.native_handle(), line.data(), line.size(),
                     MSG_DONTWAIT | MSG_NOSIGNAL);
      }
    }
    self->accept();
  });
}

// Ends idle connections, now and then.
void ControlServer::Impl::look_around() {
  look.expires_after(patience.look);
  look.async_wait([weak = weak_from_this()](ErrorCode error) {
    const auto self = weak.lock();
    if (error || !self) return;
    const Time now = MonotonicClock().now();
    const Sessions all = self->sessions;  // those that end leave the set
    for (const auto& session : all)
      if (session->is_idle(now, self->patience.idle)) session->close();
    self->ask_for_group();
    self->look_around();
  });
}

// The group may be made, or changed, while the agent runs, and the name service may be slow: what
// it says is taken at the next look.
void ControlServer::Impl::ask_for_group() {
  if (!asked_group.valid()) {
    asked_group = start_aside<std::optional<gid_t>>(admin_group);
  } else if (asked_group.wait_for(Nanos{}) == std::future_status::ready) {
    admins = asked_group.get();
  }
}

void ControlServer::Impl::close_all() {
  ErrorCode ignored;
  (void)acceptor.close(ignored);
  look.cancel();
  requests.clear();
  laters.clear();
  while (!sessions.empty()) {
    const std::shared_ptr<Session> session = *sessions.begin();
    session->close();
    sessions.erase(session);
  }
  ::unlink(path.c_str());
  aside.join();
}

Result<std::unique_ptr<ControlServer>> ControlServer::listen(asio::io_context& loop,
                                                             const std::string& path, Handle handle,
                                                             const Patience& patience) {
  constexpr const char* kStep = "listen on the control socket";
  // Large answers go back to the system when they are read: left to itself the allocator would
  // learn to keep blocks of their size, several times kMostUnsent.
  ::mallopt(M_MMAP_THRESHOLD, 128 << 10);
  auto listener = listen_on_socket(path, 0660, kStep);
  if (!listener) return std::unexpected(listener.error());
  auto impl = std::make_shared<Impl>(loop, path, std::move(handle), patience);
  ErrorCode error;
  (void)impl->acceptor.assign(Protocol(), listener->get(), error);
  if (error) return std::unexpected(Error{error, kStep, path});
  (void)listener->release();  // it is the acceptor's

  const std::optional<gid_t> group = impl->admins = admin_group();
  if (!group) {
    log_info("there is no group '{}': only root may connect to {}", kAdminGroup, path);
  } else if (::chown(path.c_str(), static_cast<uid_t>(-1), *group) != 0) {
    log_warning("{} could not be given to group '{}': only its owner may connect", path,
                kAdminGroup);
  }
  impl->accept();
  impl->look_around();
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
}

ControlServer::~ControlServer() {
  try {
    impl_->close_all();
  } catch (const std::exception& error) {
    log_error("close the control socket: {}", error.what());
  }
}

bool ControlServer::is_traced() const {
  return std::ranges::any_of(impl_->sessions,
                             [](const auto& session) { return session->is_tracing; });
}

void ControlServer::trace(const std::string& line) {
  // The loop runs over a copy, because a session that overflows leaves the set.
  const Impl::Sessions all = impl_->sessions;
  for (const auto& session : all)
    if (session->is_tracing) session->send_traced(line);
}

}  // namespace gpushare
