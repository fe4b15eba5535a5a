// SPDX-License-Identifier: Apache-2.0
// What modelled programs have in common: the kernels of a network's passes, for a Recorder to write
// down. Numbers of functions are given out by hundreds. One thread.
#pragma once

#include <functional>
#include <vector>

#include "tests/intercept/shim/iterations/program_recorder.h"

namespace gpushare::shim {

using Events = std::vector<ProgramEvent>;

void resnet_forward(Recorder& r, bool is_training, uint32_t batch = 64);
void resnet_backward(Recorder& r);
void optimizer(Recorder& r, uint32_t launches = 12, uint32_t blocks = 4000);
void transformer_forward(Recorder& r, uint32_t layers, uint32_t tokens, bool is_lora = false);
void transformer_backward(Recorder& r, uint32_t layers, uint32_t tokens, bool recompute = false);
// Loads the parameters of a program with so many tensors.
void start_up(Recorder& r, uint32_t tensors);

// A program that starts up and then does `step` so many times.
Events repeat(uint64_t seed, uint32_t tensors, uint32_t steps,
              const std::function<void(Recorder&, uint32_t step)>& step);

}  // namespace gpushare::shim
