// SPDX-License-Identifier: Apache-2.0
// door speaks to /dev/gpushare as the agent does. It runs in the guest, statically linked. It opens
// the device and then carries out its words in order. Each word that makes a call prints itself and
// "ok" or the errno ("publish=x errno=2").
//
//   register replay           policy=NAME
//   gpu=INDEX                 describes a GPU: 132 SMs, 1 GiB
//   publish=TENANT            12 s of GPU time, 0.25 of the last second, 3 freezes, 5 s throttled
//   again                     opens the device a second time
//   bad                       every ioctl with a reserved word or a flag set, in a line each
//   wrong-maps                every mapping that must be refused, in a line each
//   events                    prints what is in the ring, and "lost N"
//   run=WORD                  runs `rm_client open WORD` as a child of the agent, and waits for it
//   echo=TEXT sleep=MS wait   "wait" lasts until a signal ends it
//   until=FILE                waits until there is such a file
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "kmod/uapi/gpushare.h"

namespace {

int device = -1;
const gpushare_producer* producer = nullptr;
gpushare_consumer* consumer = nullptr;
const gpushare_event* records = nullptr;

void report(std::string_view word, int rc) {
  const int error = errno;
  std::printf("%.*s ", static_cast<int>(word.size()), word.data());
  if (rc >= 0)
    std::printf("ok\n");
  else
    std::printf("errno=%d\n", error);
}

template <class T>
int call(unsigned long request, T&& argument) {
  return ::ioctl(device, request, &argument);
}

template <size_t N>
void copy_text(char (&to)[N], const std::string& text) {
  std::strncpy(to, text.c_str(), N - 1);
}

void* map(off_t offset, size_t bytes, int protection) {
  void* area = ::mmap(nullptr, bytes, protection, MAP_SHARED, device, offset);
  return area == MAP_FAILED ? nullptr : area;
}

void open_door() {
  device = ::open(GPUSHARE_DEVICE_PATH, O_RDWR | O_CLOEXEC);
  report("open", device);
  if (device < 0) std::exit(1);
  gpushare_query query{};
  if (call(GPUSHARE_IOC_QUERY, query) != 0 || query.uapi_version != GPUSHARE_UAPI_VERSION ||
      query.record_bytes != sizeof(gpushare_event)) {
    std::printf("query failed\n");
    std::exit(1);
  }
  producer = static_cast<const gpushare_producer*>(
      map(static_cast<off_t>(query.producer_offset), query.producer_bytes, PROT_READ));
  consumer = static_cast<gpushare_consumer*>(
      map(static_cast<off_t>(query.consumer_offset), query.consumer_bytes, PROT_READ | PROT_WRITE));
  records = static_cast<const gpushare_event*>(
      map(static_cast<off_t>(query.records_offset), query.records_bytes, PROT_READ));
  if (producer == nullptr || consumer == nullptr || records == nullptr) {
    std::printf("map failed\n");
    std::exit(1);
  }
}

void print(const gpushare_event& event) {
  static const char* const kNames[] = {"?",       "opened",         "closed",  "moved",  "client",
                                       "device",  "group",          "channel", "memory", "freed",
                                       "control", "memory-refused", "settings"};
  std::printf("event %s pid=%u flags=%u", kNames[event.kind < std::size(kNames) ? event.kind : 0],
              event.pid, event.flags);
  switch (event.kind) {
    case GPUSHARE_EVENT_PROCESS_OPENED:
      std::printf(" tenant=%s comm=%.16s", event.opened.tenant, event.opened.comm);
      break;
    case GPUSHARE_EVENT_PROCESS_MOVED:
      std::printf(" tenant=%s", event.moved.tenant);
      break;
    case GPUSHARE_EVENT_CONTROL_MADE:
      std::printf(" command=%x status=%x value=%llu", event.control.command, event.control.status,
                  event.control.value);
      break;
    case GPUSHARE_EVENT_MEMORY_REFUSED:
      std::printf(" bytes=%llu max=%llu", event.memory_refused.bytes,
                  event.memory_refused.max_bytes);
      break;
    case GPUSHARE_EVENT_SETTINGS_CHANGED:
      std::printf(" setting=%u tenant=%s", event.settings.setting, event.settings.tenant);
      break;
    default:
      std::printf(" client=%x parent=%x object=%x class=%x bytes=%llu", event.object.client,
                  event.object.parent, event.object.object, event.object.class_id,
                  event.object.bytes);
  }
  std::printf("\n");
}

void print_events() {
  __u64 tail = consumer->tail;
  for (; tail != __atomic_load_n(&producer->head, __ATOMIC_ACQUIRE); ++tail) {
    print(records[tail % producer->record_count]);
    __atomic_store_n(&consumer->tail, tail + 1, __ATOMIC_RELEASE);
  }
  pollfd ready{device, POLLIN, 0};
  std::printf("lost %llu, poll %d\n", producer->lost, ::poll(&ready, 1, 0));
}

void try_bad_arguments() {
  gpushare_query query{};
  query.flags = 1;
  report("query", call(GPUSHARE_IOC_QUERY, query));
  report("register", call(GPUSHARE_IOC_REGISTER, gpushare_register{1, 0}));
  report("register-reserved", call(GPUSHARE_IOC_REGISTER, gpushare_register{0, 1}));
  report("replay", call(GPUSHARE_IOC_REPLAY, gpushare_replay{1, 0}));
  gpushare_publish publish{};
  publish.usage_bytes = sizeof(gpushare_usage) + 8;
  report("publish-size", call(GPUSHARE_IOC_PUBLISH, publish));
  publish.usage_bytes = sizeof(gpushare_usage);
  publish.count = GPUSHARE_PUBLISH_MAX + 1;
  report("publish-count", call(GPUSHARE_IOC_PUBLISH, publish));
  gpushare_gpu gpu{};
  gpu.index = GPUSHARE_MAX_GPUS;
  report("gpu-index", call(GPUSHARE_IOC_SET_GPU, gpu));
  gpu.index = 0;
  std::memset(gpu.uuid, 'x', sizeof gpu.uuid);
  report("gpu-uuid", call(GPUSHARE_IOC_SET_GPU, gpu));
  gpushare_policy policy{};
  copy_text(policy.name, "a b");
  report("policy", call(GPUSHARE_IOC_SET_POLICY, policy));
  report("unknown", ::ioctl(device, _IO(GPUSHARE_IOC_MAGIC, 99), 0));
}

void try_wrong_maps() {
  gpushare_query query{};
  call(GPUSHARE_IOC_QUERY, query);
  const auto try_map = [](const char* name, __u64 offset, __u64 bytes, int protection) {
    report(name, map(static_cast<off_t>(offset), bytes, protection) == nullptr ? -1 : 0);
  };
  try_map("producer-writable", query.producer_offset, query.producer_bytes, PROT_READ | PROT_WRITE);
  try_map("records-writable", query.records_offset, query.records_bytes, PROT_READ | PROT_WRITE);
  try_map("records-half", query.records_offset, query.records_bytes / 2, PROT_READ);
  try_map("between", query.producer_offset + 64 * query.records_bytes, 4096, PROT_READ);
  report("made-writable", ::mprotect(const_cast<gpushare_producer*>(producer), query.producer_bytes,
                                     PROT_READ | PROT_WRITE));
}

void publish(std::string_view word, const std::string& tenant) {
  gpushare_usage usage{};
  copy_text(usage.tenant, tenant);
  usage.gpu_time_us = 12'000'000;
  usage.throttled_us = 5'000'000;
  usage.freezes = 3;
  usage.turns = 7;
  usage.held_us = 4'000'000;
  usage.share_permille = 250;
  gpushare_publish request{};
  request.usages = reinterpret_cast<__u64>(&usage);
  request.count = 1;
  request.usage_bytes = sizeof usage;
  int rc = call(GPUSHARE_IOC_PUBLISH, request);
  if (rc == 0 && usage.result != 0) {
    errno = -usage.result;
    rc = -1;
  }
  report(word, rc);
}

void carry_out(std::string_view word) {
  const size_t equals = word.find('=');
  const std::string_view verb = word.substr(0, equals);
  const std::string text(equals == std::string_view::npos ? "" : word.substr(equals + 1));
  if (verb == "register") return report(word, call(GPUSHARE_IOC_REGISTER, gpushare_register{}));
  if (verb == "replay") return report(word, call(GPUSHARE_IOC_REPLAY, gpushare_replay{}));
  if (verb == "policy") {
    gpushare_policy policy{};
    copy_text(policy.name, text);
    return report(word, call(GPUSHARE_IOC_SET_POLICY, policy));
  }
  if (verb == "gpu") {
    gpushare_gpu gpu{};
    gpu.index = static_cast<__u32>(std::atoi(text.c_str()));
    gpu.sm_count = 132;
    gpu.memory_bytes = 1 << 30;
    copy_text(gpu.uuid, "GPU-1");
    copy_text(gpu.sharing, "time-slicing");
    return report(word, call(GPUSHARE_IOC_SET_GPU, gpu));
  }
  if (verb == "publish") return publish(word, text);
  if (verb == "again") return report(word, ::open(GPUSHARE_DEVICE_PATH, O_RDWR | O_CLOEXEC));
  if (verb == "bad") return try_bad_arguments();
  if (verb == "wrong-maps") return try_wrong_maps();
  if (verb == "events") return print_events();
  if (verb == "run") return (void)!std::system(("rm_client open " + text).c_str());
  if (verb == "echo") return (void)std::printf("%s\n", text.c_str());
  if (verb == "sleep")
    return (void)::usleep(static_cast<useconds_t>(std::atoi(text.c_str()) * 1000));
  if (verb == "until") {
    while (::access(text.c_str(), F_OK) != 0) ::usleep(30'000);
    return;
  }
  if (verb == "wait")
    for (;;) ::pause();
  std::fprintf(stderr, "door: unknown word %s\n", std::string(word).c_str());
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  open_door();
  for (int i = 1; i < argc; ++i) carry_out(argv[i]);
  return 0;
}
