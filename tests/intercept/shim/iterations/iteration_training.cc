// SPDX-License-Identifier: Apache-2.0
// Programs that train.
#include "intercept/shim/iterations/iteration_hash.h"
#include "tests/intercept/shim/iterations/iteration_networks.h"
#include "tests/intercept/shim/iterations/iteration_programs.h"

namespace gpushare::shim {
namespace {

// Mixed precision: the scaler asks for overflows before the optimizer; a step is left out now and
// then. cuDNN tries its algorithms in the first iteration.
Events resnet_amp(uint64_t seed) {
  return repeat(seed, 160, 400, [](Recorder& r, uint32_t step) {
    r.think(100'000);
    r.to_gpu(38'535'168);
    r.to_gpu(512);
    r.iteration();
    if (step == 0)
      for (uint32_t i = 0; i < 60; ++i) r.launch(300 + i % 30, 500);
    resnet_forward(r, true);
    resnet_backward(r);
    r.launch(166, 40);
    r.item();
    if (!r.one_in(100)) optimizer(r);
    if (step % 10 == 9) r.item();
  });
}

// A benchmark: one batch that stays on the GPU, nothing is ever read back.
Events resnet_synthetic(uint64_t seed) {
  return repeat(seed, 160, 400, [](Recorder& r, uint32_t) {
    r.iteration();
    resnet_forward(r, true);
    resnet_backward(r);
    optimizer(r);
  });
}

// The loader decodes and copies on a stream of its own, at any time; the loss is printed every 50
// steps; a short evaluation every 200 reads its predictions back.
Events resnet_loader_stream(uint64_t seed) {
  constexpr uint64_t kLoader = 9;
  Recorder r(seed);
  start_up(r, 160);
  r.beside(500, [&] {
    r.to_gpu(9'000'000, kLoader);
    for (uint32_t i = 0; i < 6; ++i) r.launch(170 + i, 700, kLoader);
  });
  for (uint32_t step = 0; step < 800; ++step) {
    r.iteration();
    resnet_forward(r, true);
    resnet_backward(r);
    optimizer(r);
    if (step % 50 == 49) r.item();
    if (step % 200 != 199) continue;
    for (uint32_t batch = 0; batch < 20; ++batch) {
      r.iteration();
      resnet_forward(r, false);
      r.launch(180, 64);
      r.item(256);
    }
  }
  return r.take();
}

// Convolutions as above, evaluation every 100 steps with batches from the host and a sum at its
// end; the last batch of an epoch is smaller.
Events resnet_epochs(uint64_t seed) {
  return repeat(seed, 160, 5, [](Recorder& r, uint32_t) {
    for (uint32_t step = 0; step < 100; ++step) {
      r.to_gpu(38'535'168);
      r.iteration();
      resnet_forward(r, true, step == 99 ? 23 : 64);
      resnet_backward(r);
      optimizer(r);
      if (step % 20 == 19) r.item();
    }
    for (uint32_t batch = 0; batch < 20; ++batch) {
      r.to_gpu(38'535'168);
      r.iteration();
      resnet_forward(r, false);
      r.launch(180, 64);
      r.launch(181, 1);
    }
    r.launch(182, 1);
    r.item(8);
    r.think(50'000'000);  // a checkpoint
    for (uint32_t i = 0; i < 40; ++i) r.item(1 << 20);
  });
}

// Sequence lengths differ from batch to batch; gradients are clipped with a look at their norm.
Events transformer_lengths(uint64_t seed) {
  return repeat(seed, 200, 250, [](Recorder& r, uint32_t) {
    const uint32_t tokens = 256 + 64 * r.below(48);
    r.to_gpu(tokens * 8);
    r.to_gpu(tokens * 8);
    r.iteration();
    transformer_forward(r, 24, tokens);
    transformer_backward(r, 24, tokens);
    for (uint32_t i = 0; i < 6; ++i) r.launch(190 + i % 3, 300);
    r.item();
    optimizer(r, 24);
    r.item();
  });
}

Events accumulating(uint64_t seed, uint32_t parts, uint32_t layers, bool is_lora, uint32_t steps) {
  Recorder r(seed);
  start_up(r, 200);
  for (uint32_t step = 0; step < steps; ++step) {
    r.iteration();
    for (uint32_t part = 0; part < parts; ++part) {
      const uint32_t tokens = 1024 + 64 * r.below(16);
      r.to_gpu(tokens * 8);
      transformer_forward(r, layers, tokens, is_lora);
      transformer_backward(r, layers, tokens, is_lora);
    }
    if (is_lora) {
      for (uint32_t i = 0; i < 24; ++i) r.launch(190 + i % 3, 40);
      optimizer(r, 48, 60);
    } else {
      for (uint32_t i = 0; i < 6; ++i) r.launch(190 + i % 3, 300);
      optimizer(r, 24);
    }
    r.item();
    if (step % 50 != 49) continue;
    for (uint32_t batch = 0; batch < 10; ++batch) {
      r.to_gpu(8192);
      r.iteration();
      transformer_forward(r, layers, 1024, is_lora);
      r.launch(236, 64);
      r.item();
    }
  }
  return r.take();
}

Events transformer_accumulating_2(uint64_t seed) { return accumulating(seed, 2, 24, false, 200); }
Events transformer_accumulating_4(uint64_t seed) { return accumulating(seed, 4, 12, false, 200); }
Events lora_accumulating_8(uint64_t seed) { return accumulating(seed, 8, 16, true, 110); }
Events lora_plain(uint64_t seed) { return accumulating(seed, 1, 16, true, 200); }

// 48 layers, no copies, no waits.
Events transformer_synthetic(uint64_t seed) {
  return repeat(seed, 200, 150, [](Recorder& r, uint32_t) {
    r.iteration();
    transformer_forward(r, 48, 2048);
    transformer_backward(r, 48, 2048);
    optimizer(r, 24);
  });
}

// Each expert layer waits for its routing table.
Events mixture_of_experts(uint64_t seed) {
  return repeat(seed, 200, 250, [](Recorder& r, uint32_t) {
    r.to_gpu(16384);
    r.iteration();
    r.launch(200, 2048);
    for (uint32_t layer = 0; layer < 16; ++layer) {
      for (uint32_t i = 0; i < 8; ++i) r.launch(250 + i, 2048);
      r.item(64);
      const uint32_t experts = 3 + r.below(6);
      for (uint32_t i = 0; i < experts; ++i) {
        r.launch(260, 512);
        r.launch(261, 512);
      }
      r.launch(262, 2048);
    }
    transformer_backward(r, 16, 2048);
    optimizer(r);
  });
}

// Boxes are counted on the host, as often as the images ask for it.
Events detection(uint64_t seed) {
  return repeat(seed, 160, 300, [](Recorder& r, uint32_t) {
    r.to_gpu(12'000'000);
    r.iteration();
    resnet_forward(r, true, 8);
    const uint32_t looks = 1 + r.below(6);
    for (uint32_t i = 0; i < looks; ++i) {
      for (uint32_t k = 0; k < 5; ++k) r.launch(270 + k, 30);
      r.item(8);
      const uint32_t boxes = r.below(4);
      for (uint32_t k = 0; k < boxes; ++k) r.launch(276 + k % 2, 10);
    }
    r.launch(279, 100);
    resnet_backward(r);
    optimizer(r);
  });
}

// Gradients are reduced between GPUs on another stream, in buckets, while backward goes on; the
// whole device is waited for once in an iteration.
Events data_parallel(uint64_t seed) {
  constexpr uint64_t kCollective = 11;
  Recorder r(seed);
  start_up(r, 160);
  for (uint32_t step = 0; step < 300; ++step) {
    r.to_gpu(38'535'168);
    r.iteration();
    resnet_forward(r, true);
    for (uint32_t part = 0; part < 4; ++part) {
      for (uint32_t i = 0; i < 90; ++i) {
        r.launch(280 + (part * 90 + i) % 17, 600);
        if (r.one_in(30)) r.launch(299, 24, kCollective);
      }
    }
    optimizer(r);
    r.item();
    if (step % 7 == 6) {
      r.wait(kCollective);
    }
  }
  return r.take();
}

// The next batch is copied on the working stream whenever the loader's thread has it.
Events prefetching_thread(uint64_t seed) {
  Recorder r(seed);
  start_up(r, 200);
  r.beside(300, [&] { r.to_gpu(8192); });
  for (uint32_t step = 0; step < 250; ++step) {
    r.iteration();
    transformer_forward(r, 12, 1024);
    transformer_backward(r, 12, 1024);
    optimizer(r, 24);
    r.item();
  }
  return r.take();
}

// A generator and a discriminator in turn, each with its optimizer.
Events adversarial_networks(uint64_t seed) {
  return repeat(seed, 100, 400, [](Recorder& r, uint32_t) {
    r.to_gpu(3'000'000);
    r.iteration();
    for (uint32_t i = 0; i < 120; ++i) r.launch(800 + i % 23, 400);
    optimizer(r);
    for (uint32_t i = 0; i < 150; ++i) r.launch(830 + i % 31, 400);
    optimizer(r);
    r.item();
    r.item();
  });
}

const Program kPrograms[] = {
    {"ResNet training, mixed precision", resnet_amp},
    {"ResNet training, data stays on the GPU", resnet_synthetic},
    {"ResNet training, loader on its own stream, evaluation", resnet_loader_stream},
    {"ResNet training, epochs with evaluation and checkpoints", resnet_epochs},
    {"transformer training, lengths vary, gradients clipped", transformer_lengths},
    {"transformer training, 2 micro-batches, evaluation", transformer_accumulating_2},
    {"transformer training, 4 micro-batches, evaluation", transformer_accumulating_4},
    {"transformer training, data stays on the GPU", transformer_synthetic},
    {"transformer training, input at any time", prefetching_thread},
    {"LoRA, checkpointed layers", lora_plain},
    {"LoRA, 8 micro-batches", lora_accumulating_8},
    {"mixture of experts, a wait in each layer", mixture_of_experts},
    {"detection, waits as the data asks", detection},
    {"data-parallel training, collectives beside it", data_parallel},
    {"generator and discriminator", adversarial_networks},
};

}  // namespace

std::span<const Program> training_programs() { return kPrograms; }

}  // namespace gpushare::shim
