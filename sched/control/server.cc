// SPDX-License-Identifier: Apache-2.0
#include "sched/control/server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <exception>
#include <set>
#include <vector>

#include "shmctl/base/log.h"

namespace gpushare {
namespace {

namespace asio = boost::asio;
using Protocol = asio::local::stream_protocol;
using ErrorCode = boost::system::error_code;

}  // namespace

struct ControlServer::Impl : std::enable_shared_from_this<Impl> {
  struct Session;

  Impl(asio::io_context& loop, std::string socket_path, Handle handler)
      : acceptor(loop), path(std::move(socket_path)), handle(std::move(handler)) {}

  void accept();
  void close_all();

  Protocol::acceptor acceptor;
  const std::string path;
  const Handle handle;
  std::set<std::shared_ptr<Session>> sessions;
};

// One connection. It lives while it is in Impl::sessions or one of its operations is pending.
struct ControlServer::Impl::Session : std::enable_shared_from_this<Session> {
  Session(const std::shared_ptr<Impl>& owner, Protocol::socket connected)
      : server(owner),
        socket(std::move(connected)),
        trace_end(socket.get_executor()),
        peer(identify_peer(socket.native_handle())) {}

  void read() {
    asio::async_read_until(
        socket, asio::dynamic_buffer(received, kLongestRequest), '\n',
        [self = shared_from_this()](ErrorCode error, std::size_t bytes) {
          if (error == asio::error::not_found) {
            self->send(refusal_line("the request is longer than 64 KiB", "usage"));
            self->is_ending = true;
            return;
          }
          if (error) return self->close();
          const std::string line = self->received.substr(0, bytes - 1);
          self->received.erase(0, bytes);
          self->answer(line);
          if (self->socket.is_open()) self->read();
        });
  }

  void answer(const std::string& line) {
    const auto owner = server.lock();
    if (!owner) return close();
    Answer answer = owner->handle(line, peer);
    send(std::move(answer.line));
    if (answer.trace) start_trace(*answer.trace);
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
    // A trace with gaps is better than a connection that ends at kMostUnsent.
    if (unsent_bytes + line.size() > kMostUnsent / 2) {
      ++lost;
      return;
    }
    send(line);
  }

  void send(std::string line) {
    if (!socket.is_open()) return;
    line += '\n';
    unsent_bytes += line.size();
    if (unsent_bytes > kMostUnsent) return close();
    unsent.push_back(std::move(line));
    if (!is_writing) write();
  }

  // Everything that waits is written in one call.
  void write() {
    is_writing = true;
    writing.assign(std::make_move_iterator(unsent.begin()), std::make_move_iterator(unsent.end()));
    unsent.clear();
    std::vector<asio::const_buffer> buffers;
    buffers.reserve(writing.size());
    for (const std::string& line : writing) buffers.push_back(asio::buffer(line));
    asio::async_write(socket, buffers,
                      [self = shared_from_this()](ErrorCode error, std::size_t bytes) {
                        self->is_writing = false;
                        self->unsent_bytes -= bytes;
                        if (error) return self->close();
                        if (!self->unsent.empty()) return self->write();
                        if (self->is_ending) self->close();
                      });
  }

  void close() {
    if (!socket.is_open()) return;
    ErrorCode ignored;
    socket.close(ignored);
    trace_end.cancel();
    is_tracing = false;
    if (const auto owner = server.lock()) owner->sessions.erase(shared_from_this());
  }

  const std::weak_ptr<Impl> server;
  Protocol::socket socket;
  asio::steady_timer trace_end;
  const Peer peer;
  std::string received;
  std::deque<std::string> unsent;
  std::vector<std::string> writing;
  std::size_t unsent_bytes = 0;
  bool is_writing = false, is_ending = false, is_tracing = false;
  uint64_t lost = 0;  // trace lines that this client did not get
};

void ControlServer::Impl::accept() {
  acceptor.async_accept([weak = weak_from_this()](ErrorCode error, Protocol::socket connected) {
    const auto self = weak.lock();
    if (!self || error == asio::error::operation_aborted) return;
    if (!error) {
      const auto session = std::make_shared<Session>(self, std::move(connected));
      self->sessions.insert(session);
      if (self->sessions.size() > kMostClients) {
        session->is_ending = true;
        session->send(refusal_line("too many connections", "failed"));
      } else {
        session->read();
      }
    }
    self->accept();
  });
}

void ControlServer::Impl::close_all() {
  ErrorCode ignored;
  acceptor.close(ignored);
  while (!sessions.empty()) {
    const std::shared_ptr<Session> session = *sessions.begin();
    sessions.erase(sessions.begin());
    session->close();
  }
  ::unlink(path.c_str());
}

Result<std::unique_ptr<ControlServer>> ControlServer::listen(asio::io_context& loop,
                                                             const std::string& path,
                                                             Handle handle) {
  constexpr const char* kStep = "listen on the control socket";
  if (path.empty() || path.size() >= sizeof(sockaddr_un::sun_path))
    return make_error(std::errc::filename_too_long, kStep, path);
  const Protocol::endpoint endpoint(path);
  auto impl = std::make_shared<Impl>(loop, path, std::move(handle));

  ErrorCode error;
  Protocol::socket probe(loop);
  probe.connect(endpoint, error);
  if (!error) return make_error(std::errc::address_in_use, kStep, path + ": an agent is running");
  if (error == asio::error::connection_refused) ::unlink(path.c_str());

  impl->acceptor.open(endpoint.protocol(), error);
  const mode_t before = ::umask(0117);  // the socket is never open to others, not even for a moment
  if (!error) impl->acceptor.bind(endpoint, error);
  ::umask(before);
  if (!error) impl->acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    return std::unexpected(
        Error{std::error_code(error.value(), std::generic_category()), kStep, path});

  const std::optional<gid_t> group = admin_group();
  if (!group) {
    log_info("there is no group '{}': only root may connect to {}", kAdminGroup, path);
  } else if (::chown(path.c_str(), static_cast<uid_t>(-1), *group) != 0) {
    log_warning("{} could not be given to group '{}': only its owner may connect", path,
                kAdminGroup);
  }
  impl->accept();
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
  const std::vector<std::shared_ptr<Impl::Session>> all(impl_->sessions.begin(),
                                                        impl_->sessions.end());
  for (const auto& session : all)
    if (session->is_tracing) session->send_traced(line);
}

}  // namespace gpushare
