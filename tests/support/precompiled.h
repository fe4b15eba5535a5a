// SPDX-License-Identifier: Apache-2.0
// What the tests' files include beyond what the others do, parsed once. No file relies on it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "shmctl/compat/precompiled.h"
