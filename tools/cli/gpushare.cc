// SPDX-License-Identifier: Apache-2.0
// The command line of gpushare as a whole.
#include "tools/base/endpoints.h"
#include "tools/cli/commands.h"
#include "tools/containers/cdi_command.h"
#include "tools/demo/sim_command.h"

namespace gpushare {

Option json_option() { return {"json", 0, "", "Print JSON instead of text"}; }

const Command& gpushare_program() {
  static const Command program{
      .name = "gpushare",
      .summary = "share NVIDIA GPUs among unmodified programs.",
      .details =
          "Exit codes: 0 done, 1 failed, 2 wrong usage. 'gpushare COMMAND --help' explains a "
          "command; gpushare-top shows all of it live.",
      .options = endpoint_options(),
      .examples = {"gpushare run --weight 300 -- python train.py", "gpushare status",
                   "gpushare set research max=30%"},
      .commands = {run_command(),    sim_command(),     status_command(),  tenants_command(),
                   queue_command(),  set_command(),     remove_command(),  attach_command(),
                   freeze_command(), thaw_command(),    trace_command(),   profile_command(),
                   report_command(), preload_command(), doctor_command(),  recover_command(),
                   forget_command(), cdi_command(),     version_command(), completion_command()},
  };
  return program;
}

}  // namespace gpushare
