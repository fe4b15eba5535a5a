// SPDX-License-Identifier: Apache-2.0
#include "sched/control/handler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <random>

#include "sched/module/kernel_tenants.h"
#include "shmctl/plane/snapshot.h"
#include "tests/sched/support/scheduler_rig.h"
#include "tests/shmctl/settings/plain_sysfs.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

constexpr Peer kRoot{.pid = 500, .uid = 0, .is_admin = true};
constexpr Peer kUser{.pid = 501, .uid = 1000, .is_admin = false};

class ControlHandlerTest : public ::testing::Test {
 protected:
  ControlHandlerTest()
      : plane_(ControlPlane::create("/gpushare-test-" + std::to_string(::getpid())).value()) {}
  ~ControlHandlerTest() override { (void)ControlPlane::remove(plane_.name()); }

  Answer handle(std::string_view request, const Peer& peer = kRoot) {
    return handle_request(request, peer,
                          {.tenants = rig_.tenants,
                           .control = control_ ? *control_ : direct_,
                           .scheduler = rig_.scheduler.get(),
                           .plane = plane_,
                           .processes = rig_.processes,
                           .clock = rig_.clock,
                           .reload = [this] { return reload_; },
                           .forget = [this] { return (control_ ? *control_ : direct_).forget({}); },
                           .diagnose = [] { return std::vector<Finding>{{"gpu", {}, "one", ""}}; },
                           .placements = &placements_,
                           .waiting = &waiting_});
  }
  Json ask(std::string_view request, const Peer& peer = kRoot) {
    const Answer answer = handle(request, peer);
    return Json::parse(answer.later ? answer.later() : answer.line);
  }
  std::string tenant_of(pid_t pid) {
    const uint64_t ticks = 1000 + static_cast<uint64_t>(pid);
    return rig_.tenants.at(rig_.tenants.tenant_of({pid, ticks}))->name;
  }

  test::SchedulerRig rig_;
  DirectControl direct_{rig_.tenants};
  TenantControl* control_ = nullptr;  // nullptr: direct_
  ControlPlane plane_;
  Placements placements_;
  WaitingLine waiting_;
  Result<> reload_;
};

TEST_F(ControlHandlerTest, SaysHello) {
  const Json answer = ask(R"({"op":"hello"})", kUser);
  EXPECT_EQ(answer["ok"], true);
  EXPECT_EQ(answer["uid"], 1000);
  EXPECT_EQ(answer["is_admin"], false);
  EXPECT_EQ(answer["region"], plane_.name());
  EXPECT_EQ(answer["pid"], ::getpid());
}

TEST_F(ControlHandlerTest, StatusIsTheControlPlane) {
  const Json answer = ask(R"({"op":"status"})", kUser);
  EXPECT_EQ(answer["ok"], true);
  for (const char* part : {"agent", "gpus", "tenants", "processes"})
    EXPECT_TRUE(answer.contains(part)) << part;
}

class PlacementTest : public ControlHandlerTest {
 protected:
  PlacementTest() {
    AgentRecord agent;
    agent.gpu_count = 2;
    write_record(plane_.region().agent, agent);
    use(0, 0);
    use(1, 8);
  }
  // So many GiB of its 16 are in use.
  void use(uint32_t index, uint64_t gib) {
    GpuRecord gpu;
    gpu.index = index;
    gpu.memory_bytes = uint64_t{16} << 30;
    gpu.memory_used_bytes = gib << 30;
    (void)std::snprintf(gpu.uuid, sizeof gpu.uuid, "GPU-%u", index);
    write_record(plane_.region().gpus[index], gpu);
  }
  void busy(uint32_t slot, uint32_t gpu) {
    ProcessRecord process;
    process.pid = static_cast<int32_t>(100 + slot);
    process.gpu = gpu;
    write_record(plane_.region().processes[slot].record, process);
  }
};

TEST_F(PlacementTest, AJobGoesWhereLeastWorkWaits) {
  busy(0, 0);
  const Json answer = ask(R"({"op":"place","gpu":"auto"})", kUser);
  EXPECT_EQ(answer["gpu"], 1) << answer.dump();
  EXPECT_EQ(answer["uuid"], "GPU-1");
  EXPECT_NE(answer["reason"].get<std::string>().find("ends there first"), std::string::npos);
  busy(1, 1);
  busy(2, 1);
  EXPECT_EQ(ask(R"({"op":"place","gpu":"auto"})")["gpu"], 0);
}

// Each takes seconds to its first context.
TEST_F(PlacementTest, ThoseThatWerePlacedAndHaveNotComeYetCount) {
  std::vector<int> gpus;
  for (pid_t pid = 600; pid < 610; ++pid) {
    gpus.push_back(
        ask(R"({"op":"place","gpu":"auto"})", {.pid = pid, .uid = 0, .is_admin = true})["gpu"]);
  }
  EXPECT_EQ(std::ranges::count(gpus, 0), 5);
  EXPECT_EQ(std::ranges::count(gpus, 1), 5);
}

TEST_F(PlacementTest, WhoHasComeOrIsGoneCountsNoMore) {
  const auto place = [&](pid_t pid) -> int {
    return ask(R"({"op":"place","gpu":"auto"})", {.pid = pid, .uid = 0, .is_admin = true})["gpu"];
  };
  EXPECT_EQ(place(600), 0);
  EXPECT_EQ(place(601), 1);
  rig_.processes.dead[600] = true;
  rig_.machine.run_for(1s);  // who is gone is looked for once a second
  EXPECT_EQ(place(602), 0);
  ProcessRecord process;  // it is there, so it counts once
  process.pid = 602;
  process.start_ticks = 1602;
  write_record(plane_.region().processes[0].record, process);
  rig_.processes.dead[601] = true;
  rig_.machine.run_for(1s);
  EXPECT_EQ(place(603), 1);
  EXPECT_EQ(place(604), 0) << "one is on each";
  EXPECT_EQ(place(604), 0) << "what was said to itself before does not count";
}

TEST_F(PlacementTest, WhatIsOnItsWayHoldsItsMemory) {
  const char* const request = R"({"op":"place","gpu":"auto","settings":{"memory_max":"10G"}})";
  EXPECT_EQ(ask(request, {.pid = 600, .uid = 0, .is_admin = true})["gpu"], 0);
  EXPECT_FALSE(ask(request, {.pid = 601, .uid = 0, .is_admin = true}).contains("gpu"));
}

// A training has its context for seconds before it has its memory.
TEST_F(PlacementTest, WhatItAskedForIsKeptUntilItHasItOrIsGone) {
  const auto place = [&](pid_t pid) {
    return ask(R"({"op":"place","gpu":"0","settings":{"memory_max":"10G"}})",
               {.pid = pid, .uid = 0, .is_admin = true})
        .contains("gpu");
  };
  EXPECT_TRUE(place(600));
  ProcessRecord process;
  process.pid = 600;
  process.start_ticks = 1600;
  process.memory_bytes = uint64_t{1} << 30;
  write_record(plane_.region().processes[0].record, process);
  use(0, 1);
  EXPECT_FALSE(place(601)) << "15 GiB are free, and 9 of them kept";
  rig_.machine.run_for(20min);
  EXPECT_FALSE(place(601));
  process.memory_bytes = uint64_t{4} << 30;  // it will not need more
  write_record(plane_.region().processes[0].record, process);
  use(0, 4);
  EXPECT_FALSE(place(601));
  write_record(plane_.region().processes[0].record, ProcessRecord{});
  use(0, 0);
  EXPECT_FALSE(place(601)) << "it may make a context again";
  rig_.processes.dead[600] = true;
  rig_.machine.run_for(1s);
  EXPECT_TRUE(place(601));
}

TEST_F(PlacementTest, OfOneUserSoManyCount) {
  for (int i = 0; i < 2000; ++i)
    ask(R"({"op":"place","gpu":"0"})", {.pid = 1000 + i, .uid = 1000, .is_admin = false});
  std::vector<PlaceGpu> gpus{{.index = 0}};
  placements_.add_to(
      gpus, rig_.clock.now(), [](const auto&) { return std::nullopt; },
      [](const ProcessId&) { return false; });
  EXPECT_NEAR(gpus[0].waiting, LengthMix().index({}) * Placements::kMostOfUser, 1e6);
}

TEST_F(PlacementTest, ItsMemoryMustFit) {
  busy(0, 0);
  EXPECT_EQ(ask(R"({"op":"place","gpu":"auto","settings":{"memory_max":"10G"}})")["gpu"], 0);
  EXPECT_EQ(ask(R"({"op":"place","gpu":"1","settings":{"memory_max":"10G"}})")["reason"],
            "memory: needs 10240 MiB on 1 GPU, free on 0");
  const Json answer = ask(R"({"op":"place","gpu":"auto","settings":{"memory_max":"20G"}})");
  EXPECT_EQ(answer["ok"], false) << "no GPU is so large";
  EXPECT_EQ(answer["error"], "memory: needs 20480 MiB on 1 GPU, of 2 only 0 have so much");
}

TEST_F(PlacementTest, MemoryIsKeptForThoseWhoAskedBefore) {
  use(0, 6);  // GiB of 16
  const auto place = [&](pid_t pid, const std::string& memory) {
    return ask(R"({"op":"place","gpu":"auto","settings":{"memory_max":")" + memory + "\"}}",
               {.pid = pid, .uid = 0, .is_admin = true});
  };
  EXPECT_FALSE(place(600, "12G").contains("gpu"));
  EXPECT_EQ(place(601, "6G")["gpu"], 1) << "on the other one, where 8 are free";
  const Json answer = place(602, "9G");
  EXPECT_FALSE(answer.contains("gpu")) << "10 are free on the first one, and kept";
  EXPECT_EQ(answer["reason"], "memory: kept for those who asked before");
  waiting_.publish(plane_.region(), rig_.clock.now());
  const PlaneSnapshot plane = take_snapshot(plane_).value();
  ASSERT_EQ(plane.waiting.size(), 2U);
  EXPECT_EQ(plane.waiting[0].pid, 600);
  EXPECT_EQ(plane.waiting[0].memory_bytes, uint64_t{12} << 30);
  EXPECT_EQ(std::string(plane.waiting[1].why), "memory: kept for those who asked before");
  use(0, 1);
  EXPECT_EQ(place(600, "12G")["gpu"], 0);
  waiting_.publish(plane_.region(), rig_.clock.now());
  ASSERT_EQ(take_snapshot(plane_).value().waiting.size(), 1U);
  EXPECT_EQ(take_snapshot(plane_).value().waiting[0].pid, 602);
}

TEST_F(PlacementTest, WhatIsKeptOnAnotherGpuIsNoMatterWhereOneIsAskedFor) {
  const auto place = [&](pid_t pid, const std::string& gpu, const std::string& memory) {
    return ask(R"({"op":"place","command":["python","t.py"],"gpu":")" + gpu +
                   R"(","settings":{"memory_max":")" + memory + "\"}}",
               {.pid = pid, .uid = 0, .is_admin = true});
  };
  use(0, 8);
  use(1, 6);
  EXPECT_FALSE(place(600, "auto", "12G").contains("gpu")) << "kept on the second one";
  EXPECT_EQ(place(601, "0", "8G")["gpu"], 0);
  EXPECT_FALSE(place(602, "1", "8G").contains("gpu"));
  EXPECT_EQ(waiting_.all()[0].command, "python t.py");
  EXPECT_EQ(waiting_.all()[1].gpu, 1U);
  EXPECT_EQ(waiting_.all()[0].gpu, std::nullopt);
  use(1, 0);
  EXPECT_EQ(place(600, "auto", "12G")["gpu"], 1);
  EXPECT_EQ(waiting_.all().size(), 1U);
}

// The driver is being opened anew.
TEST_F(PlacementTest, WhoWaitsDoesSoWhileThereIsNoGpu) {
  const char* const request = R"({"op":"place","gpu":"1","settings":{"memory_max":"10G"}})";
  EXPECT_FALSE(ask(request, {.pid = 600, .uid = 0, .is_admin = true}).contains("gpu"));
  write_record(plane_.region().agent, AgentRecord{});
  const Json answer = ask(request, {.pid = 600, .uid = 0, .is_admin = true});
  EXPECT_EQ(answer["ok"], true);
  EXPECT_EQ(answer["reason"], "there is no GPU now");
  EXPECT_EQ(waiting_.all()[0].gpu, 1U) << "that it asked for";
  EXPECT_EQ(ask(request, {.pid = 601, .uid = 0, .is_admin = true})["ok"], false);
}

TEST_F(PlacementTest, MemoryIsKeptForNobodyWhoMayNotAskForIt) {
  EXPECT_EQ(ask(R"({"op":"place","gpu":"auto","settings":{"memory_max":"16G"}})", kUser)["code"],
            "denied");
  EXPECT_TRUE(waiting_.all().empty());
}

TEST_F(PlacementTest, AGpuMayBeAskedFor) {
  busy(0, 1);
  EXPECT_EQ(ask(R"({"op":"place","gpu":"1","command":["python","x.py"]})")["uuid"], "GPU-1");
  for (const char* wrong : {R"({"op":"place","gpu":"2"})", R"({"op":"place"})",
                            R"({"op":"place","gpu":"auto","command":["a",1]})",
                            R"({"op":"place","gpu":"auto","settings":{"length_us":"soon"}})"})
    EXPECT_EQ(ask(wrong)["code"], "usage") << wrong;
  EXPECT_EQ(ask(R"({"op":"place","gpu":"2"})")["allowed"], "auto, 0, 1");
}

TEST_F(ControlHandlerTest, SetsATenant) {
  const Answer answer =
      handle(R"({"op":"set","tenant":"a","settings":{"weight":"300","max":"30%"},"create":true})");
  EXPECT_TRUE(answer.has_changed);
  const Tenant& tenant = *rig_.tenants.at(rig_.tenants.find("a").value());
  EXPECT_EQ(tenant.settings.weight, 300u);
  ASSERT_TRUE(tenant.settings.cap);
  EXPECT_EQ(tenant.settings.cap->quota, 30ms);
}

TEST_F(ControlHandlerTest, AnErrorNamesWhatWouldBeRight) {
  const Json weight = ask(R"({"op":"set","tenant":"default","settings":{"weight":"0"}})");
  EXPECT_EQ(weight["code"], "usage");
  EXPECT_NE(weight["error"].get<std::string>().find("10000"), std::string::npos);
  const Json missing = ask(R"({"op":"set","tenant":"nobody","settings":{}})");
  EXPECT_EQ(missing["code"], "usage");
  const Json op = ask(R"({"op":"dance"})");
  EXPECT_NE(op["allowed"].get<std::string>().find("status"), std::string::npos);
}

TEST_F(ControlHandlerTest, RefusesMalformedRequests) {
  for (const char* request :
       {"", "{", "[]", "1", "null", R"({"op":1})", R"({"tenant":"a"})", R"({"op":"set"})",
        R"({"op":"set","tenant":"default","settings":[]})",
        R"({"op":"set","tenant":"default","settings":{"weight":300}})",
        R"({"op":"attach","pid":"7","tenant":"default"})",
        R"({"op":"attach","pid":0,"tenant":"a"})",
        R"({"op":"attach","pid":99999999999,"tenant":"default"})", R"({"op":"freeze"})",
        R"({"op":"trace"})", R"({"op":"trace","seconds":0})", R"({"op":"trace","seconds":1e300})",
        R"({"op":"trace","seconds":"1"})", "\xff\xfe"}) {
    const Json answer = ask(request);
    EXPECT_EQ(answer["ok"], false) << request;
    EXPECT_EQ(answer["code"], "usage") << request;
    EXPECT_NE(answer["error"], "") << request;
  }
}

TEST_F(ControlHandlerTest, AnOrdinaryUserMayOnlyLookAndRun) {
  for (const char* request :
       {R"({"op":"set","tenant":"default","settings":{"weight":"300"}})",
        R"({"op":"remove","tenant":"default"})", R"({"op":"attach","pid":501,"tenant":"default"})",
        R"({"op":"freeze","pid":1})", R"({"op":"thaw","tenant":"default"})",
        R"({"op":"trace","seconds":1})", R"({"op":"reload"})", R"({"op":"forget"})",
        R"({"op":"run","settings":{"weight":"300"}})", R"({"op":"run","tenant":"a"})",
        R"({"op":"run","tenant":"default","settings":{"weight":"300"}})"}) {
    const Answer answer = handle(request, kUser);
    EXPECT_EQ(Json::parse(answer.line)["code"], "denied") << request;
    EXPECT_FALSE(answer.has_changed) << request;
  }
  for (const char* request : {R"({"op":"hello"})", R"({"op":"status"})", R"({"op":"doctor"})",
                              R"({"op":"use","tenant":"default"})", R"({"op":"run"})",
                              R"({"op":"run","tenant":"default"})"})
    EXPECT_EQ(ask(request, kUser)["ok"], true) << request;
}

TEST_F(ControlHandlerTest, SaysWhatATenantUsedAndWhatBindsIt) {
  const Json unknown = ask(R"({"op":"use","tenant":"a"})");
  EXPECT_EQ(unknown["code"], "usage");
  EXPECT_EQ(unknown["error"], "there is no tenant 'a'");
  ask(R"({"op":"set","tenant":"a","settings":{"weight":"300","max":"30%"},"create":true})");
  const Answer answer = handle(R"({"op":"use","tenant":"a"})");
  EXPECT_FALSE(answer.has_changed);
  const Json use = Json::parse(answer.line);
  EXPECT_EQ(use["gpu_time_ns"], 0);
  EXPECT_EQ(use["throttled_ns"], 0);
  EXPECT_EQ(use["settings"]["weight"], "300");
  EXPECT_EQ(use["settings"]["max"], "30%");
  EXPECT_EQ(use["settings"]["memory_max"], "max");
  EXPECT_EQ(use["settings"]["priority"], "normal");
  // While there is no GPU what was published last goes on, so that a job that has ended is not said
  // to have used nothing.
  TenantRecord record;
  std::strcpy(record.name, "a");
  record.gpu[1].gpu_time_ns = 5'000;
  record.throttled_ns = 70;
  write_record(plane_.region().tenants[*rig_.tenants.find("a")].record, record);
  const Json last = ask(R"({"op":"remove","tenant":"a"})");
  EXPECT_EQ(last["gpu_time_ns"], 5'000);
  EXPECT_EQ(last["throttled_ns"], 70);
}

TEST_F(ControlHandlerTest, ARunInAScopeHasWhateverIsInTheCallersCgroup) {
  const std::string request = R"({"op":"run","settings":{"max":"10%"},"scope":true})";
  ProcessDetails& caller = rig_.processes.add({kRoot.pid, 1}, "gpushare");
  caller.cgroup = "/system.slice/ssh.service";
  EXPECT_EQ(ask(request)["code"], "usage") << "it is not alone there";
  EXPECT_EQ(rig_.tenants.slots().size(), 1U) << "nothing was done";
  caller.cgroup = "/gpushare-run-500.scope";
  EXPECT_EQ(ask(request, kUser)["code"], "denied");
  const Json done = ask(request);
  ASSERT_EQ(done["ok"], true) << done;
  EXPECT_EQ(done["follows_forks"], false);
  ProcessIdentity daemon;
  daemon.id = {900, 1};
  for (const char* cgroup : {"/gpushare-run-500.scope", "/gpushare-run-500.scope/inner"}) {
    daemon.cgroup_path = cgroup;
    EXPECT_EQ(rig_.tenants.at(rig_.tenants.place_of(daemon))->name,
              done["tenant"].get<std::string>())
        << cgroup;
  }
  daemon.cgroup_path = "/gpushare-run-500.scope2";
  EXPECT_EQ(rig_.tenants.place_of(daemon), kDefaultTenant);
}

TEST_F(ControlHandlerTest, AnAttachedCgroupHasWhateverComesThere) {
  ask(R"({"op":"set","tenant":"pod","settings":{},"create":true})");
  const std::string request = R"({"op":"attach","cgroup":"/kubepods/pod1","tenant":"pod"})";
  EXPECT_EQ(ask(request, kUser)["code"], "denied");
  ASSERT_EQ(ask(request)["ok"], true);
  ProcessIdentity process;
  process.id = {900, 1};
  const auto tenant_in = [&](const char* cgroup) {
    process.cgroup_path = cgroup;
    return rig_.tenants.at(rig_.tenants.place_of(process))->name;
  };
  EXPECT_EQ(tenant_in("/kubepods/pod1/container"), "pod");
  EXPECT_EQ(tenant_in("/kubepods/pod1"), "pod");
  for (const char* other : {"/kubepods/pod10/container", "/kubepods", "/x/kubepods/pod1", ""})
    EXPECT_EQ(tenant_in(other), "default") << other;
  ask(R"({"op":"remove","tenant":"pod"})");
  EXPECT_EQ(tenant_in("/kubepods/pod1/container"), "default");
}

TEST_F(ControlHandlerTest, WhatIsNoCgroupIsRefused) {
  ask(R"({"op":"set","tenant":"pod","settings":{},"create":true})");
  for (const char* cgroup : {"", "/", "a", "/a/", "//a", "/a/../b", "/a/./b", "/.."}) {
    const Json said = ask(Json{{"op", "attach"}, {"cgroup", cgroup}, {"tenant", "pod"}}.dump());
    EXPECT_EQ(said["code"], "usage") << cgroup << " " << said;
  }
  EXPECT_EQ(ask(R"({"op":"attach","cgroup":7,"tenant":"pod"})")["code"], "usage");
  EXPECT_EQ(ask(R"({"op":"attach","cgroup":"/a","tenant":"nobody"})")["code"], "usage");
  EXPECT_TRUE(rig_.tenants.scopes().empty());
}

TEST_F(ControlHandlerTest, AnOrdinaryUsersRunDoesNotOverruleTheRules) {
  ask(R"({"op":"run","tenant":"default"})", kUser);
  EXPECT_TRUE(rig_.tenants.attached().empty());
}

TEST_F(ControlHandlerTest, RunPutsTheCallerIntoATenant) {
  ask(R"({"op":"set","tenant":"a","settings":{},"create":true})");
  EXPECT_EQ(ask(R"({"op":"run","tenant":"a"})")["tenant"], "a");
  EXPECT_EQ(tenant_of(kRoot.pid), "a");
}

TEST_F(ControlHandlerTest, RunWithSettingsMakesATransientTenant) {
  const Json answer = ask(R"({"op":"run","settings":{"weight":"300"}})");
  EXPECT_EQ(answer["tenant"], "run-500");
  EXPECT_EQ(tenant_of(kRoot.pid), "run-500");
  const Tenant& tenant = *rig_.tenants.at(rig_.tenants.find("run-500").value());
  EXPECT_TRUE(tenant.is_transient);
  EXPECT_EQ(tenant.settings.weight, 300u);
}

TEST_F(ControlHandlerTest, RunOfACallerThatIsGoneFails) {
  rig_.processes.everyone_lives = false;
  EXPECT_EQ(ask(R"({"op":"run"})")["ok"], false);
}

TEST_F(ControlHandlerTest, WhatIsFrozenWithATenantAboveIsThawedWithIt) {
  for (const char* name : {"team", "team/job"})
    ASSERT_EQ(ask(R"({"op":"set","create":true,"tenant":")" + std::string(name) + R"("})")["ok"],
              true);
  for (const char* name : {"team", "team/job"})
    ASSERT_EQ(ask(R"({"op":"freeze","tenant":")" + std::string(name) + R"("})")["ok"], true);
  const Json refused = ask(R"({"op":"thaw","tenant":"team/job"})");
  EXPECT_EQ(refused["ok"], false);
  EXPECT_NE(refused["error"].get<std::string>().find("gpushare thaw team)"), std::string::npos);
  EXPECT_EQ(ask(R"({"op":"thaw","tenant":"team"})")["ok"], true);
  EXPECT_EQ(ask(R"({"op":"thaw","tenant":"team/job"})")["ok"], true);
  EXPECT_EQ(ask(R"({"op":"set","create":true,"tenant":"nobody/job"})")["ok"], false);
  EXPECT_EQ(ask(R"({"op":"remove","tenant":"team"})")["ok"], false);
}

TEST_F(ControlHandlerTest, FreezesATenantOrAProcess) {
  rig_.start();
  rig_.add_busy("a", {});
  rig_.run_for(100ms);
  const std::string pid = std::to_string(rig_.programs[0]->process.pid);
  EXPECT_EQ(ask(R"({"op":"freeze","pid":)" + pid + "}")["ok"], true);
  rig_.run_for(100ms);
  EXPECT_EQ(rig_.record(*rig_.programs[0]).state, ProcessState::kFrozenUser);
  EXPECT_EQ(ask(R"({"op":"thaw","pid":)" + pid + "}")["ok"], true);
  EXPECT_EQ(ask(R"({"op":"freeze","tenant":"a"})")["ok"], true);
  rig_.run_for(100ms);
  EXPECT_EQ(rig_.record(*rig_.programs[0]).state, ProcessState::kFrozenUser);
  const Json refused = ask(R"({"op":"thaw","pid":)" + pid + "}");
  EXPECT_EQ(refused["code"], "usage");
  EXPECT_NE(refused["error"].get<std::string>().find("thaw the tenant"), std::string::npos);
  EXPECT_EQ(ask(R"({"op":"thaw","tenant":"a"})")["ok"], true);
  EXPECT_EQ(ask(R"({"op":"thaw","pid":)" + pid + "}")["ok"], true) << "nothing is frozen now";
}

TEST_F(ControlHandlerTest, AProcessMayBeFrozenBeforeItComesToAGpu) {
  rig_.start();
  const Json answer = ask(R"({"op":"freeze","pid":100})");
  EXPECT_EQ(answer["ok"], true);
  EXPECT_EQ(answer["on_gpu"], false);
  rig_.add_busy("a", {});  // it has this pid
  rig_.run_for(100ms);
  EXPECT_EQ(rig_.record(*rig_.programs[0]).state, ProcessState::kFrozenUser);
  EXPECT_EQ(ask(R"({"op":"thaw","pid":100})")["on_gpu"], true);
  rig_.processes.dead[4711] = true;
  EXPECT_EQ(ask(R"({"op":"freeze","pid":4711})")["code"], "usage");
}

TEST_F(ControlHandlerTest, AProcessThatHasTheNumberOfTheOneMeantIsLeftAlone) {
  rig_.start();
  rig_.add_busy("a", {});
  rig_.run_for(100ms);
  const ProcessId process = rig_.programs[0]->process;
  const auto freeze = [&](const std::string& start_ticks) {
    return ask(
        fmt::format(R"({{"op":"freeze","pid":{},"start_ticks":{}}})", process.pid, start_ticks));
  };
  for (const std::string& wrong : {std::to_string(process.start_ticks + 1), std::string("\"1\"")}) {
    EXPECT_EQ(freeze(wrong)["code"], "usage") << wrong;
    rig_.run_for(100ms);
    EXPECT_NE(rig_.record(*rig_.programs[0]).state, ProcessState::kFrozenUser);
  }
  EXPECT_EQ(freeze(std::to_string(process.start_ticks))["ok"], true);
  rig_.run_for(100ms);
  EXPECT_EQ(rig_.record(*rig_.programs[0]).state, ProcessState::kFrozenUser);
}

TEST_F(ControlHandlerTest, ForgetsWhatWasSetAtRunTime) {
  ask(R"({"op":"set","tenant":"a","settings":{"weight":"300"},"create":true})");
  EXPECT_TRUE(handle(R"({"op":"forget"})").has_changed);
  EXPECT_FALSE(rig_.tenants.find("a"));
}

TEST_F(ControlHandlerTest, WithoutAGpuItSaysSo) {
  EXPECT_EQ(ask(R"({"op":"trace","seconds":1})")["code"], "failed");
  for (const char* request :
       {R"({"op":"freeze","pid":1})", R"({"op":"freeze","tenant":"default"})"})
    EXPECT_EQ(ask(request)["ok"], true) << "for when one comes: " << request;
}

TEST_F(ControlHandlerTest, TracesForAsLongAsAsked) {
  rig_.start();
  const Answer answer = handle(R"({"op":"trace","seconds":1.5})");
  EXPECT_EQ(answer.trace, 1500ms);
  EXPECT_EQ(Json::parse(answer.line)["start_ns"],
            rig_.machine.model.now().time_since_epoch().count());
}

TEST_F(ControlHandlerTest, ReloadReportsTheFilesMistakes) {
  EXPECT_EQ(ask(R"({"op":"reload"})")["ok"], true);
  reload_ = make_error(std::errc::invalid_argument, "read the configuration", "x.toml:3: no");
  const Json answer = ask(R"({"op":"reload"})");
  EXPECT_EQ(answer["code"], "usage");
  EXPECT_EQ(answer["error"], "x.toml:3: no");
}

TEST_F(ControlHandlerTest, DoctorListsWhatWasLookedAt) {
  const Json answer = ask(R"({"op":"doctor"})", kUser);
  ASSERT_EQ(answer["checks"].size(), 1u);
  EXPECT_EQ(answer["checks"][0]["state"], "ok");
}

// The answers are the same, and what they did stands in sysfs.
TEST_F(ControlHandlerTest, WithTheKernelModuleRequestsGoToSysfs) {
  test::PlainSysfs tree;
  KernelTenants kernel(tree, rig_.tenants, rig_.processes, /*is_told=*/true);
  kernel.start({});
  control_ = &kernel;
  EXPECT_EQ(
      ask(R"({"op":"set","tenant":"a","settings":{"weight":"300","max":"30%"},"create":true})")
          ["ok"],
      true);
  EXPECT_EQ(tree.get("a", "max"), "30000 100000");
  const Json bad = ask(R"({"op":"set","tenant":"a","settings":{"weight":"0"}})");
  EXPECT_EQ(bad["code"], "usage");
  EXPECT_EQ(bad["error"], "weight: '0' is not allowed; allowed: 1 to 10000");
  EXPECT_EQ(ask(R"({"op":"attach","pid":77,"tenant":"a"})")["ok"], true);
  EXPECT_EQ(tenant_of(77), "a");
  EXPECT_EQ(ask(R"({"op":"run","settings":{"weight":"10"}})")["tenant"], "run-500");
  EXPECT_EQ(tree.get("run-500", "weight"), "10");
  const Json removed = ask(R"({"op":"remove","tenant":"a"})");
  EXPECT_EQ(removed, (Json{{"ok", true}, {"gpu_time_ns", 0}, {"throttled_ns", 0}}));
  EXPECT_FALSE(tree.has("a"));
  EXPECT_EQ(ask(R"({"op":"remove","tenant":"default"})")["ok"], false);
}

}  // namespace
}  // namespace gpushare
