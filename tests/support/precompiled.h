// SPDX-License-Identifier: Apache-2.0
// What the tests' files include beyond what the others do, parsed once. No file relies on it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"
#include "shmctl/base/process_id.h"
#include "shmctl/compat/precompiled.h"
#include "shmctl/plane/region.h"
#include "shmctl/plane/snapshot.h"
