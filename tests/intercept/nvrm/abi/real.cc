// SPDX-License-Identifier: Apache-2.0
// Compiled with the driver's public headers where OGKM_DIR names a checkout of
// open-gpu-kernel-modules; the build adds its include folders.
#include <cstddef>

#include "tests/intercept/nvrm/abi/abi.h"

#if __has_include(<nvos.h>) && __has_include(<nv_escape.h>)

#include <class/cl0000.h>
#include <class/cl0001.h>
#include <class/cl003e.h>
#include <class/cl0040.h>
#include <class/cl0041.h>
#include <class/cl0080.h>
#include <class/cl2080.h>
#include <class/cl2080_notification.h>
#include <class/cl90cd.h>
#include <class/cl90cdfecs.h>
#include <class/cl90ce.h>
#include <class/cla06c.h>
#include <ctrl/ctrl0000/ctrl0000client.h>
#include <ctrl/ctrl0000/ctrl0000gpu.h>
#include <ctrl/ctrl2080/ctrl2080fb.h>
#include <ctrl/ctrl2080/ctrl2080fifo.h>
#include <ctrl/ctrl2080/ctrl2080gpu.h>
#include <ctrl/ctrl2080/ctrl2080gr.h>
#include <ctrl/ctrl2080/ctrl2080tmr.h>
#include <ctrl/ctrl90cd.h>
#include <ctrl/ctrla06c.h>
#include <ctrl/ctrla06f/ctrla06fgpfifo.h>
#include <nv-ioctl-numbers.h>
#include <nv-ioctl.h>
#include <nv-unix-nvos-params-wrappers.h>
#include <nv_escape.h>
#include <nvmisc.h>
#include <nvos.h>
#include <nvstatuscodes.h>

namespace gpushare {
namespace {

// A record as it lies in the ring: cl90cd.h gives the head, cl90cdfecs.h what follows.
struct SwitchRecordInRing {
  NV_EVENT_BUFFER_RECORD_HEADER head;
  NV_EVENT_BUFFER_FECS_RECORD_V2 body;
};

}  // namespace

std::vector<AbiRow> real_nvrm_abi() {
  return {
#define GS_SIDE(ours, theirs) theirs
#include "tests/intercept/nvrm/abi/table.inc"
  };
}

}  // namespace gpushare

#else

std::vector<gpushare::AbiRow> gpushare::real_nvrm_abi() { return {}; }

#endif
