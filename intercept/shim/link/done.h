// SPDX-License-Identifier: Apache-2.0
// Says to the agent that this process has done its work (ShimSlot::done_at), so that whoever waits
// for its turn need not wait until the driver has taken its context down, for tens of
// milliseconds. It is a hint: a launch that comes all the same takes it back, and waits for its
// turn like any other. Any thread; a child of fork() has said nothing.
#pragma once

namespace gpushare::shim {

// The program is about to make a context, or to take the primary one of a device once more; if that
// fails, context_ends() takes it back.
void context_begins();
// It is about to give one up; with the last one it has done its work. Returns false if none is
// counted.
bool context_ends();

// It has done its work, as far as it is known now. Nothing is said by a process that has no slot.
void say_done();
// The same when the program calls exit() or returns from main(), also in children of fork().
// Functions that the program registers later run before. Only the first call does anything.
void say_done_at_exit();

}  // namespace gpushare::shim
