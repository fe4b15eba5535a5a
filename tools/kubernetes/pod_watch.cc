// SPDX-License-Identifier: Apache-2.0
#include "tools/kubernetes/pod_watch.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr size_t kLongestAnswer = 256 << 20;
constexpr auto kFirstPause = 100ms, kLongestPause = 5000ms;
// A watch ends by itself then, so that a connection that has died unseen holds nothing up for long.
constexpr int kWatchSeconds = 60;

using Curl = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;
using Headers = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;

std::string token_of(const std::string& path) {
  std::ifstream file(path);
  std::string token{std::istreambuf_iterator<char>(file), {}};
  while (!token.empty() && (token.back() == '\n' || token.back() == ' ')) token.pop_back();
  return token;
}

}  // namespace

class PodWatch::Loop {
 public:
  Loop(ApiServer server, Told told)
      : server_(std::move(server)), told_(std::move(told)), thread_([this] { run(); }) {}
  ~Loop() {
    {
      const std::lock_guard lock(mutex_);
      is_stopped_ = true;
    }
    stopped_.notify_all();
    thread_.join();
  }

 private:
  void run() {
    auto pause = kFirstPause;
    while (!is_stopped_) {
      const Result<> ended = version_.empty() ? list() : watch();
      if (ended) {
        pause = kFirstPause;
        continue;
      }
      if (is_stopped_) return;
      told_.failed(ended.error());
      version_.clear();
      std::unique_lock lock(mutex_);
      stopped_.wait_for(lock, pause, [this] { return is_stopped_.load(); });
      pause = std::min(2 * pause, kLongestPause);
    }
  }

  Result<> list() {
    std::string text;
    const auto got = get("", [&](std::string_view part) {
      text += part;
      return text.size() <= kLongestAnswer;
    });
    if (!got) return got;
    const auto pods = parse_pod_list(text);
    if (!pods) return std::unexpected(pods.error());
    told_.listed(*pods);
    version_ = pods->version;
    return {};
  }

  Result<> watch() {
    std::string rest;
    Result<> seen;
    bool is_expired = false;
    const auto take_line = [&](std::string_view line) {
      const auto event = parse_pod_event(line);
      if (!event) return seen = std::unexpected(event.error()), false;
      if (event->kind == PodEvent::Kind::kExpired) return is_expired = true, false;
      if (event->kind == PodEvent::Kind::kError) {
        seen = make_error(std::errc::io_error, "watch the pods", event->message);
        return false;
      }
      if (!event->version.empty()) version_ = event->version;
      if (event->kind != PodEvent::Kind::kBookmark) told_.changed(*event);
      return true;
    };
    const auto got =
        get(fmt::format("&watch=1&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
                        kWatchSeconds, version_),
            [&](std::string_view part) {
              rest += part;
              size_t end = 0;
              while ((end = rest.find('\n')) != std::string::npos) {
                const std::string line = rest.substr(0, end);
                rest.erase(0, end + 1);
                if (!line.empty() && !take_line(line)) return false;
              }
              return rest.size() <= kLongestAnswer;
            });
    if (is_expired) {
      version_.clear();
      return {};
    }
    return seen ? got : seen;
  }

  // Asks for the node's pods, and hands over what comes until `take` returns false.
  Result<> get(const std::string& more, const std::function<bool(std::string_view)>& take) {
    constexpr const char* kStep = "ask the API server for pods";
    const Curl curl(curl_easy_init(), curl_easy_cleanup);
    if (!curl) return make_error(std::errc::not_enough_memory, kStep);
    const std::string url = server_.url + pods_path(server_.node) + more;
    Headers headers(nullptr, curl_slist_free_all);
    if (!server_.token_file.empty()) {
      const std::string line = "Authorization: Bearer " + token_of(server_.token_file);
      headers.reset(curl_slist_append(nullptr, line.c_str()));
    }
    char why[CURL_ERROR_SIZE] = "";
    Taking taking{this, &take, curl.get(), {}};
    const auto set = [&](CURLoption option, auto value) {
      curl_easy_setopt(curl.get(), option, value);
    };
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_HTTPHEADER, headers.get());
    set(CURLOPT_ERRORBUFFER, why);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT, 5L);
    set(CURLOPT_TIMEOUT, static_cast<long>(kWatchSeconds + 30));
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    if (!server_.ca_file.empty()) set(CURLOPT_CAINFO, server_.ca_file.c_str());
    set(CURLOPT_WRITEFUNCTION, &write);
    set(CURLOPT_WRITEDATA, &taking);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &look);
    set(CURLOPT_XFERINFODATA, this);
    const CURLcode code = curl_easy_perform(curl.get());
    long status = 0;
    curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_OK && status == 200) return {};
    if (status == 410) {  // the version is too old
      version_.clear();
      return {};
    }
    if (status != 200 && status != 0)
      return make_error(
          std::errc::permission_denied, kStep,
          fmt::format("{}: HTTP {}: {}", server_.url, status, taking.said.substr(0, 300)));
    return make_error(std::errc::connection_refused, kStep,
                      fmt::format("{}: {}", server_.url, *why ? why : curl_easy_strerror(code)));
  }

  struct Taking {
    Loop* loop;
    const std::function<bool(std::string_view)>* take;
    CURL* curl;
    std::string said;  // of an answer that is an error
  };
  static size_t write(const char* bytes, size_t one, size_t count, void* taking_) {
    auto& taking = *static_cast<Taking*>(taking_);
    long status = 0;
    curl_easy_getinfo(taking.curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) {
      if (taking.said.size() < 4096) taking.said.append(bytes, one * count);
      return one * count;
    }
    if (taking.loop->is_stopped_ || !(*taking.take)({bytes, one * count})) return 0;
    return one * count;
  }
  // libcurl calls this at least once a second.
  static int look(void* loop, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Loop*>(loop)->is_stopped_ ? 1 : 0;
  }

  const ApiServer server_;
  const Told told_;
  std::string version_;  // empty: the pods are to be listed
  std::atomic<bool> is_stopped_ = false;
  std::mutex mutex_;
  std::condition_variable stopped_;
  std::thread thread_;
};

PodWatch::PodWatch(ApiServer server, Told told)
    : loop_(std::make_unique<Loop>(std::move(server), std::move(told))) {}
PodWatch::~PodWatch() = default;

}  // namespace gpushare
