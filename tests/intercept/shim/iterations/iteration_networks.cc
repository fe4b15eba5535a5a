// SPDX-License-Identifier: Apache-2.0
#include "tests/intercept/shim/iterations/iteration_networks.h"

#include "intercept/shim/iterations/iteration_hash.h"

namespace gpushare::shim {

// Convolution, batch normalisation, activation; some convolutions convert layouts first.
void resnet_forward(Recorder& r, bool is_training, uint32_t batch) {
  r.launch(100, batch * 49);
  r.launch(101, batch * 98);
  for (uint32_t block = 0; block < 16; ++block) {
    for (uint32_t i = 0; i < 3; ++i) {
      if ((block + i) % 4 == 1) r.launch(102, batch * 16);
      r.launch(110 + (block * 3 + i) % 7, batch * (40 >> (block / 4)));
      r.launch(is_training ? 120 : 121, batch * 8);
      r.launch(122, batch * 8);
    }
    r.launch(123, batch * 8);
  }
  r.launch(124, batch);
  r.launch(125, 16);
}

void resnet_backward(Recorder& r) {
  r.launch(130, 64);
  r.launch(131, 8);
  for (uint32_t block = 0; block < 16; ++block) {
    for (uint32_t i = 0; i < 3; ++i) {
      r.launch(132, 512);
      r.launch(133, 512);
      r.launch(140 + (block * 3 + i) % 6, 2048);
      r.launch(150 + (block * 3 + i) % 5, 1024);
      if (r.one_in(40)) r.launch(134, 64);  // a reduction with another split
    }
    r.launch(123, 512);
  }
  r.launch(135, 3136);
}

void optimizer(Recorder& r, uint32_t launches, uint32_t blocks) {
  for (uint32_t i = 0; i < launches; ++i) r.launch(160 + i % 4, blocks);
  r.launch(165, blocks);
}

// `tokens` decides which of cuBLAS's kernels run and how wide all of them are.
void transformer_forward(Recorder& r, uint32_t layers, uint32_t tokens, bool is_lora) {
  const uint32_t pick = bits_of(tokens) % 4;
  r.launch(200, tokens);
  r.launch(201, tokens);
  for (uint32_t layer = 0; layer < layers; ++layer) {
    r.launch(202, tokens);
    for (uint32_t i = 0; i < 3; ++i) {
      r.launch(210 + (pick + i / 2) % 4, tokens * 2);
      if (is_lora) {
        r.launch(220, tokens);
        r.launch(221, tokens);
        r.launch(222, tokens);
      }
    }
    r.launch(203, tokens * 4);
    r.launch(204, tokens * 16);
    if (r.one_in(3)) r.launch(205, 32);  // split reduction
    r.launch(214 + pick % 2, tokens * 2);
    r.launch(206, tokens);
    r.launch(202, tokens);
    r.launch(210 + pick, tokens * 8);
    r.launch(207, tokens * 8);
    r.launch(210 + (pick + 1) % 4, tokens * 2);
    r.launch(206, tokens);
  }
  r.launch(202, tokens);
  r.launch(216, tokens * 64);
}

void transformer_backward(Recorder& r, uint32_t layers, uint32_t tokens, bool recompute) {
  const uint32_t pick = bits_of(tokens) % 4;
  r.launch(230, tokens);
  r.launch(231, tokens * 64);
  for (uint32_t layer = 0; layer < layers; ++layer) {
    if (recompute) {
      r.launch(202, tokens);
      r.launch(210 + pick, tokens * 2);
      r.launch(204, tokens * 16);
      r.launch(207, tokens * 8);
    }
    for (uint32_t i = 0; i < 5; ++i) {
      r.launch(240 + (pick + i) % 5, tokens * 2);
      r.launch(246 + (pick + i) % 3, tokens * 2);
      if (i % 2 == 0) r.launch(206, tokens);
    }
    r.launch(232, tokens * 20);
    r.launch(233, tokens);
    r.launch(234, tokens);
  }
  r.launch(235, tokens);
}

void start_up(Recorder& r, uint32_t tensors) {
  for (uint32_t i = 0; i < tensors; ++i) {
    r.to_gpu(4 << (i % 20));
    r.launch(10, 256);
    if (i % 3 == 0) r.launch(11 + i % 4, 256);
  }
  r.wait();
}

Events repeat(uint64_t seed, uint32_t tensors, uint32_t steps,
              const std::function<void(Recorder&, uint32_t)>& step) {
  Recorder r(seed);
  start_up(r, tensors);
  for (uint32_t i = 0; i < steps; ++i) step(r, i);
  return r.take();
}

}  // namespace gpushare::shim
