// SPDX-License-Identifier: Apache-2.0
// Rest: nothing of the process runs on a device. Only then are partitions made, and stand-ins in
// them, because the driver waits for the end of all running work when it makes a green context, and
// for every 43rd stream in one (bench/results/blocking.jsonl): were it one of a program whose
// kernel waits for this thread, that would stand for ever. On a launching or waiting thread, under
// the device's lock; while the streams are held for it, no thread can put anything into them.
#include <sched.h>

#include "intercept/shim/driver/in_context.h"
#include "intercept/shim/link/quiet.h"
#include "intercept/shim/link/thread_id.h"
#include "intercept/shim/streams/streams.h"

namespace gpushare::shim {

using Place = Partitions::Place;

// Its place waits for the work at its earlier places, so only its place is asked. REQUIRES: the
// stream cannot end meanwhile, and nothing captures.
bool Streams::is_at_rest(Stream& stream) const {
  const CUstream there = stream.physical();
  if (there != GS_CU_STREAM_PER_THREAD) return driver_->cuStreamQuery(there) == CUDA_SUCCESS;
  const Locked locked(stream.event_lock);
  if (stream.is_unmarked.load(std::memory_order_relaxed))
    return driver_->cuStreamQuery(GS_CU_STREAM_LEGACY) == CUDA_SUCCESS;
  return stream.event == nullptr || driver_->cuEventQuery(stream.event) == CUDA_SUCCESS;
}

// Records nothing while any stream captures, as the recording would become part of a graph.
void Streams::record_mark(Stream& stream) {
  const KeepErrno errno_of_the_program;
  const Locked locked(stream.event_lock);
  stream.is_unmarked.store(
      captures_.load(std::memory_order_relaxed) != 0 ||
          (stream.event == nullptr &&
           driver_->cuEventCreate(&stream.event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) ||
          driver_->cuEventRecord(stream.event, GS_CU_STREAM_PER_THREAD) != CUDA_SUCCESS,
      std::memory_order_relaxed);
}

// True: nothing runs, and no thread puts anything into a stream until let_go().
bool Streams::hold_at_rest(Device& device) {
  const InContext in(*driver_, device.primary.load(std::memory_order_relaxed));
  if (!in.is_there() ||
      (device.left != nullptr && driver_->cuStreamQuery(device.left) != CUDA_SUCCESS))
    return false;
  bool is_at_rest_now = true;
  const auto hold = [&](Stream& stream) {
    uint32_t nobody = 0;
    stream.is_held =
        stream.users.compare_exchange_strong(nobody, Stream::kMoving, std::memory_order_seq_cst);
    if (stream.is_held && stream.kind.load(std::memory_order_seq_cst) == Stream::Kind::kNone) {
      // It has ended since it was found, and may not be on the list any more.
      stream.is_held = false;
      stream.users.fetch_sub(Stream::kMoving, std::memory_order_release);
      return;
    }
    const bool is_empty = !stream.is_used.load(std::memory_order_acquire);
    is_at_rest_now = stream.is_held && captures_.load(std::memory_order_seq_cst) == 0 &&
                     (is_empty || is_at_rest(stream));
  };
  hold(device.legacy);
  for (Stream* each = all_.load(std::memory_order_acquire); is_at_rest_now && each != nullptr;
       each = each->next)
    if (each->device == &device &&
        each->kind.load(std::memory_order_acquire) != Stream::Kind::kNone)
      hold(*each);
  // Streams that end, after the look at those that do not: of their work nothing is known yet.
  is_at_rest_now = is_at_rest_now && device.ending.load(std::memory_order_acquire) == 0;
  if (!is_at_rest_now) let_go(device);
  return is_at_rest_now;
}

void Streams::let_go(Device& device) {
  const auto release = [](Stream& stream) {
    if (!stream.is_held) return;
    stream.is_held = false;
    stream.users.fetch_sub(Stream::kMoving, std::memory_order_release);
  };
  release(device.legacy);
  for (Stream* each = all_.load(std::memory_order_acquire); each != nullptr; each = each->next)
    if (each->device == &device) release(*each);
}

// Moves the held streams. REQUIRES: hold_at_rest() was true.
void Streams::put_held(Device& device, Place place) {
  for_each_used(device, [&](Stream& stream) {
    if (stream.is_held) put(stream, place);
  });
}

// Streams in which something runs. REQUIRES: device.lock is held.
uint32_t Streams::count_busy(Device& device) {
  const InContext in(*driver_, device.primary.load(std::memory_order_relaxed));
  uint32_t busy = 0;
  for_each_used(device, [&](Stream& stream) {
    const Alone alone(stream);
    if (!alone.is_alone())
      ++busy;
    else if (alone.kind() != Stream::Kind::kNone && captures_.load(std::memory_order_seq_cst) == 0)
      busy += is_at_rest(stream) ? 0 : 1;
  });
  return busy;
}

bool Streams::is_empty(Stream& stream) {
  const Alone alone(stream);
  if (!alone.is_alone()) return false;
  if (alone.kind() == Stream::Kind::kNone) return true;
  if (captures_.load(std::memory_order_seq_cst) != 0) return false;
  const InContext in(*driver_, stream.device->primary.load(std::memory_order_relaxed));
  return in.is_there() && is_at_rest(stream);
}

// Alone with it, so that the event gets into no capture that begins meanwhile. A thread that was
// cancelled in a call uses its stream for ever, though.
bool Streams::record_behind(Stream& stream, CUevent event) {
  constexpr int kMostTries = 20'000;
  constexpr uint64_t kPatienceNs = 10'000'000;  // a turn of the processor may be long
  const auto record = [&](Stream::Kind kind) {
    const CUstream there = stream.physical();
    const bool is_anothers = there == GS_CU_STREAM_PER_THREAD &&
                             stream.owner.load(std::memory_order_relaxed) != thread_id();
    // The legacy stream's home is behind all blocking streams, also those that capture, and what
    // is put into one of them later would come behind the event.
    return kind != Stream::Kind::kNone && !is_anothers && there != GS_CU_STREAM_LEGACY &&
           !is_capturing(stream) && driver_->cuEventRecord(event, there) == CUDA_SUCCESS;
  };
  const uint64_t begin = monotonic_ns();
  for (int tries = 0; tries < kMostTries && monotonic_ns() - begin < kPatienceNs; ++tries) {
    const Alone alone(stream);
    if (alone.is_alone()) return record(alone.kind());
    ::sched_yield();
  }
  const Look look(stream);
  return record(look.kind());
}

// `left` waits for the first `graphs` of the stream now.
void Streams::note_left(Stream& stream, uint32_t graphs) {
  stream.device->left_graphs.fetch_add(1, std::memory_order_relaxed);
  stream.graphs_seen.store(graphs, std::memory_order_release);  // after the line above
}

bool Streams::hand_over(Stream& stream, CUevent event) {
  const uint32_t launched = stream.graphs.load(std::memory_order_acquire);
  Device& device = *stream.device;
  {
    const Locked locked(device.lock);
    if (!make_left(device)) return false;
  }
  if (!record_behind(stream, event) ||
      driver_->cuStreamWaitEvent(device.left, event, 0) != CUDA_SUCCESS)
    return false;
  note_left(stream, launched);
  return true;
}

void Streams::leave_graphs(Stream& stream) {
  const uint32_t launched = stream.graphs.load(std::memory_order_acquire);
  if (launched == stream.graphs_seen.load(std::memory_order_acquire)) return;
  Device& device = *stream.device;
  const Inside inside;
  const AllowedInCaptures allowed(*driver_);
  const Locked locked(device.lock);
  if (make_left(device) && !is_capturing(stream) && chain(stream, stream.physical(), device.left))
    note_left(stream, launched);
}

bool Streams::has_stand_ins(Device& device, Place place) {
  if (place == 0) return true;
  bool has_all = true;
  for_each_used(device, [&](const Stream& stream) {
    has_all = has_all && stream.at[place].load(std::memory_order_relaxed) != nullptr;
  });
  return has_all;
}

// For the streams that are used, and some spare ones. REQUIRES: hold_at_rest() was true.
bool Streams::make_stand_ins(Device& device, Place place) {
  bool is_complete = true;
  for_each_used(device, [&](Stream& stream) {
    if (stream.is_held) is_complete &= make_stand_in(stream, place);
  });
  for (CUstream& spare : device.spares[place])
    if (spare == nullptr &&
        driver_->cuGreenCtxStreamCreate(&spare, device.partitions.green(place),
                                        CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS)
      spare = nullptr;
  return is_complete;
}

void Streams::drop_spares(Device& device, Place place) {
  for (CUstream& spare : device.spares[place]) {
    if (spare != nullptr) driver_->cuStreamDestroy_v2(spare);
    spare = nullptr;
  }
}

// A stream is about to be destroyed. Its work runs on, and only `left` can still be asked about it.
void Streams::note_left_work(Stream& stream) {
  Device& device = *stream.device;
  if (is_capturing(stream)) return;
  const AllowedInCaptures allowed(*driver_);
  if (driver_->cuStreamQuery(stream.physical()) == CUDA_SUCCESS) return;
  const Locked locked(device.lock);
  if (!make_left(device) || !chain(stream, stream.physical(), device.left)) return;
  const InContext in(*driver_, device.primary.load(std::memory_order_relaxed));
  uint32_t places = 1u << stream.place.load(std::memory_order_relaxed);
  if (stream.is_leaving.load(std::memory_order_relaxed))
    places |= stream.was_at.load(std::memory_order_relaxed);
  for (int i = 0; i <= Partitions::kMost; ++i) {
    CUevent& event = device.left_at[i];
    if ((places >> i & 1) != 0 &&
        (event != nullptr ||
         driver_->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) &&
        driver_->cuEventRecord(event, device.left) == CUDA_SUCCESS)
      device.left_places |= 1u << i;
  }
}

// Whether work of a stream that was destroyed may run at that place still. REQUIRES: device.lock is
// held.
bool Streams::may_run_left(Device& device, Place place) const {
  const uint32_t bit = 1u << place;
  if ((device.left_places & bit) == 0) return false;
  if (driver_->cuEventQuery(device.left_at[place]) == CUDA_ERROR_NOT_READY) return true;
  device.left_places &= ~bit;
  return false;
}

// Makes `left`, with the first partition or for the first stream that ends with work. The driver
// may wait for running work then, as it may when the program makes its own first stream.
bool Streams::make_left(Device& device) {
  if (device.left != nullptr) return true;
  const InContext in(*driver_, device.primary.load(std::memory_order_relaxed));
  return in.is_there() &&
         driver_->cuStreamCreate(&device.left, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
}

}  // namespace gpushare::shim
