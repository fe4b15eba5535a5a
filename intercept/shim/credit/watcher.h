// SPDX-License-Identifier: Apache-2.0
// A thread of the process that lets through what waits on the GPU when the agent is dead or hangs.
// Without it a program whose own threads all wait for the GPU would be held for ever if both the
// agent and its supervisor were gone, because then nobody else is left who could set the word.
//
// It sleeps while the word is open, and looks at the agent's beat every 50 ms otherwise; so a
// program is freed at most 50 ms after the beat has become kShimBeatTimeoutNs old. It touches
// nothing but the slot, blocks all signals, and lives as long as the process. A child of fork()
// has none until its own first launch.
#pragma once

namespace gpushare::shim {

// Starts it; to be called once in a process, on any thread. Returns false if it cannot be started.
// A seam: tests without threads bring another.
bool start_watcher();

}  // namespace gpushare::shim
