// SPDX-License-Identifier: Apache-2.0
// What a third of the files of tools/ include, parsed once for all of them (Makefile). No file
// relies on it.
#pragma once

#include "shmctl/compat/precompiled.h"
#include "shmctl/plane/snapshot.h"
#include "shmctl/program/command_line.h"
#include "shmctl/program/finding.h"
#include "tools/agent/protocol.h"
#include "tools/base/endpoints.h"
#include "tools/base/format.h"
