// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/libcuda/runtime/runtime.h"

#include <fmt/core.h>
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ranges>
#include <string_view>
#include <utility>
#include <vector>

#include "intercept/sim/libcuda/runtime/captures.h"

namespace gpushare::standin {
namespace {

std::mutex start_mutex;
std::atomic<Runtime*> runtime_of_process{nullptr};

uint32_t mps_server() {
  const char* number = std::getenv("GPUSHARE_SIM_MPS");
  return number == nullptr ? 0 : static_cast<uint32_t>(std::strtoul(number, nullptr, 10));
}

// That sequence of each stream of the context, the legacy one's first.
std::vector<uint64_t> of_all_streams(Context& context, uint64_t Stream::* which) {
  const std::lock_guard lock(context.order);
  std::vector<uint64_t> sequences{*context.legacy.*which};
  for (const auto& stream : context.streams) sequences.push_back(*stream.*which);
  return sequences;
}

}  // namespace

// --- start --------------------------------------------------------------------------------------

Runtime* Runtime::get() { return runtime_of_process.load(std::memory_order_acquire); }

CUresult Runtime::start() {
  const std::lock_guard lock(start_mutex);
  if (get() != nullptr) return CUDA_SUCCESS;
  std::unique_ptr<Runtime> runtime(new Runtime);
  if (const CUresult result = runtime->connect(); result != CUDA_SUCCESS) return result;
  runtime_of_process.store(runtime.release(), std::memory_order_release);  // pairs with get()
  if (std::getenv("GPUSHARE_SIM_EVENT_RECORDS") != nullptr) std::atexit(write_event_records);
  return CUDA_SUCCESS;
}

void Runtime::write_event_records() {
  std::FILE* file = std::fopen(std::getenv("GPUSHARE_SIM_EVENT_RECORDS"), "w");
  if (file == nullptr) return;
  fmt::print(file, "{}\n", get()->event_records_.load());
  std::fclose(file);
}

// Those that CUDA_VISIBLE_DEVICES names by index or by the begin of a UUID, in its order, up to the
// first that there is not; all where it is not set.
static std::vector<uint32_t> visible(const std::vector<sim::DescribeReply>& all) {
  std::vector<uint32_t> gpus;
  const char* const given = std::getenv("CUDA_VISIBLE_DEVICES");
  if (given == nullptr) {
    for (uint32_t gpu = 0; gpu < all.size(); ++gpu) gpus.push_back(gpu);
    return gpus;
  }
  for (const auto word : std::views::split(std::string_view(given), ',')) {
    const std::string_view name(word.begin(), word.end());
    const auto named = std::ranges::find_if(all, [&](const sim::DescribeReply& one) {
      return name == std::to_string(one.index) ||
             (name.starts_with("GPU-") && std::string_view(one.uuid).starts_with(name));
    });
    if (named == all.end()) break;
    gpus.push_back(static_cast<uint32_t>(named - all.begin()));
  }
  return gpus;
}

Runtime::Runtime() : captures_(std::make_unique<Captures>()) {}
Runtime::~Runtime() = default;

CUresult Runtime::connect() {
  const char* given = std::getenv("GPUSHARE_SIM");
  const std::string path = given != nullptr && *given != '\0' ? given : sim::kDefaultSocket;
  auto client = Client::connect(path, sim::Role::kProgram,
                                [this](const Completion& done) { on_completion(done); });
  if (!client) {
    fmt::print(
        stderr,
        "libcuda (simulated GPU): {}; is gpushare-sim running? GPUSHARE_SIM names its socket\n",
        client.error().message());
    return CUDA_ERROR_NO_DEVICE;
  }
  client_ = std::move(*client);
  std::vector<sim::DescribeReply> all;
  for (uint32_t i = 0; i < client_->gpu_count(); ++i) {
    const auto about = client_->describe(i);
    if (!about) return to_cuda(about.error());
    all.push_back(*about);
  }
  for (const uint32_t gpu : visible(all)) {
    auto device = std::make_unique<Device>();
    device->ordinal = device_count();
    device->about = all[gpu];
    devices_.push_back(std::move(device));
  }
  watcher_ = std::make_unique<Watcher>(*client_);
  value_watcher_ = std::make_unique<Watcher>(*client_);
  return devices_.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

Device* Runtime::device(CUdevice ordinal) const {
  return ordinal >= 0 && ordinal < device_count() ? devices_[static_cast<size_t>(ordinal)].get()
                                                  : nullptr;
}

// --- contexts -----------------------------------------------------------------------------------

CUresult Runtime::create_context(Device& device, unsigned flags, bool is_primary,
                                 CUcontext* handle) {
  auto remote = client_->create_context(device.about.index, mps_server());
  if (!remote) return to_cuda(remote.error());
  auto context = std::make_shared<Context>();
  context->device = &device;
  context->remote = remote->context;
  context->flags = flags;
  context->is_primary = is_primary;
  context->legacy = std::make_shared<Stream>();
  context->legacy->queue = context->next_queue++;
  context->handle = *handle = contexts.add(context);
  context->legacy->context = number_of(*handle);
  return CUDA_SUCCESS;
}

CUresult Runtime::destroy_context(CUcontext handle) {
  const auto context = contexts.remove(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult waited = wait(*context, all_work(*context));
  const auto destroyed = client_->destroy_context(context->remote);
  {
    const std::lock_guard lock(effects_mutex_);
    std::erase_if(effects_,
                  [&](const auto& item) { return item.second.context == context->remote; });
  }
  const uintptr_t number = number_of(handle);
  const auto is_of_context = [&](const auto& object) { return object.context == number; };
  streams.remove_if(is_of_context);
  events.remove_if(is_of_context);
  functions.remove_if(is_of_context);
  modules.remove_if(is_of_context);
  memory.remove_all(number);
  if (!destroyed) return to_cuda(destroyed.error());
  return waited;
}

// Destructors of thread_local objects of the program may call us, in the main thread also those of
// its static objects. So the stack goes after them: with the keys of the thread, where a call of
// another key's makes it anew. That of the main thread stays. The library is never unloaded.
std::vector<CUcontext>& context_stack() {
  static constinit thread_local std::vector<CUcontext>* stack = nullptr;
  static const pthread_key_t end_of_thread = [] {
    pthread_key_t key{};
    ::pthread_key_create(&key, [](void*) { delete std::exchange(stack, nullptr); });
    return key;
  }();
  if (stack == nullptr) {
    stack = new std::vector<CUcontext>;
    ::pthread_setspecific(end_of_thread, stack);
  }
  return *stack;
}

std::shared_ptr<Green> green_of(const Runtime& runtime, CUcontext context) {
  return runtime.greens.find(reinterpret_cast<CUgreenCtx>(context));
}

Current current() {
  Current result;
  result.runtime = Runtime::get();
  if (result.runtime == nullptr) return result;
  const auto& stack = context_stack();
  result.status = CUDA_ERROR_INVALID_CONTEXT;
  if (stack.empty() || stack.back() == nullptr) return result;
  CUcontext handle = stack.back();
  result.green = green_of(*result.runtime, handle);
  if (result.green) handle = reinterpret_cast<CUcontext>(result.green->context);
  result.context = result.runtime->contexts.find(handle);
  result.status = result.context ? result.context->failure.load() : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return result;
}

// --- work ---------------------------------------------------------------------------------------

void Runtime::on_completion(const Completion& completion) {
  Effect effect;
  {
    const std::lock_guard lock(effects_mutex_);
    const auto found = effects_.find(completion.sequence);
    if (found == effects_.end()) return;
    effect = std::move(found->second.effect);
    effects_.erase(found);
  }
  effect(completion);
}

// Requires that context.order is held, as does wait_for().
Result<> Runtime::enqueue(Context& context, Stream& stream, Work work, Effect effect) {
  work.context = context.remote;
  work.queue = stream.queue;
  if (effect) {
    const std::lock_guard lock(effects_mutex_);
    effects_.emplace(work.sequence, Pending{context.remote, std::move(effect)});
  }
  if (auto sent = client_->submit(work); !sent) return sent;
  stream.last = work.sequence;
  if (work.kind != WorkKind::kWait && (work.kind != WorkKind::kMarker || stream.green == nullptr))
    stream.last_for_context = work.sequence;
  return {};
}

Result<> Runtime::wait_for(Context& context, Stream& stream, uint64_t sequence) {
  if (sequence == 0 || client_->is_done(sequence)) return {};
  Work wait{};
  wait.sequence = new_sequence();
  wait.kind = WorkKind::kWait;
  wait.amount = sequence;
  return enqueue(context, stream, wait, {});
}

// The legacy default stream and the blocking streams wait for each other.
Runtime::Submitted Runtime::submit(Context& context, Stream& stream, Work work, Effect effect) {
  const std::lock_guard lock(context.order);
  if (work.sequence == 0) work.sequence = new_sequence();
  Result<> done;
  if (&stream == context.legacy.get()) {
    for (const auto& other : context.streams) {
      if (!done || !other->is_blocking() || other->legacy_waits_for == other->last) continue;
      other->legacy_waits_for = other->last;
      done = wait_for(context, stream, other->last);
    }
  } else if (stream.is_blocking() && stream.waits_for_legacy != context.legacy->last) {
    stream.waits_for_legacy = context.legacy->last;
    done = wait_for(context, stream, context.legacy->last);
  }
  if (done) done = enqueue(context, stream, work, std::move(effect));
  if (!done) return {to_cuda(done.error()), 0};
  return {CUDA_SUCCESS, work.sequence};
}

std::vector<uint64_t> Runtime::pending(Context& context, const Stream& stream) {
  const std::lock_guard lock(context.order);
  std::vector<uint64_t> sequences{stream.last};
  if (&stream == context.legacy.get()) {
    for (const auto& other : context.streams)
      if (other->is_blocking()) sequences.push_back(other->last);
  }
  return sequences;
}

std::vector<uint64_t> Runtime::pending(Context& context) {
  return of_all_streams(context, &Stream::last_for_context);
}

std::vector<uint64_t> Runtime::pending(Context& context, const Green& green) {
  const std::lock_guard lock(context.order);
  std::vector<uint64_t> sequences;
  for (const auto& stream : context.streams)
    if (stream->green == green.handle) sequences.push_back(stream->last);
  return sequences;
}

std::vector<uint64_t> Runtime::all_work(Context& context) {
  return of_all_streams(context, &Stream::last);
}

CUresult Runtime::wait(const Context& context, const std::vector<uint64_t>& sequences) {
  for (const uint64_t sequence : sequences)
    if (auto waited = client_->wait(sequence); !waited) return to_cuda(waited.error());
  return context.failure.load();
}

CUresult Runtime::query(const Context& context, const std::vector<uint64_t>& sequences) {
  if (auto polled = client_->poll(); !polled) return to_cuda(polled.error());
  for (const uint64_t sequence : sequences)
    if (!client_->is_done(sequence)) return CUDA_ERROR_NOT_READY;
  return context.failure.load();
}

// --- streams ------------------------------------------------------------------------------------

std::shared_ptr<Stream> Runtime::new_stream(Context& context, unsigned flags) {
  auto created = std::make_shared<Stream>();
  created->context = number_of(context.handle);
  created->flags = flags;
  const std::lock_guard lock(context.order);
  sweep(context);
  if (context.free_queues.empty()) {
    created->queue = context.next_queue++;
  } else {
    created->queue = context.free_queues.back();
    context.free_queues.pop_back();
  }
  context.streams.insert(created);
  return created;
}

void Runtime::drop_stream(Context& context, Stream& stream) {
  captures_->drop(stream);
  const std::lock_guard lock(context.order);
  stream.is_dropped = true;
  sweep(context);
}

// Requires that context.order is held. Frees the queues of streams that were dropped and are empty.
void Runtime::sweep(Context& context) {
  std::erase_if(context.streams, [&](const auto& each) {
    if (!each->is_dropped || !client_->is_done(each->last)) return false;
    context.free_queues.push_back(each->queue);
    return true;
  });
}

std::shared_ptr<Stream> Runtime::stream(Context& context, CUstream handle) {
  if (handle == nullptr || handle == GS_CU_STREAM_LEGACY) return context.legacy;
  if (handle == GS_CU_STREAM_PER_THREAD) {
    const auto thread = std::this_thread::get_id();
    {
      const std::lock_guard lock(context.order);
      if (const auto found = context.per_thread.find(thread); found != context.per_thread.end())
        return found->second;
    }
    auto created = new_stream(context, CU_STREAM_DEFAULT);
    const std::lock_guard lock(context.order);
    return context.per_thread[thread] = created;
  }
  auto found = streams.find(handle);
  if (found && found->context == number_of(context.handle)) return found;
  // The real driver may crash here.
  if (is_strict()) {
    std::fprintf(stderr, "libcuda (simulated GPU): a stream that has ended, or never was\n");
    std::abort();
  }
  return nullptr;
}

CUresult to_cuda(const Error& error) {
  if (error.code == std::errc::not_enough_memory) return CUDA_ERROR_OUT_OF_MEMORY;
  if (error.code == std::errc::no_such_device) return CUDA_ERROR_INVALID_DEVICE;
  if (error.code == std::errc::invalid_argument) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_DEVICE_UNAVAILABLE;  // the server is gone
}

}  // namespace gpushare::standin
