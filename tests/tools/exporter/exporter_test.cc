// SPDX-License-Identifier: Apache-2.0
// The built exporter, as Prometheus and the node exporter use it.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/tools/support/fake_plane.h"
#include "tests/tools/support/run_tool.h"
#include "tests/tools/support/temp_dir.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

const std::string kRegion = "/gpushare-exporter-test-" + std::to_string(::getpid());
const std::string kVariable = "GPUSHARE_REGION=" + kRegion;

// A made-up control plane that stays fresh, however long a reader takes to start.
class Plane {
 public:
  Plane() : plane_(ControlPlane::create(kRegion).value()) {
    publish();
    publisher_ = std::jthread([this](const std::stop_token& stop) {
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any ended;
      while (!ended.wait_for(lock, stop, 100ms, [&] { return stop.stop_requested(); })) publish();
    });
  }
  ~Plane() {
    publisher_ = {};
    EXPECT_TRUE(ControlPlane::remove(kRegion));
  }
  Plane(const Plane&) = delete;
  Plane& operator=(const Plane&) = delete;

 private:
  void publish() {
    write_plane(plane_.region(),
                fake_snapshot({.gpus = 1, .processes = 7, .agent_pid = 1}, MonotonicClock().now()));
  }

  ControlPlane plane_;
  std::jthread publisher_;
};

struct Exporter {
  explicit Exporter(const char* listen = "127.0.0.1:0")
      : child(start_tool("gpushare-exporter", {"--listen", listen}, {kVariable})) {
    EXPECT_TRUE(child.await(
        "listen", [this] { return child.output().ends_with('\n'); }, std::chrono::minutes(5)));
    port = child.output().substr(child.output().rfind(' ') + 1);
    port.pop_back();
  }
  // What python's http.client, which is none of ours, makes of requests.
  std::string ask(const std::string& script) const {
    const ToolResult result =
        run_tool("python3", {"-c",
                             "import http.client, socket\n"
                             "def connect(): return http.client.HTTPConnection('127.0.0.1', " +
                                 port + ", timeout=20)\n" + script});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  Child child;
  std::string port;
};

TEST(Exporter, ServesMetricsOverOneConnectionOrMany) {
  if (!has_program("python3")) GTEST_SKIP() << "python3 is missing";
  const Plane plane;
  const Exporter exporter;
  EXPECT_EQ(exporter.ask("c = connect()\n"
                         "for path in ['/metrics', '/', '/none', '/metrics?x=1']:\n"
                         "  c.request('GET', path)\n"
                         "  r = c.getresponse(); body = r.read().decode()\n"
                         "  print(r.status, r.headers['content-type'], 'gpushare_up 1' in body)\n"
                         "c.request('HEAD', '/metrics'); r = c.getresponse()\n"
                         "print(r.status, int(r.headers['content-length']) > 1000, r.read())\n"
                         "c.request('POST', '/metrics'); r = c.getresponse()\n"
                         "print(r.status, r.headers['allow'])\n"),
            "200 text/plain; version=0.0.4; charset=utf-8 True\n"
            "200 text/html; charset=utf-8 False\n"
            "404 text/plain; charset=utf-8 False\n"
            "200 text/plain; version=0.0.4; charset=utf-8 True\n"
            "200 True b''\n"
            "405 GET, HEAD\n");
}

TEST(Exporter, OutlivesHostileClientsAndTheAgent) {
  if (!has_program("python3")) GTEST_SKIP() << "python3 is missing";
  Exporter exporter;
  const std::string is_up =
      "c = connect(); c.request('GET', '/metrics')\n"
      "print([l for l in c.getresponse().read().decode().split('\\n') if "
      "l.startswith('gpushare_up')])\n";
  EXPECT_EQ(exporter.ask(is_up), "['gpushare_up 0']\n") << "there is no control plane yet";
  // More idle connections than it serves at once: new ones take their places.
  EXPECT_EQ(exporter.ask("idle = [socket.create_connection(('127.0.0.1', " + exporter.port +
                         ")) for i in range(40)]\n"
                         "bad = socket.create_connection(('127.0.0.1', " +
                         exporter.port +
                         "))\n"
                         "bad.sendall(b'\\0' * 100000 + b'\\r\\n\\r\\n')\n"
                         "try: print(len(bad.recv(100)) < 100)\n"
                         "except ConnectionError: print(True)\n" +
                         is_up),
            "True\n['gpushare_up 0']\n");
  {
    const Plane plane;
    EXPECT_EQ(exporter.ask(is_up), "['gpushare_up 1']\n");
  }
  const Plane another;
  EXPECT_EQ(exporter.ask(is_up), "['gpushare_up 1']\n") << "it finds the region anew";
  exporter.child.signal(SIGTERM);
  EXPECT_EQ(result_of(exporter.child).exit_code, 0);
}

TEST(Exporter, WritesAFileForTheNodeExporter) {
  const Plane plane;
  const TempDir dir;
  const ToolResult result =
      run_tool("gpushare-exporter", {"--textfile", dir.at("gpushare.prom")}, {kVariable});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(TempDir::read(dir.at("gpushare.prom")).contains("\ngpushare_up 1\n"));
  EXPECT_EQ(run_tool("gpushare-exporter", {"-t", "/nonexistent/x"}, {kVariable}).exit_code, 1);
  EXPECT_TRUE(
      run_tool("gpushare-exporter", {"-t", "-"}, {kVariable}).out.contains("gpushare_up 1"));
}

TEST(Exporter, SaysWhatIsWrongWithItsCommandLine) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--listen", "x"},
                                                {"--listen", "65536"},
                                                {"--listen", "nowhere:1"},
                                                {"--interval", "5"},
                                                {"extra"}}) {
    const ToolResult result = run_tool("gpushare-exporter", words);
    EXPECT_EQ(result.exit_code, 2) << words.back() << result.err;
    EXPECT_NE(result.err, "");
  }
  const Exporter first;
  const ToolResult second = run_tool("gpushare-exporter", {"-l", "127.0.0.1:" + first.port});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_TRUE(second.err.contains("Address already in use")) << second.err;
}

}  // namespace
}  // namespace gpushare
