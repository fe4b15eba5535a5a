// SPDX-License-Identifier: Apache-2.0
// gpushare run: tells the agent which program this process is about to become, then becomes it.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/settings/tenant_settings.h"
#include "tools/agent/client.h"
#include "tools/base/endpoints.h"
#include "tools/base/preload.h"
#include "tools/base/report.h"
#include "tools/base/scope.h"
#include "tools/cli/commands.h"
#include "tools/cli/elsewhere.h"
#include "tools/doctor/advice.h"

namespace gpushare {
namespace {

// How an option is called that is a setting of the tenant: "memory-max" for "memory_max". A length
// is mostly given with its unit, so its option has none.
std::string option_of(std::string_view key) {
  if (key == "length_us") return "length";
  std::string option(key);
  std::ranges::replace(option, '_', '-');
  return option;
}

Request run_request(const Invocation& invocation) {
  Request request{.op = "run",
                  .tenant = invocation.value("tenant").value_or(""),
                  .is_scope = invocation.has("scope")};
  for (std::string_view key : setting_keys())
    if (auto value = invocation.value(option_of(key))) request.settings.emplace_back(key, *value);
  return request;
}

// The library goes before what is preloaded already. An agent that was named by its socket has the
// shim's socket beside that.
Result<> preload_shim(const Invocation& invocation) {
  const auto library = find_shim_library();
  if (!library) return std::unexpected(library.error());
  const char* before = std::getenv("LD_PRELOAD");
  const std::string list =
      before == nullptr || *before == '\0' ? *library : *library + ":" + before;
  const std::string socket = endpoints_of(invocation).socket;
  const std::string beside = (std::filesystem::path(socket).parent_path() / "shim.sock").string();
  if (::setenv("LD_PRELOAD", list.c_str(), 1) != 0 ||
      ::setenv("GPUSHARE_SHIM_SOCKET", beside.c_str(), 1) != 0)
    return errno_error("set the environment");
  return {};
}

// Whether the program has the shim: by our option, or because every program has.
bool gets_shim(const Invocation& invocation) {
  const char* const preloaded = std::getenv("LD_PRELOAD");
  return invocation.has("shim") || has_preload_entry(preloaded == nullptr ? "" : preloaded, "") ||
         has_preload_entry(read_preload("").value_or(""), "");
}

// Where jobs take turns, one with the shim is stopped between two iterations. It gets the shim
// unless the user does not want it, who is told what that means.
void preload_shim_for_turns(const Invocation& invocation) {
  if (gets_shim(invocation)) return;
  std::string reason = "--no-shim";
  if (!invocation.has("no-shim")) {
    const auto preloaded = preload_shim(invocation);
    if (preloaded) return;
    reason = preloaded.error().message();
  }
  fmt::print(stderr,
             "gpushare: jobs take turns here, and without the shim ({}) this one is stopped in "
             "mid-kernel instead of between two iterations\n",
             reason);
}

constexpr Nanos kAskAgain = 1s;
// An agent that is restarted answers again within seconds.
constexpr Nanos kAgentPatience = 60s;

// Asks the agent where the program should run, until it fits somewhere, and lets it see that GPU
// alone. Children inherit it. While it waits, the agent may be restarted. Each question has a
// connection of its own, because the agent takes 64 of a user, and hundreds of programs may wait.
Result<> choose_gpu(const Invocation& invocation) {
  const Request request{.op = "place",
                        .settings = run_request(invocation).settings,
                        .gpu = invocation.text("gpu"),
                        .command = invocation.arguments};
  auto say = [said = std::string()](const std::string& why) mutable {
    if (why != said) fmt::print(stderr, "gpushare: waits: {}\n", why);
    said = why;
  };
  std::optional<Time> answered;  // none: it has not waited yet
  for (Nanos pause = kAskAgain;; std::this_thread::sleep_for(pause)) {
    const auto answer =
        ask_when_there_is_room(endpoints_of(invocation).socket, request, kAgentPatience);
    if (!answer) {
      if (!answered || MonotonicClock().now() - *answered >= kAgentPatience)
        return std::unexpected(answer.error());
      say("the agent does not answer");
      continue;
    }
    const auto placed = decode_placed(*answer);
    if (!placed) return std::unexpected(placed.error());
    if (placed->gpu) {
      const std::string device = placed->uuid.empty() ? std::to_string(*placed->gpu) : placed->uuid;
      if (::setenv("CUDA_VISIBLE_DEVICES", device.c_str(), 1) != 0)
        return errno_error("set the environment");
      fmt::print(stderr, "gpushare: on GPU {}: {}\n", *placed->gpu, placed->reason);
      return {};
    }
    say(placed->reason);
    pause = placed->ask_again;
    answered = MonotonicClock().now();
  }
}

// Whether there is an agent that this user may ask.
Result<> reach(const std::string& socket) {
  const auto client = Client::connect(socket);
  return client ? Result<>() : std::unexpected(client.error());
}

// Says to the gpushare that systemd starts in our place that it is in its scope.
constexpr const char* kInScope = "GPUSHARE_IN_SCOPE";

// This program's own, to be run again in a scope.
std::vector<std::string> command_line() {
  ::setenv(kInScope, "1", 1);
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (!words.empty()) words.front() = std::filesystem::read_symlink("/proc/self/exe");
  return words;
}

ExitCode run(const Invocation& invocation) {
  if (invocation.has("shim") && invocation.has("no-shim"))
    return invocation.wrong("--shim and --no-shim exclude each other");
  // An empty name would mean the tenant `default`, as where a script's variable is not set.
  if (invocation.value("tenant") == "")
    return invocation.wrong("--tenant takes the name of a tenant, not ''");
  const Request request = run_request(invocation);
  const bool asks_for_nothing = request.tenant.empty() && request.settings.empty();
  if (invocation.has("scope")) {
    if (asks_for_nothing) return invocation.wrong("--scope takes a tenant or a setting with it");
    if (::getenv(kInScope) == nullptr)
      if (const auto entered = enter_scope(command_line()); !entered)
        return report(entered.error());
    ::unsetenv(kInScope);
  }
  if (!asks_for_nothing)
    if (const auto elsewhere = starts_elsewhere(invocation.arguments))
      fmt::print(stderr, "gpushare: warning: {}\n", *elsewhere);
  const std::string socket = endpoints_of(invocation).socket;
  const Result<> reached = reach(socket);
  if (reached) {
    if (invocation.has("gpu"))
      if (const auto chosen = choose_gpu(invocation); !chosen) return report(chosen.error());
    const auto answer = ask_when_there_is_room(socket, request, kAgentPatience);
    const auto joined = answer ? decode_joined(*answer) : std::unexpected(answer.error());
    if (!joined) return report_refusal(endpoints_of(invocation), request, joined.error());
    // It then adopts those of its descendants that lose their parent, for as long as it lives, so
    // that the chain of parents tells whose they are.
    if (!asks_for_nothing && !joined->follows_forks) ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (joined->orders_jobs) preload_shim_for_turns(invocation);
    warn_of_no_effect(endpoints_of(invocation), request.tenant, request.settings,
                      gets_shim(invocation));
  } else if (asks_for_nothing && reached.error().code == std::errc::permission_denied) {
    // This is an ordinary user: the agent sees the program without being told, and puts it where
    // the rules say, otherwise into the tenant `default`.
  } else if (invocation.has("allow-unmanaged")) {
    fmt::print(stderr, "gpushare: warning: {}; starting {} unmanaged\n", reached.error().message(),
               invocation.arguments[0]);
  } else {
    return report(reached.error());
  }
  if (invocation.has("shim"))
    if (const auto preloaded = preload_shim(invocation); !preloaded)
      return report(preloaded.error());
  std::vector<char*> arguments;
  arguments.reserve(invocation.arguments.size() + 1);
  for (const std::string& argument : invocation.arguments)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const Error error = errno_error("start the program", invocation.arguments[0]).error();
  report(error);
  return error.code == std::errc::no_such_file_or_directory ? kExitNotFound : kExitCannotRun;
}

}  // namespace

std::vector<Option> setting_options() {
  struct Row {
    std::string_view key;
    char letter;
    const char *value, *meaning, *words;
  };
  constexpr std::array<Row, 12> kRows{{
      {"weight", 'w', "N", "Share of GPU time relative to others", ""},
      {"max", 'm', "CAP", "Most GPU time that it may take, on each GPU", "max 10% 25% 50%"},
      {"priority", 'p', "CLASS", "Which programs go first", "idle normal high"},
      {"memory_max", 0, "BYTES", "Most GPU memory", ""},
      {"sm_percent", 0, "N", "Percentage of the multiprocessors", ""},
      {"slo_us", 0, "TIME", "Target time of one iteration, 0 for none", "5ms 50ms"},
      {"length_us", 0, "TIME", "GPU time of one job alone, for orders of jobs, 0 for unknown",
       "10m 1h"},
      {"iterations", 0, "N", "Iterations that one job makes in all, 0 for unknown", ""},
      {"phase", 0, "PHASE", "What it does of a language model's work, for the policy tpot",
       "auto prefill decode none"},
      {"gang", 0, "BOOL", "Whether its processes run on several GPUs in the same instants",
       "auto true false"},
      {"sm_min", 0, "N", "Smallest percentage of the multiprocessors to run in, 0 for none", ""},
      {"sm_shown", 0, "BOOL", "Whether its programs are shown their partition", "true false"},
  }};
  std::vector<Option> options;
  options.reserve(std::size(kRows));
  for (const Row& row : kRows)
    options.push_back({.name = option_of(row.key),
                       .letter = row.letter,
                       .value = row.value,
                       .help = fmt::format("{}: {}", row.meaning, allowed_values(row.key)),
                       .otherwise = format_setting({}, row.key),
                       .words = row.words});
  return options;
}

Command run_command() {
  std::vector<Option> options = setting_options();
  options.insert(options.begin(), {"tenant", 't', "TENANT", "The tenant it belongs to", "default"});
  options.push_back(
      {"scope", 0, "", "Put PROGRAM into a cgroup of its own, which holds all that it starts"});
  options.push_back({"gpu", 0, "auto|N",
                     "Run it on the GPU where it is expected to end first, or on that of this "
                     "number: it sees no other (CUDA_VISIBLE_DEVICES)",
                     "", "", std::nullopt, "auto"});
  options.push_back({"shim", 0, "",
                     "Preload libgpushare.so, which does what only the program itself can "
                     "do; the default where the policy of a GPU orders jobs"});
  options.push_back({"no-shim", 0, "", "Do not preload it there"});
  options.push_back({"allow-unmanaged", 0, "",
                     "Start PROGRAM with a warning, instead of failing, when no agent "
                     "answers"});
  return {
      .name = "run",
      .summary = "Start a program under a tenant.",
      .arguments = "[--] PROGRAM [ARGUMENT...]",
      .details =
          "PROGRAM replaces gpushare: it keeps the process id, the terminal and the exit code. It "
          "and every process that it starts belong to the tenant. If there is no such program, the "
          "exit code is 127, and 126 if it cannot be started.\n"
          "With settings and no --tenant, a tenant of its own is made for it, which goes away with "
          "its last process. With --tenant, the settings change that tenant, which is made if "
          "there is none. The default tenant needs no privilege; everything else needs root or "
          "membership in the group gpushare.",
      .options = std::move(options),
      .examples = {"gpushare run -- python train.py",
                   "gpushare run --tenant research -- python train.py --lr 0.1",
                   "gpushare run --weight 300 --max 30% -- ./simulate",
                   "gpushare run --gpu auto --length 10m -- python train.py",
                   "gpushare run --priority idle -- ./batch-job"},
      .starts_program = true,
      .run = run,
  };
}

}  // namespace gpushare
