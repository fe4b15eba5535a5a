// SPDX-License-Identifier: Apache-2.0
// fake_plane REGION [PROCESSES [GPUS [all]]]: keeps a made-up control plane fresh until it is
// interrupted, for looking at gpushare-top and gpushare status by eye. With `all` it has something
// of everything, for Prometheus.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "tests/tools/support/fake_plane.h"

int main(int argc, char** argv) {
  using namespace gpushare;
  if (argc < 2 || argc > 5 || (argc == 5 && std::string_view(argv[4]) != "all")) {
    fmt::print(stderr, "usage: fake_plane REGION [PROCESSES [GPUS [all]]]\n");
    return 2;
  }
  FakePlane fake{.agent_pid = static_cast<uint32_t>(::getpid())};
  if (argc > 2) fake.processes = static_cast<uint32_t>(std::atoi(argv[2]));
  if (argc > 3) fake.gpus = static_cast<uint32_t>(std::atoi(argv[3]));
  fake.has_all = argc == 5;
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  auto plane = ControlPlane::create(argv[1]);
  if (!plane) {
    fmt::print(stderr, "fake_plane: {}\n", plane.error().message());
    return 1;
  }
  const timespec period{.tv_sec = 0, .tv_nsec = 200'000'000};
  do {
    ++fake.step;
    PlaneSnapshot snapshot = fake_snapshot(fake, MonotonicClock().now());
    for (auto& [slot, tenant] : snapshot.tenants)
      for (const GpuRecord& gpu : snapshot.gpus)
        tenant.gpu[gpu.index].share_permille =
            static_cast<uint32_t>(100 * (slot + 1) + fake.step * 7 % 50);
    write_plane(plane->region(), snapshot);
  } while (::sigtimedwait(&signals, nullptr, &period) < 0);
  return ControlPlane::remove(argv[1]) ? 0 : 1;
}
