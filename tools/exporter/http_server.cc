// SPDX-License-Identifier: Apache-2.0
#include "tools/exporter/http_server.h"

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <list>
#include <map>
#include <utility>

#include "shmctl/base/clock.h"

namespace gpushare {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr const char* kStep = "listen for scrapes";
constexpr auto kPatience = std::chrono::seconds(10);
constexpr auto kAfterFailure = std::chrono::milliseconds(200);
constexpr uint32_t kLongestHead = 16 << 10;
constexpr Nanos kSamePage = std::chrono::seconds(1);
// The system would let a client that reads slowly hold megabytes of it.
constexpr int kSendBuffer = 256 << 10;

using SharedPage = std::shared_ptr<const HttpServer::Page>;
using Head = http::response<http::span_body<const char>>;

// The head names a part of the page, which lives beside it.
struct Answer {
  SharedPage page{};
  Head head{};
};

// `page_at` gives the page of a path, or nullptr.
Answer answer_to(const http::request<http::empty_body>& request, const auto& page_at) {
  const auto with = [&](http::status status, SharedPage page) {
    Answer answer{.page = std::move(page), .head = Head(status, request.version())};
    const std::string& body = answer.page->body;
    answer.head.set(http::field::content_type, answer.page->type);
    answer.head.set("X-Content-Type-Options", "nosniff");
    answer.head.keep_alive(request.keep_alive());
    answer.head.content_length(body.size());
    if (request.method() != http::verb::head) answer.head.body() = {body.data(), body.size()};
    return answer;
  };
  const auto of = [&](http::status status, const char* type, const char* body) {
    return with(status, std::make_shared<HttpServer::Page>(HttpServer::Page{type, body}));
  };
  constexpr const char* kPlain = "text/plain; charset=utf-8";
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    Answer refused = of(http::status::method_not_allowed, kPlain, "GET or HEAD only\n");
    refused.head.set(http::field::allow, "GET, HEAD");
    return refused;
  }
  const std::string target(request.target());
  SharedPage page = page_at(target.substr(0, target.find('?')));
  if (!page) return of(http::status::not_found, kPlain, "there is no such page\n");
  return with(http::status::ok, std::move(page));
}

// Whose connection it is: the address, of version 6 the part that names a network, as whoever has
// one address of that has them all. A client that is gone already has the address 0.
asio::ip::address_v6::bytes_type client_of(const tcp::socket& socket) {
  error_code failure;
  const asio::ip::address address = socket.remote_endpoint(failure).address();
  if (failure) return {};
  if (address.is_v4()) return make_address_v6(asio::ip::v4_mapped, address.to_v4()).to_bytes();
  auto bytes = address.to_v6().to_bytes();
  if (!address.to_v6().is_v4_mapped()) std::fill(bytes.begin() + 8, bytes.end(), 0);
  return bytes;
}

}  // namespace

struct HttpServer::Impl : std::enable_shared_from_this<Impl> {
  class Session;

  Impl(asio::io_context& loop, Pages served)
      : acceptor(loop), pause(loop), pages(std::move(served)) {}

  void accept() {
    acceptor.async_accept([self = shared_from_this()](error_code failure, tcp::socket socket) {
      if (failure == asio::error::operation_aborted || !self->acceptor.is_open()) return;
      if (failure) return self->accept_later();
      self->serve(std::move(socket));
      self->accept();
    });
  }
  // For example when there are no descriptors left: without a pause that would spin.
  void accept_later() {
    pause.expires_after(kAfterFailure);
    pause.async_wait([self = shared_from_this()](error_code failure) {
      if (!failure && self->acceptor.is_open()) self->accept();
    });
  }
  void serve(tcp::socket socket);
  void make_room_for(const Session& next);

  // One that is sent to somebody else at this time is not made a second time, so that clients that
  // do not read hold few of them.
  SharedPage page_at(const std::string& path) {
    const Time now = MonotonicClock().now();
    if (const auto made = sent.find(path); made != sent.end() && now - made->second.at < kSamePage)
      if (SharedPage page = made->second.page.lock()) return page;
    auto page = pages(path);
    if (!page) return nullptr;
    const auto whole = std::make_shared<const HttpServer::Page>(*std::move(page));
    sent[path] = {whole, now};
    return whole;
  }
  struct Sent {
    std::weak_ptr<const HttpServer::Page> page;
    Time at{};
  };

  tcp::acceptor acceptor;
  asio::steady_timer pause;
  const Pages pages;
  std::map<std::string, Sent> sent;  // of those that there are
  std::list<Session*> sessions;      // in the order in which they began what they do now
};

// One connection. It lives for as long as one of its operations is under way.
class HttpServer::Impl::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, std::shared_ptr<Impl> server)
      : client_(client_of(socket)), stream_(std::move(socket)), server_(std::move(server)) {
    error_code ignored;
    (void)stream_.socket().set_option(asio::socket_base::send_buffer_size(kSendBuffer), ignored);
  }
  ~Session() { std::erase(server_->sessions, this); }

  const auto& client() const { return client_; }
  bool is_idle() const { return is_idle_; }

  void read() {
    parser_.emplace();
    parser_->header_limit(kLongestHead);
    parser_->body_limit(0);
    begin(true);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](error_code failure, std::size_t) {
                       if (!failure) self->answer();
                     });
  }
  // The operation that is under way fails.
  void stop() {
    std::erase(server_->sessions, this);
    stream_.close();
  }

 private:
  void answer() {
    if (!stream_.socket().is_open()) return;  // it was stopped after its request had come
    answer_ = answer_to(parser_->get(), [&](const auto& path) { return server_->page_at(path); });
    begin(false);
    http::async_write(stream_, answer_.head,
                      [self = shared_from_this()](error_code failure, std::size_t) {
                        if (failure || !self->stream_.socket().is_open()) return;
                        if (self->answer_.head.need_eof()) return self->close();
                        self->answer_ = {};
                        self->read();
                      });
  }
  // What it does from now on, for as long as it may take.
  void begin(bool is_idle) {
    is_idle_ = is_idle;
    std::erase(server_->sessions, this);
    server_->sessions.push_back(this);
    stream_.expires_after(kPatience);
  }
  void close() {
    error_code ignored;
    (void)stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  }

  const asio::ip::address_v6::bytes_type client_;
  beast::tcp_stream stream_;
  const std::shared_ptr<Impl> server_;
  bool is_idle_ = true;
  beast::flat_buffer buffer_{kLongestHead};
  std::optional<http::request_parser<http::empty_body>> parser_;
  Answer answer_;
};

void HttpServer::Impl::serve(tcp::socket socket) {
  const auto session = std::make_shared<Session>(std::move(socket), shared_from_this());
  make_room_for(*session);
  session->read();
}

// Whoever has the most connections gives one of them up.
void HttpServer::Impl::make_room_for(const Session& next) {
  if (sessions.size() < kMostClients) return;
  const auto connections = [&](const Session* session) {
    return std::ranges::count(sessions, session->client(), &Session::client) +
           (session->client() == next.client());
  };
  // Of equals the first, which is the one that has been at it for the longest.
  (*std::ranges::max_element(sessions, {}, [&](const Session* session) {
    return std::pair(connections(session), session->is_idle());
  }))->stop();
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(asio::io_context& loop,
                                                       const std::string& address, uint16_t port,
                                                       Pages pages) {
  error_code failure;
  const auto where = asio::ip::make_address(address, failure);
  if (failure)
    return make_error(std::errc::invalid_argument, kStep,
                      "'" + address + "' is no address of IP, such as 127.0.0.1 or ::");
  auto impl = std::make_shared<Impl>(loop, std::move(pages));
  const tcp::endpoint endpoint(where, port);
  const auto refused = [&]() -> Result<std::unique_ptr<HttpServer>> {
    return std::unexpected(
        Error{std::error_code(failure), kStep, address + " port " + std::to_string(port)});
  };
  (void)impl->acceptor.open(endpoint.protocol(), failure);
  if (failure) return refused();
  (void)impl->acceptor.set_option(tcp::acceptor::reuse_address(true), failure);
  (void)impl->acceptor.bind(endpoint, failure);
  if (failure) return refused();
  (void)impl->acceptor.listen(asio::socket_base::max_listen_connections, failure);
  if (failure) return refused();
  impl->accept();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::~HttpServer() {
  error_code ignored;
  (void)impl_->acceptor.close(ignored);
}

uint16_t HttpServer::port() const {
  error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
}

}  // namespace gpushare
