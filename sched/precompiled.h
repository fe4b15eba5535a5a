// SPDX-License-Identifier: Apache-2.0
// What a third of the files of sched/ include, parsed once for all of them (Makefile). No file
// relies on it.
#pragma once

#include "intercept/gpu.h"
#include "sched/policy/entry.h"
#include "sched/policy/policy.h"
#include "shmctl/base/error.h"
#include "shmctl/base/log.h"
#include "shmctl/compat/precompiled.h"
#include "shmctl/plane/region.h"
#include "shmctl/shim/slot.h"
