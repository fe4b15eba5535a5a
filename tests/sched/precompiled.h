// SPDX-License-Identifier: Apache-2.0
// What a third of the tests of sched/ include, parsed and compiled once (Makefile). No file relies
// on it.
#pragma once

#include "sched/policies/policies.h"
#include "shmctl/plane/region.h"
#include "tests/sched/enforce/enforcer_rig.h"
#include "tests/sched/support/events.h"
#include "tests/sched/support/fake_gpu.h"
#include "tests/sched/support/fake_proc_reader.h"
#include "tests/sched/support/no_shims.h"
#include "tests/sched/support/policies.h"
#include "tests/sched/support/scheduler_rig.h"
#include "tests/support/given.h"
#include "tests/support/precompiled.h"
