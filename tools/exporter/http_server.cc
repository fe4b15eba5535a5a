// SPDX-License-Identifier: Apache-2.0
#include "tools/exporter/http_server.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <utility>

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

using Answer = http::response<http::string_body>;

Answer answer_to(const http::request<http::empty_body>& request, const HttpServer::Pages& pages) {
  const auto of = [&](http::status status, const std::string& type, std::string body) {
    Answer answer(status, request.version());
    answer.set(http::field::content_type, type);
    answer.set("X-Content-Type-Options", "nosniff");
    answer.keep_alive(request.keep_alive());
    answer.content_length(body.size());
    if (request.method() != http::verb::head) answer.body() = std::move(body);
    return answer;
  };
  constexpr const char* kPlain = "text/plain; charset=utf-8";
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    Answer refused = of(http::status::method_not_allowed, kPlain, "GET or HEAD only\n");
    refused.set(http::field::allow, "GET, HEAD");
    return refused;
  }
  const std::string target(request.target());
  auto page = pages(target.substr(0, target.find('?')));
  if (!page) return of(http::status::not_found, kPlain, "there is no such page\n");
  return of(http::status::ok, std::move(page->type), std::move(page->body));
}

// One connection. It lives for as long as one of its operations is under way.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, const HttpServer::Pages& pages, std::function<void()> when_over)
      : stream_(std::move(socket)), pages_(pages), when_over_(std::move(when_over)) {}
  ~Session() { when_over_(); }

  void read() {
    parser_.emplace();
    parser_->header_limit(kLongestHead);
    parser_->body_limit(0);
    stream_.expires_after(kPatience);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](error_code failure, std::size_t) {
                       if (!failure) self->answer();
                     });
  }

 private:
  void answer() {
    answer_ = answer_to(parser_->get(), pages_);
    stream_.expires_after(kPatience);
    http::async_write(stream_, answer_,
                      [self = shared_from_this()](error_code failure, std::size_t) {
                        if (failure) return;
                        if (self->answer_.need_eof()) return self->close();
                        self->answer_ = {};
                        self->read();
                      });
  }
  void close() {
    error_code ignored;
    (void)stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  }

  beast::tcp_stream stream_;
  const HttpServer::Pages& pages_;
  const std::function<void()> when_over_;
  beast::flat_buffer buffer_{kLongestHead};
  std::optional<http::request_parser<http::empty_body>> parser_;
  Answer answer_;
};

}  // namespace

struct HttpServer::Impl : std::enable_shared_from_this<Impl> {
  Impl(asio::io_context& loop, Pages served)
      : acceptor(loop), pause(loop), pages(std::move(served)) {}

  void accept() {
    if (clients >= kMostClients || is_accepting || !acceptor.is_open()) return;
    is_accepting = true;
    acceptor.async_accept([self = shared_from_this()](error_code failure, tcp::socket socket) {
      self->is_accepting = false;
      if (failure == asio::error::operation_aborted) return;
      if (failure) return self->accept_later();
      ++self->clients;
      std::make_shared<Session>(std::move(socket), self->pages, [self] {
        --self->clients;
        self->accept();
      })->read();
      self->accept();
    });
  }
  // For example when there are no descriptors left: without a pause that would spin.
  void accept_later() {
    pause.expires_after(kAfterFailure);
    pause.async_wait([self = shared_from_this()](error_code failure) {
      if (!failure) self->accept();
    });
  }

  tcp::acceptor acceptor;
  asio::steady_timer pause;
  const Pages pages;
  size_t clients = 0;
  bool is_accepting = false;
};

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
