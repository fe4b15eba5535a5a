// SPDX-License-Identifier: Apache-2.0
#include "tools/agent/protocol.h"

#include <gtest/gtest.h>

#include "shmctl/plane/status_json.h"
#include "tests/tools/support/fake_plane.h"

namespace gpushare {
namespace {

TEST(Protocol, RequestsHaveOnlyWhatWasSet) {
  EXPECT_EQ(encode({.op = "hello"}), "{\"op\":\"hello\"}\n");
  EXPECT_EQ(encode({.op = "attach", .pid = 7, .tenant = "a"}),
            "{\"op\":\"attach\",\"pid\":7,\"tenant\":\"a\"}\n");
  EXPECT_EQ(encode({.op = "freeze", .pid = 7, .start_ticks = 9}),
            "{\"op\":\"freeze\",\"pid\":7,\"start_ticks\":9}\n");
  EXPECT_EQ(encode({.op = "set",
                    .tenant = "a",
                    .settings = {{"weight", "3"}, {"max", "1 2"}},
                    .create = false}),
            "{\"op\":\"set\",\"tenant\":\"a\",\"create\":false,"
            "\"settings\":{\"weight\":\"3\",\"max\":\"1 2\"}}\n");
}

TEST(Protocol, ARequestIsOneLineWhateverIsInIt) {
  const std::string line = encode({.op = "set", .tenant = "a\nb\xff"});
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(Protocol, RefusalsSayWhoIsToBlame) {
  const auto usage = decode_done(
      R"({"ok":false,"error":"weight 0 is out of range","allowed":"1 to 10000","code":"usage"})");
  ASSERT_FALSE(usage);
  EXPECT_EQ(usage.error().code, std::errc::invalid_argument);
  EXPECT_EQ(usage.error().message(), "gpushared: weight 0 is out of range; allowed: 1 to 10000");
  const auto denied = decode_done(R"({"ok":false,"error":"not yours","code":"denied"})");
  EXPECT_EQ(denied.error().code, std::errc::permission_denied);
  const auto failed = decode_done(R"({"ok":false,"error":"no GPU","code":"failed"})");
  EXPECT_FALSE(failed.error().code);
  EXPECT_EQ(failed.error().message(), "gpushared: no GPU");
}

TEST(Protocol, StatusIsTheControlPlane) {
  const PlaneSnapshot snapshot = fake_snapshot({}, Time{});
  const auto decoded = decode_status("{\"ok\":true," + status_json(snapshot).substr(1));
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(decoded->processes.size(), snapshot.processes.size());
  EXPECT_EQ(decoded->gpus.size(), 1u);
}

TEST(Protocol, DoctorsFindings) {
  const auto findings = decode_doctor(
      R"({"ok":true,"checks":[{"check":"probe","state":"fail","detail":"d","fix":"f"}]})");
  ASSERT_TRUE(findings) << findings.error().message();
  ASSERT_EQ(findings->size(), 1u);
  EXPECT_EQ(findings->front().severity, Finding::Severity::kFail);
  EXPECT_EQ(findings_json(*findings),
            R"([{"check":"probe","state":"fail","detail":"d","fix":"f"}])");
}

TEST(Protocol, LinesOfATrace) {
  EXPECT_EQ(std::get<TraceStart>(*decode_trace(R"({"ok":true,"start_ns":5})")).start_ns, 5u);
  const auto on = decode_trace(R"({"switch":{"t":9,"gpu":1,"pid":7,"start":true}})");
  EXPECT_EQ(std::get<TraceSwitch>(*on).pid, 7);
  EXPECT_TRUE(std::get<TraceSwitch>(*on).is_start);
  const auto slice =
      decode_trace(R"({"event":{"t":9,"kind":"slice","pid":7,"gpu":0,"value":6000}})");
  EXPECT_EQ(std::get<TraceAction>(*slice).slice_us, 6000u);
  const auto freeze =
      decode_trace(R"({"event":{"t":9,"kind":"freeze","pid":7,"gpu":0,"reason":"cap"}})");
  EXPECT_EQ(std::get<TraceAction>(*freeze).reason, "cap");
  EXPECT_EQ(std::get<TraceEnd>(*decode_trace(R"({"end":true,"lost":3})")).lost, 3u);
}

TEST(Protocol, GarbageIsAnErrorEverywhere) {
  for (const char* line : {"", "{", "null", "[]", "7", "\"ok\"", "{}", R"({"ok":1})",
                           R"({"ok":"yes"})", R"({"ok":false,"error":7})", "\xff\xfe"}) {
    EXPECT_FALSE(decode_done(line)) << line;
    EXPECT_FALSE(decode_hello(line)) << line;
    EXPECT_FALSE(decode_status(line)) << line;
    EXPECT_FALSE(decode_doctor(line)) << line;
    EXPECT_FALSE(decode_trace(line)) << line;
  }
  EXPECT_FALSE(decode_hello(R"({"ok":true,"version":[]})"));
  EXPECT_FALSE(decode_doctor(R"({"ok":true,"checks":7})"));
  EXPECT_FALSE(decode_doctor(R"({"ok":true,"checks":[{"check":"a","state":"maybe"}]})"));
  EXPECT_FALSE(decode_trace(R"({"ok":true,"start_ns":{}})"));
  EXPECT_FALSE(decode_trace(R"({"switch":{}})"));
  EXPECT_FALSE(decode_trace(R"({"event":{"t":1,"gpu":0,"pid":1,"kind":"nap"}})"));
}

}  // namespace
}  // namespace gpushare
