// SPDX-License-Identifier: Apache-2.0
#include "tools/top/command_line.h"

#include <array>

namespace gpushare {

const ProgramSpec& top_spec() {
  static const ProgramSpec spec{
      .name = "gpushare-top",
      .summary = "watch who shares the GPUs.",
      .options =
          {{.name = "once", .letter = '1', .help = "Print one table and exit."},
           {.name = "json", .help = "Print the status as JSON and exit."},
           {.name = "interval",
            .letter = 'i',
            .value = "SECONDS",
            .help = "Time between two looks, 0.1 to 60 (1)."},
           {.name = "socket",
            .value = "PATH",
            .help = "The agent's control socket (/run/gpushare/agent.sock, or $GPUSHARE_SOCKET).",
            .offers = Offers::kFiles},
           {.name = "region",
            .value = "NAME",
            .help = "The control plane's shared memory (/gpushare, or $GPUSHARE_REGION)."}},
      .details =
          "Press ? for the keys. What is not known is shown as ?. The exit code of --once and "
          "--json is 1 when no agent runs.",
      .examples = {"gpushare-top", "gpushare-top --interval 0.2", "gpushare-top --once"},
  };
  return spec;
}

std::span<const KeyHelp> top_keys() {
  static constexpr std::array<KeyHelp, 13> kKeys{{
      {"Up Down", "choose a row; also j k, Page Up, Page Down, Home, End"},
      {"f", "freeze the process, or the tenant, in this row (asks first)"},
      {"t", "thaw it (asks first)"},
      {"+ -", "raise or lower the weight of its tenant by a tenth"},
      {"v", "group by tenant, and back"},
      {"/", "show only rows that contain a text; Escape shows all"},
      {"S T", "sort by share, by target; the same key again turns the order"},
      {"G P N", "sort by GPU, process id, tenant's name"},
      {"C L A", "sort by command, slice, state"},
      {"K M", "sort by tokens, memory"},
      {"Space", "stop and go on looking"},
      {"?", "this list"},
      {"q", "quit"},
  }};
  return kKeys;
}

}  // namespace gpushare
