// SPDX-License-Identifier: Apache-2.0
// Memory whose addresses are reserved, whose pages are made and whose mappings are set in separate
// calls ("CUDA Driver API, Virtual Memory Management").
#include <utility>

#include "tests/conformance/scenes.h"

namespace gpushare::conformance {
namespace {

CUmemAllocationProp on_device(const Stage& stage) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, stage.session().device()};
  return properties;
}

size_t granularity(const Stage& stage, CUmemAllocationGranularity_flags option) {
  const CUmemAllocationProp properties = on_device(stage);
  size_t bytes = 0;
  must(cuMemGetAllocationGranularity(&bytes, &properties, option), "cuMemGetAllocationGranularity");
  return bytes;
}
size_t page(const Stage& stage) { return granularity(stage, CU_MEM_ALLOC_GRANULARITY_MINIMUM); }

// A range of addresses, freed at its end. The scene maps memory into it and unmaps it.
class Addresses {
 public:
  Addresses(const Stage& stage, size_t pages) : bytes_(pages * page(stage)) {
    must(cuMemAddressReserve(&begin_, bytes_, 0, 0, 0), "cuMemAddressReserve");
  }
  ~Addresses() { static_cast<void>(cuMemAddressFree(begin_, bytes_)); }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  CUdeviceptr begin() const { return begin_; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  CUdeviceptr begin_ = 0;
};

CUmemGenericAllocationHandle make(const Stage& stage, size_t bytes) {
  const CUmemAllocationProp properties = on_device(stage);
  CUmemGenericAllocationHandle handle = 0;
  must(cuMemCreate(&handle, bytes, &properties, 0), "cuMemCreate");
  return handle;
}
void map(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle) {
  must(cuMemMap(at, bytes, 0, handle, 0), "cuMemMap");
}
CUresult allow(const Stage& stage, CUdeviceptr at, size_t bytes, CUmemAccess_flags flags) {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, stage.session().device()}, flags};
  return cuMemSetAccess(at, bytes, &access, 1);
}
void allow(const Stage& stage, CUdeviceptr at, size_t bytes) {
  must(allow(stage, at, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), "cuMemSetAccess");
}
void unmap(CUdeviceptr at, size_t bytes) { must(cuMemUnmap(at, bytes), "cuMemUnmap"); }
void release(CUmemGenericAllocationHandle handle) { must(cuMemRelease(handle), "cuMemRelease"); }

// The last word of the first page and what lies behind it.
std::string words_at(Stage& stage, CUdeviceptr at) {
  return std::to_string(stage.read(at)) + " " + std::to_string(stage.read(at + 4));
}

void fill(Stage& stage, CUdeviceptr at, unsigned value, size_t count) {
  const CUstream stream = stage.non_blocking();
  must(cuMemsetD32Async(at, value, count, stream), "cuMemsetD32Async");
  stage.synchronize(stream);
}

void granularities(Stage& stage) {
  stage.say("minimum " + std::to_string(page(stage)) + " recommended " +
            std::to_string(granularity(stage, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)));
}

void map_and_use(Stage& stage) {
  const Addresses addresses(stage, 1);
  const auto memory = make(stage, addresses.bytes());
  map(addresses.begin(), addresses.bytes(), memory);
  allow(stage, addresses.begin(), addresses.bytes());
  fill(stage, addresses.begin(), 5, 2);
  const CUstream stream = stage.stream();
  CUdeviceptr list = addresses.begin() + 64;
  fill(stage, list, 0, 1);
  uint32_t value = 9;
  void* parameters[] = {&list, &value};
  must(cuLaunchKernel(stage.note_kernel(), 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr),
       "cuLaunchKernel");
  stage.synchronize(stream);
  stage.say(words_at(stage, addresses.begin()) + " " + words_at(stage, list));
  unmap(addresses.begin(), addresses.bytes());
  release(memory);
}

// Two allocations side by side are one range for a fill and a copy.
void side_by_side(Stage& stage) {
  const Addresses addresses(stage, 3);
  const size_t one = page(stage);
  const auto first = make(stage, one), second = make(stage, 2 * one);
  map(addresses.begin(), one, first);
  map(addresses.begin() + one, 2 * one, second);
  allow(stage, addresses.begin(), addresses.bytes());
  const CUdeviceptr border = addresses.begin() + one - 4;
  fill(stage, border, 3, 2);
  stage.say(words_at(stage, border));
  unmap(addresses.begin(), addresses.bytes());
  release(first);
  release(second);
}

void two_mappings(Stage& stage) {
  const Addresses first(stage, 1), second(stage, 1);
  const auto memory = make(stage, first.bytes());
  map(first.begin(), first.bytes(), memory);
  map(second.begin(), second.bytes(), memory);
  allow(stage, first.begin(), first.bytes());
  allow(stage, second.begin(), second.bytes());
  fill(stage, first.begin(), 8, 2);
  stage.say(words_at(stage, second.begin()));
  unmap(first.begin(), first.bytes());
  fill(stage, second.begin(), 9, 1);
  stage.say(words_at(stage, second.begin()));
  unmap(second.begin(), second.bytes());
  release(memory);
}

// "cuMemRelease: the memory will be freed when all outstanding mappings are unmapped."
void released_before_unmapped(Stage& stage) {
  const Addresses addresses(stage, 1);
  const auto memory = make(stage, addresses.bytes());
  map(addresses.begin(), addresses.bytes(), memory);
  release(memory);
  allow(stage, addresses.begin(), addresses.bytes());
  fill(stage, addresses.begin(), 4, 2);
  stage.say(words_at(stage, addresses.begin()));
  unmap(addresses.begin(), addresses.bytes());
}

// Memory that is mapped again has what it had before.
void mapped_again(Stage& stage) {
  const Addresses addresses(stage, 2);
  const size_t one = page(stage);
  const auto memory = make(stage, one);
  map(addresses.begin(), one, memory);
  allow(stage, addresses.begin(), one);
  fill(stage, addresses.begin(), 6, 2);
  unmap(addresses.begin(), one);
  map(addresses.begin() + one, one, memory);
  allow(stage, addresses.begin() + one, one);
  stage.say(words_at(stage, addresses.begin() + one));
  unmap(addresses.begin() + one, one);
  release(memory);
}

void access_of(Stage& stage) {
  const Addresses addresses(stage, 1);
  const CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, stage.session().device()};
  const auto flags = [&] {
    unsigned long long found = 99;
    const CUresult result = cuMemGetAccess(&found, &device, addresses.begin());
    return result == CUDA_SUCCESS ? std::to_string(found) : name_of(result);
  };
  const auto memory = make(stage, addresses.bytes());
  stage.say("not mapped " + flags());
  map(addresses.begin(), addresses.bytes(), memory);
  stage.say("mapped " + flags());
  for (const auto& [name, wanted] : {std::pair{"writable", CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                     std::pair{"none", CU_MEM_ACCESS_FLAGS_PROT_NONE}}) {
    must(allow(stage, addresses.begin(), addresses.bytes(), wanted), "cuMemSetAccess");
    stage.say(std::string(name) + " " + flags());
  }
  unmap(addresses.begin(), addresses.bytes());
  release(memory);
}

void refusals(Stage& stage) {
  const Addresses addresses(stage, 2);
  const size_t one = page(stage);
  const CUdeviceptr at = addresses.begin();
  CUdeviceptr pointer = 0;
  CUmemGenericAllocationHandle none = 0;
  const CUmemAllocationProp properties = on_device(stage);
  stage.say("half a page reserved " + name_of(cuMemAddressReserve(&pointer, one / 2, 0, 0, 0)));
  stage.say("half a page made " + name_of(cuMemCreate(&none, one / 2, &properties, 0)));
  const auto memory = make(stage, one);
  stage.say("more than there is mapped " + name_of(cuMemMap(at, 2 * one, 0, memory, 0)));
  stage.say("offset " + name_of(cuMemMap(at, one, one, memory, 0)));
  stage.say("between pages " + name_of(cuMemMap(at + one / 2, one, 0, memory, 0)));
  stage.say("nothing mapped " + name_of(cuMemMap(at, one, 0, 0, 0)));
  stage.say("access to what is not mapped " +
            name_of(allow(stage, at, one, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)));
  stage.say("unmapped what is not mapped " + name_of(cuMemUnmap(at, one)));
  map(at, one, memory);
  stage.say("mapped over " + name_of(cuMemMap(at, one, 0, memory, 0)));
  stage.say("half unmapped " + name_of(cuMemUnmap(at, one / 2)));
  stage.say("freed while mapped " + name_of(cuMemAddressFree(at, addresses.bytes())));
  stage.say("freed by cuMemFree " + name_of(cuMemFree_v2(at)));
  unmap(at, one);
  stage.say("half freed " + name_of(cuMemAddressFree(at, one)));
  release(memory);
  stage.say("released nothing " + name_of(cuMemRelease(0)));
}

constexpr Scene kScenes[] = {
    {"granularity of memory", granularities},
    {"memory mapped and used", map_and_use},
    {"memory side by side", side_by_side},
    {"memory mapped twice", two_mappings},
    {"memory released before it is unmapped", released_before_unmapped},
    {"memory mapped again elsewhere", mapped_again},
    {"access to memory", access_of},
    {"mappings that are refused", refusals},
};

}  // namespace

std::span<const Scene> virtual_memory_scenes() { return kScenes; }

}  // namespace gpushare::conformance
