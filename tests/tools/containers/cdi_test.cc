// SPDX-License-Identifier: Apache-2.0
// Tenants as devices of containers: the file, the hook, and what runc makes of both.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/tools/support/run_tool.h"
#include "tests/tools/support/temp_dir.h"
#include "tests/tools/support/temp_plane.h"
#include "tools/containers/cdi_spec.h"

namespace gpushare {
namespace {

using Json = nlohmann::json;

TEST(CdiSpec, HasADeviceForEachTenantWithAHookThatNamesIt) {
  std::vector<std::string> left_out;
  const Json spec = Json::parse(cdi_spec({"default", "research", "_mine", "a.b-1"},
                                         {.program = "/usr/bin/gpushare"}, left_out));
  EXPECT_EQ(left_out, std::vector<std::string>{"_mine"});
  EXPECT_EQ(spec["kind"], "gpushare.io/tenant");
  ASSERT_EQ(spec["devices"].size(), 3u);
  EXPECT_EQ(spec["devices"][1]["name"], "research");
  const Json& hook = spec["devices"][1]["containerEdits"]["hooks"][0];
  EXPECT_EQ(hook["hookName"], "createRuntime");
  EXPECT_EQ(hook["path"], "/usr/bin/gpushare");
  EXPECT_EQ(hook["args"], Json({"gpushare", "cdi", "hook", "--tenant=research"}));
  EXPECT_FALSE(spec.contains("containerEdits"));
}

TEST(CdiSpec, TheShimComesWithItsSockets) {
  std::vector<std::string> left_out;
  const Json spec = Json::parse(cdi_spec({"a"},
                                         {.program = "/p",
                                          .socket = "/s/agent.sock",
                                          .shim = "/usr/lib/gpushare/libgpushare.so",
                                          .run_folder = "/s",
                                          .is_required = true},
                                         left_out));
  EXPECT_EQ(
      spec["devices"][0]["containerEdits"]["hooks"][0]["args"],
      Json({"gpushare", "--socket=/s/agent.sock", "cdi", "hook", "--tenant=a", "--required"}));
  EXPECT_EQ(spec["containerEdits"]["env"], Json({"LD_PRELOAD=/usr/lib/gpushare/libgpushare.so",
                                                 "GPUSHARE_SHIM_SOCKET=/s/shim.sock"}));
  ASSERT_EQ(spec["containerEdits"]["mounts"].size(), 2u);
  // Not the folder in which the control socket is.
  EXPECT_EQ(spec["containerEdits"]["mounts"][1]["hostPath"], "/s/containers");
  EXPECT_EQ(spec["containerEdits"]["mounts"][1]["containerPath"], "/s");
}

TEST(CdiHook, ReadsTheProcessOfTheState) {
  EXPECT_EQ(container_pid(R"({"ociVersion":"1.0","id":"x","status":"created","pid":4711})"), 4711);
  for (const char* state : {"", "{}", "[]", R"({"pid":0})", R"({"pid":1})", R"({"pid":"7"})",
                            R"({"pid":99999999999})", R"({"pid":-5})"}) {
    const auto pid = container_pid(state);
    ASSERT_FALSE(pid) << state;
    EXPECT_FALSE(pid.error().detail.contains("json.exception")) << pid.error().detail;
  }
}

TEST(CdiHook, AttachesAndNeverStopsAContainerUnlessItIsToldTo) {
  const TempDir dir;
  dir.write("state", R"({"pid":4711})");
  const std::string built =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "gpushare";
  const auto hook = [&](const std::string& more, const std::string& socket) {
    return run_tool(
        "sh", {"-c", "exec \"$0\" --socket \"$2\" cdi hook --tenant research " + more + " < \"$1\"",
               built, dir.at("state"), socket});
  };
  FakeAgent agent(answer_ok);
  EXPECT_EQ(hook("", agent.socket()).exit_code, 0);
  EXPECT_EQ(agent.requests(),
            std::vector<std::string>{R"({"op":"attach","pid":4711,"tenant":"research"})"});
  const ToolResult absent = hook("", "/nonexistent/agent.sock");
  EXPECT_EQ(absent.exit_code, 0);
  EXPECT_TRUE(absent.err.contains("warning: the container is not in the tenant research"))
      << absent.err;
  EXPECT_EQ(hook("--required", "/nonexistent/agent.sock").exit_code, 1);
}

// Runtimes will start it as root.
TEST(Cdi, ARootsFileNamesNoProgramThatOthersMayReplace) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const TempDir dir;
  const TempPlane plane;
  const auto built = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  std::filesystem::create_directories(dir.at("open/bin"));
  std::filesystem::copy_file(built / "gpushare", dir.at("open/bin/gpushare"));
  const auto generate = [&] {
    return run_tool(dir.at("open/bin/gpushare"),
                    {"cdi", "generate", "--output", dir.at("spec.json")}, {plane.variable()});
  };
  EXPECT_EQ(generate().exit_code, 0) << generate().err;
  std::filesystem::remove(dir.at("spec.json"));
  ::chmod(dir.at("open").c_str(), 0777);
  const ToolResult refused = generate();
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(refused.err.contains("/open is writable by others")) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(dir.at("spec.json")));
}

// A real runtime calls the hook of the generated file, before the container's program runs.
TEST(Cdi, RuncPutsAContainerIntoItsTenant) {
  if (::geteuid() != 0 || !has_program("runc") || !std::filesystem::exists("/bin/busybox"))
    GTEST_SKIP() << "needs root, runc and busybox-static";
  FakeAgent agent(answer_ok);
  std::vector<std::string> left_out;
  const std::string built =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "gpushare";
  const Json spec = Json::parse(cdi_spec(
      {"research"}, {.program = built, .socket = agent.socket(), .is_required = true}, left_out));
  const TempDir dir;
  for (const char* folder : {"rootfs/bin", "rootfs/proc"})
    std::filesystem::create_directories(dir.at(folder));
  std::filesystem::copy_file("/bin/busybox", dir.at("rootfs/bin/busybox"));
  const Json hook = spec["devices"][0]["containerEdits"]["hooks"][0];
  Json config = Json::parse(R"({"ociVersion":"1.0.2",
      "process":{"user":{"uid":0,"gid":0},"args":["/bin/busybox","echo","ran"],"cwd":"/"},
      "root":{"path":"rootfs"},"mounts":[{"destination":"/proc","type":"proc","source":"proc"}],
      "linux":{"namespaces":[{"type":"mount"},{"type":"pid"}]}})");
  Json& called = config["hooks"]["createRuntime"].emplace_back();
  called["path"] = hook["path"];
  called["args"] = hook["args"];
  dir.write("config.json", config.dump());
  const std::string id = "gpushare-test-" + std::to_string(::getpid());
  const ToolResult ran =
      run_tool("runc", {"--root", dir.at("state"), "run", "--bundle", dir.path(), id});
  if (ran.exit_code != 0 && agent.requests().empty() && ran.err.contains("cgroup"))
    GTEST_SKIP() << "runc cannot make cgroups here: " << ran.err;
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "ran\n");
  ASSERT_EQ(agent.requests().size(), 1u);
  EXPECT_TRUE(agent.requests()[0].contains(R"("op":"attach")") &&
              agent.requests()[0].contains(R"("tenant":"research")"))
      << agent.requests()[0];
}

}  // namespace
}  // namespace gpushare
