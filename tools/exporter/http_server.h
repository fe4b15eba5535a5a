// SPDX-License-Identifier: Apache-2.0
// HttpServer: answers GET and HEAD of a few paths, on the caller's event loop and thread, by
// Boost.Beast. It is for scrapers: a request has no body, and a client that is slow, or sends what
// is no request, loses its connection after 10 s. It serves at most kMostClients at once. When one
// more comes, it is served, and one of the address that has the most connections, the new one
// counted, loses its own: the one from which no request has come for the longest, otherwise the
// one that has been reading its answer for the longest. So nobody is kept out by the connections of
// another address, nor by idle ones and slow readers of its own. The addresses of version 6 that
// share 64 bits count as one.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "shmctl/base/error.h"

namespace gpushare {

class HttpServer {
 public:
  static constexpr size_t kMostClients = 32;

  struct Page {
    std::string type;  // "text/plain; charset=utf-8"
    std::string body;
  };
  // What a path holds; nullopt: there is no such page. Called once for each request, unless the
  // page that it last gave is younger than a second and still on its way to a client.
  using Pages = std::function<std::optional<Page>(std::string_view path)>;

  // `address`: a number, of version 4 or 6; `port` 0 takes a free one. Errors: invalid_argument
  // when the address is none; otherwise those of bind() and listen().
  static Result<std::unique_ptr<HttpServer>> listen(boost::asio::io_context& loop,
                                                    const std::string& address, uint16_t port,
                                                    Pages pages);
  ~HttpServer();

  uint16_t port() const;

 private:
  struct Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

}  // namespace gpushare
