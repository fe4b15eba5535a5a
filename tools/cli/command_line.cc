// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/command_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/cli/commands.h"

namespace gpushare {
namespace {

const OptionSpec kJson{.name = "json", .help = "Print JSON instead of text."};

CommandSpec run_command() {
  return {
      .name = "run",
      .summary = "Start a program under a tenant.",
      .arguments = "[--] PROGRAM [ARGUMENT...]",
      .min_arguments = 1,
      .max_arguments = kManyArguments,
      .offers = Offers::kCommands,
      .details =
          "PROGRAM replaces gpushare: it keeps the process id, the terminal and the exit code. It "
          "and every process that it starts belong to the tenant.\n"
          "With settings and no --tenant, a tenant of its own is made for it, which goes away with "
          "its last process. With --tenant, the settings change that tenant, which is made if "
          "there is none. The default tenant "
          "needs no privilege; everything else needs root or membership in the group gpushare.",
      .options = {{"tenant", 't', "NAME", "The tenant it belongs to (default).", Offers::kTenants,
                   ""},
                  {"weight", 'w', "N", "Share of GPU time relative to others, 1 to 10000 (100).",
                   Offers::kNothing, ""},
                  {"max", 'm', "CAP",
                   "Most GPU time it may take, on each GPU: max, a percentage such as 30%, or "
                   "\"QUOTA_US PERIOD_US\" (max).",
                   Offers::kWords, "max 10% 25% 50%"},
                  {"priority", 'p', "CLASS", "idle, normal or high (normal).", Offers::kWords,
                   "idle normal high"},
                  {"memory-max", 0, "BYTES",
                   "Most GPU memory: max, or a number with K, M, G or T (max).", Offers::kNothing,
                   ""},
                  {"sm-percent", 0, "N", "Part of the multiprocessors: max, or 1 to 100 (max).",
                   Offers::kNothing, ""},
                  {"slo-us", 0, "N", "Target time of one iteration in microseconds; 0 is none (0).",
                   Offers::kNothing, ""},
                  {"shim", 0, "",
                   "Preload libgpushare.so, which does what only the program itself can do.",
                   Offers::kNothing, ""},
                  {"allow-unmanaged", 0, "",
                   "Start PROGRAM with a warning, instead of failing, when no agent answers.",
                   Offers::kNothing, ""}},
      .examples = {"gpushare run -- python train.py",
                   "gpushare run --tenant research -- python train.py --lr 0.1",
                   "gpushare run --weight 300 --max 30% -- ./simulate",
                   "gpushare run --priority idle -- ./batch-job"},
      .starts_program = true,
  };
}

CommandSpec trace_command() {
  return {
      .name = "trace",
      .summary = "Record the hardware's context switches to a file for Perfetto.",
      .arguments = "",
      .details =
          "The file is Chrome trace JSON; open it at ui.perfetto.dev or chrome://tracing. For each "
          "GPU it has a track per process with its times on the GPU, freezes, thaws and slice "
          "changes as marks, and the shares as counters. A slice is residence: the context was on "
          "the GPU, busy or not.\n"
          "Interrupt (Ctrl-C) ends the recording early and still writes the file.",
      .options = {{"duration", 'd', "SECONDS", "How long to record, 0.1 to 3600 (5).",
                   Offers::kNothing, ""},
                  {"output", 'o', "FILE", "Where to write (gpushare-trace.json).", Offers::kFiles,
                   ""}},
      .examples = {"gpushare trace -d 2 -o switches.json"},
  };
}

CommandSpec profile_command() {
  return {
      .name = "profile",
      .summary = "Measure a program's iterations on every part of a GPU's SMs, in one run.",
      .arguments = "[--] PROGRAM [ARGUMENT...]",
      .min_arguments = 1,
      .max_arguments = kManyArguments,
      .offers = Offers::kCommands,
      .details =
          "PROGRAM is started once and runs on while it is moved from all groups of 8 SMs down to "
          "one; at each the mean and the p99 of an iteration are measured: a training step, a "
          "decoding step, a request, recognised or announced by the program. Then it is asked to "
          "end. The knee is the fewest SMs on which it is at most 5% slower than on the most.\n"
          "Needs neither root nor a running gpushared, but a GPU that nobody else uses. What "
          "PROGRAM prints goes to standard error.",
      .options = {{"groups", 'g', "LIST",
                   "Numbers of groups of 8 SMs, such as 1,2,4-8,16 (all there are).",
                   Offers::kNothing, ""},
                  {"iterations", 'n', "N", "Iterations at each, 5 to 1000000 (50).",
                   Offers::kNothing, ""},
                  {"seconds", 's', "S", "At most so long at each, 0.1 to 36000 (10).",
                   Offers::kNothing, ""},
                  {"wait", 0, "S",
                   "How long to wait for the first iterations, 0.1 to 36000 seconds (120).",
                   Offers::kNothing, ""},
                  {"slo-us", 0, "US", "A target time to draw, in microseconds.", Offers::kNothing,
                   ""},
                  {"json", 0, "FILE", "Write the figures as JSON.", Offers::kFiles, ""},
                  {"svg", 0, "FILE", "Write the curve as SVG.", Offers::kFiles, ""},
                  {"device", 0, "N", "The GPU, by its index in gpushare status (0).",
                   Offers::kNothing, ""},
                  {"keep", 0, "", "Let PROGRAM run to its end afterwards, on the whole GPU.",
                   Offers::kNothing, ""}},
      .examples = {"gpushare profile -- python train.py",
                   "gpushare profile -g 1,2,4,8,16 --slo-us 20000 --svg serve.svg -- ./serve"},
      .starts_program = true,
  };
}

std::vector<CommandSpec> commands() {
  return {
      run_command(),
      {.name = "status",
       .summary = "Show the agent, the GPUs and every process on them.",
       .options = {kJson},
       .examples = {"gpushare status", "gpushare status --json | jq '.processes[].share_pct'"}},
      {.name = "tenants",
       .summary = "Show the tenants, their settings and what they got.",
       .options = {kJson},
       .examples = {"gpushare tenants"}},
      {.name = "set",
       .summary = "Change settings of a tenant.",
       .arguments = "TENANT KEY=VALUE...",
       .min_arguments = 2,
       .max_arguments = kManyArguments,
       .offers = Offers::kTenants,
       .details = "Takes effect within one tick of the agent, also on running programs. Where the "
                  "kernel module is loaded, its files are written, which needs no agent. Keys:\n"
                  "  weight=N          1 to 10000\n"
                  "  max=CAP           max, 30%, or \"QUOTA_US PERIOD_US\"\n"
                  "  priority=CLASS    idle, normal or high\n"
                  "  memory_max=BYTES  max, or a number with K, M, G or T\n"
                  "  sm_percent=N      max, or 1 to 100\n"
                  "  slo_us=N          microseconds; 0 is none",
       .options = {{.name = "create", .letter = 'c', .help = "Make the tenant if there is none."}},
       .examples = {"gpushare set research weight=300 max=30%",
                    "gpushare set --create batch priority=idle",
                    "gpushare set batch max=\"30000 100000\"  # 30 ms in every 100 ms"}},
      {.name = "remove",
       .summary = "Remove a tenant; its processes go to the one that their rules name.",
       .arguments = "TENANT",
       .min_arguments = 1,
       .max_arguments = 1,
       .offers = Offers::kTenants,
       .examples = {"gpushare remove research"}},
      {.name = "attach",
       .summary = "Move a running process to a tenant.",
       .arguments = "PID TENANT",
       .min_arguments = 2,
       .max_arguments = 2,
       .offers = Offers::kPids,
       .examples = {"gpushare attach 4711 research"}},
      {.name = "freeze",
       .summary = "Stop a process, or all processes of a tenant, on the GPU.",
       .arguments = "PID|TENANT",
       .min_arguments = 1,
       .max_arguments = 1,
       .offers = Offers::kTargets,
       .details = "Its kernels stop where they are, its memory stays, and it resumes at that point "
                  "when it is thawed. A number is a process id.",
       .examples = {"gpushare freeze 4711", "gpushare freeze batch"}},
      {.name = "thaw",
       .summary = "Let what was frozen by 'gpushare freeze' run again.",
       .arguments = "PID|TENANT",
       .min_arguments = 1,
       .max_arguments = 1,
       .offers = Offers::kTargets,
       .examples = {"gpushare thaw 4711"}},
      trace_command(),
      profile_command(),
      {.name = "preload",
       .summary = "Put libgpushare.so into every program that starts from now on.",
       .arguments = "enable|disable|status",
       .min_arguments = 1,
       .max_arguments = 1,
       .offers = Offers::kWords,
       .words = "enable disable status",
       .details = "Adds it to /etc/ld.so.preload, or takes it out; other entries stay. It is not "
                  "added when an ordinary program does not start with it. Where the agent wants "
                  "nothing of a program, the library does nothing in it. Needs root.",
       .options = {{.name = "root",
                    .value = "DIR",
                    .help = "The file system to work on: DIR/etc/ld.so.preload (/).",
                    .offers = Offers::kFiles}},
       .examples = {"sudo gpushare preload enable", "gpushare preload status"}},
      {.name = "doctor",
       .summary = "Check everything gpushare needs, and say how to fix what is missing.",
       .details = "Also lists every limit: whether it binds, where it is enforced, and why not. "
                  "The exit code is 1 if any check fails; warnings do not count.",
       .options = {kJson},
       .examples = {"gpushare doctor", "sudo gpushare doctor  # sees more"}},
      {.name = "recover",
       .summary = "Thaw everything a dead agent left frozen and restore the time slices.",
       .details = "Runs 'gpushared --recover'. Not needed while the agent runs: it, or its "
                  "supervisor, does this by itself. Needs root.",
       .examples = {"sudo gpushare recover"}},
      {.name = "version",
       .summary = "Print the version of gpushare and of the running agent.",
       .options = {kJson},
       .examples = {"gpushare version"}},
      {.name = "completion",
       .summary = "Print a completion script for a shell.",
       .arguments = "bash|zsh|fish",
       .min_arguments = 1,
       .max_arguments = 1,
       .offers = Offers::kWords,
       .words = "bash zsh fish",
       .examples = {"gpushare completion bash > /etc/bash_completion.d/gpushare",
                    "source <(gpushare completion zsh)"}},
  };
}

}  // namespace

const ProgramSpec& gpushare_spec() {
  static const ProgramSpec spec{
      .name = "gpushare",
      .summary = "share NVIDIA GPUs among unmodified programs.",
      .options = {{.name = "socket",
                   .value = "PATH",
                   .help = "The agent's control socket (/run/gpushare/agent.sock, or "
                           "$GPUSHARE_SOCKET).",
                   .offers = Offers::kFiles},
                  {.name = "region",
                   .value = "NAME",
                   .help = "The control plane's shared memory (/gpushare, or $GPUSHARE_REGION)."}},
      .commands = commands(),
      .details =
          "Exit codes: 0 done, 1 failed, 2 wrong usage. 'gpushare COMMAND --help' explains a "
          "command; gpushare-top shows all of it live.",
      .examples = {"gpushare run --weight 300 -- python train.py", "gpushare status",
                   "gpushare set research max=30%"},
  };
  return spec;
}

std::string setting_option(std::string_view key) {
  std::string option(key);
  std::ranges::replace(option, '_', '-');
  return option;
}

const std::vector<std::string_view>& setting_keys_of_run() {
  static const std::vector<std::string_view> keys{"weight",     "max",        "priority",
                                                  "memory_max", "sm_percent", "slo_us"};
  return keys;
}

ExitCode report_usage(std::string_view text, const CommandSpec& command) {
  const Stop stop = usage_error(gpushare_spec(), &command, text);
  fmt::print(stderr, "{}", stop.text);
  return stop.code;
}

}  // namespace gpushare
