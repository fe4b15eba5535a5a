#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes sure that what the build and the tests need is installed:
#   packages.sh [--print] [--demo] [--kernel] [--debug-kernel] [--containers]
# On Debian 12 and 13 and Ubuntu 24.04 it installs what is missing, as root. Otherwise it prints the one
# command to run, and ends with status 1, if something is missing.
#   --print          prints the packages and installs nothing
#   --demo           only what `make demo` needs
#   --kernel         also what the tests in kernels under QEMU, of the packages, and the plugins of Slurm and Kubernetes
#                    need. An ordinary user goes without them: those tests skip.
#   --containers     also podman and runc for `make test-containers`; Docker, which changes the machine's network, it takes
#                    where it is
#   --debug-kernel   also what `make test-kernel-debug` needs to build a kernel
set -eu

demo="g++ make git libasio-dev libbpf-dev libelf-dev zlib1g-dev libzstd-dev libsqlite3-dev clang-19
  libspdlog-dev libfmt-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev"
rest="libboost-dev libncurses-dev libclang-rt-19-dev lld-19 clang-tidy-19 clang-format-19 libgtest-dev libgmock-dev
  libbenchmark-dev libfuse3-dev fuse3 python3 mandoc shellcheck sparse"
kernel="qemu-system-x86 busybox-static cpio pahole debhelper dkms
  libslurm-dev slurmctld slurmd slurm-client munge slurmdbd mariadb-server-core mariadb-client-core
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libcurl4-openssl-dev
  python3-jsonschema"
containers="podman runc busybox-static"
debug_kernel="flex bison bc xz-utils"

print= common="$demo $rest" with_kernel= with_debug_kernel= with_containers=
for argument in "$@"; do
  case $argument in
    --print) print=1 ;;
    --demo) common=$demo ;;
    --kernel) with_kernel=1 ;;
    --debug-kernel) with_debug_kernel=1 ;;
    --containers) with_containers=1 ;;
    *) echo "packages.sh: $argument is not known" >&2; exit 2 ;;
  esac
done
[ "$(id -u)" = 0 ] || [ -n "$print" ] || with_kernel=

ID=unknown VERSION_ID=
[ -r /etc/os-release ] && . /etc/os-release
case "$ID-$VERSION_ID" in
  # What is built on 13 was tried there: docs/install.md.
  debian-12 | debian-13) packages="$common bpftool ${with_kernel:+$kernel linux-headers-cloud-amd64} ${with_debug_kernel:+$debug_kernel} ${with_containers:+$containers}" ;;
  # Its bpftool lies in the tools of a kernel.
  ubuntu-24.04) packages="$common linux-tools-common linux-tools-generic ${with_kernel:+$kernel linux-headers-generic} ${with_debug_kernel:+$debug_kernel} ${with_containers:+$containers}" ;;
  *)
    command -v bpftool >/dev/null && command -v clang++ >/dev/null && exit 0
    echo "gpushare: packages are known for Debian 12 and 13 and Ubuntu 24.04, this is $ID $VERSION_ID." >&2
    echo "gpushare: on Debian 12 they are:" $common bpftool >&2
    exit 1 ;;
esac
# Words, one blank between them.
packages=$(echo $packages)
[ -n "$print" ] && { echo "$packages"; exit 0; }

missing=
for package in $packages; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
    missing="$missing $package"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" != 0 ]; then
  echo "gpushare: missing packages. As root: apt-get install$missing" >&2
  exit 1
fi
echo "gpushare: installing$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends $missing >/dev/null
