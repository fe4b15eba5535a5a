// SPDX-License-Identifier: Apache-2.0
// The eventfd by which this process wakes the agent when a thread comes to stand at the boundary or
// the gate, so that the agent answers at once instead of when it looks next. Called only on the way
// to a wait, never by a launch that goes on.
//
// The descriptor is the program's like any other, and a program may close what it does not know. So
// it gets a high number, which nobody takes by chance, and is written to only while what has that
// number is of the kind that came from the agent. Any thread; a child of fork() has none, because
// the page that names it is cleared.
#pragma once

namespace gpushare::shim {

// Takes over an eventfd that the agent has sent. An older one stays open and is used no more.
// REQUIRES: attach() is under way or has returned in this process.
void keep_wake(int descriptor);

// Wakes the agent, if it has sent an eventfd. Never waits; errno is left as it was.
void wake_agent();

}  // namespace gpushare::shim
