// SPDX-License-Identifier: Apache-2.0
#include "tools/exporter/http_server.h"

#include <gtest/gtest.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <list>
#include <vector>

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using boost::asio::ip::tcp;

class HttpServerTest : public ::testing::Test {
 protected:
  void serve(size_t body_bytes) {
    const auto pages = [this, body_bytes](std::string_view) {
      ++made_;
      return HttpServer::Page{"text/plain", std::string(body_bytes, 'x')};
    };
    auto server = HttpServer::listen(loop_, "127.0.0.1", 0, pages);
    ASSERT_TRUE(server) << server.error().message();
    server_ = *std::move(server);
  }
  // Each address that begins with 127 is this machine's.
  tcp::socket& connect(const char* from = "127.0.0.1") {
    tcp::socket& client = clients_.emplace_back(client_loop_, tcp::v4());
    client.bind({boost::asio::ip::make_address(from), 0});
    client.connect({boost::asio::ip::make_address("127.0.0.1"), server_->port()});
    return client;
  }
  static void ask(tcp::socket& client) {
    constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    boost::asio::write(client, boost::asio::buffer(kRequest));
  }
  // Whether it has more to read, or its end, within `patience`.
  bool hears(tcp::socket& client, std::chrono::milliseconds patience) {
    bool has_heard = false;
    client.async_wait(tcp::socket::wait_read, [&](const auto& failure) { has_heard = !failure; });
    const auto until = std::chrono::steady_clock::now() + patience;
    while (!has_heard && std::chrono::steady_clock::now() < until) {
      loop_.restart();
      loop_.run_for(1ms);
      client_loop_.restart();
      client_loop_.poll();
    }
    client.cancel();
    client_loop_.restart();
    client_loop_.poll();
    return has_heard;
  }

  boost::asio::io_context loop_, client_loop_;
  std::unique_ptr<HttpServer> server_;
  std::list<tcp::socket> clients_;
  int made_ = 0;
};

TEST_F(HttpServerTest, ClientsThatDoNotReadHoldOnePageTogether) {
  serve(16 << 20);
  for (size_t i = 0; i < HttpServer::kMostClients; ++i) ask(connect());
  for (tcp::socket& client : clients_) ASSERT_TRUE(hears(client, 5s));
  EXPECT_GE(made_, 1);
  EXPECT_LE(made_, 4) << "one a second";
}

TEST_F(HttpServerTest, AClientComesInWhereOthersAreIdle) {
  serve(10);
  for (size_t i = 0; i < HttpServer::kMostClients; ++i) connect();
  EXPECT_FALSE(hears(clients_.back(), 100ms));
  tcp::socket& late = connect();
  ask(late);
  EXPECT_TRUE(hears(late, 5s));
  EXPECT_TRUE(hears(clients_.front(), 5s)) << "its connection ends";
  EXPECT_FALSE(hears(*std::next(clients_.begin()), 100ms)) << "the others are still served";
}

// Slow readers keep their connections for ten seconds each, if nobody else comes.
TEST_F(HttpServerTest, AClientComesInWhereOthersDoNotReadTheirAnswers) {
  serve(16 << 20);
  for (size_t i = 0; i < HttpServer::kMostClients; ++i) {
    ask(connect());
    ASSERT_TRUE(hears(clients_.back(), 5s)) << "its answer begins";
  }
  tcp::socket& late = connect();
  ask(late);
  EXPECT_TRUE(hears(late, 5s));
}

TEST_F(HttpServerTest, AnAddressWithManyConnectionsTakesNoOtherOnesPlace) {
  serve(16 << 20);
  tcp::socket& idle = connect("127.0.0.2");
  EXPECT_FALSE(hears(idle, 1ms));
  tcp::socket& reader = connect("127.0.0.3");
  ask(reader);
  ASSERT_TRUE(hears(reader, 5s));
  for (size_t i = 0; i < 2 * HttpServer::kMostClients; ++i) {
    tcp::socket& client = connect();
    if (i % 2 == 0) continue;  // it asks for nothing
    ask(client);
    ASSERT_TRUE(hears(client, 5s));
  }
  std::vector<char> page(16 << 20);
  size_t read = 0;
  while (read < page.size() && hears(reader, 5s))
    if (const size_t more = reader.read_some(boost::asio::buffer(page)); more > 0) read += more;
  EXPECT_GE(read, page.size()) << "it has been read for longer than all others";
  ask(idle);
  ASSERT_TRUE(hears(idle, 5s)) << "it was idle for longer than all others";
  EXPECT_GT(idle.read_some(boost::asio::buffer(page)), 0u);
}

}  // namespace
}  // namespace gpushare
