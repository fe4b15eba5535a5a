#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Kubernetes that `make test-kubernetes` runs, once:  engine.sh FOLDER [fetch]
#
# Debian 12 has the source of Kubernetes 1.20.2, but no kubelet. This fetches that source, the Go compiler, etcd and
# containerd by apt into FOLDER (about 4 GB while it builds), builds the four programs there, and installs nothing: neither
# the machine's packages nor apt's own lists are touched. One core at low priority takes 20 to 30 minutes. What is there
# already is not made again. With `fetch`, it ends when all is fetched.
set -euo pipefail
folder=$(mkdir -p "${1:?a folder}" && cd "$1" && pwd)
only_fetch=${2:-}
root=$folder/root bin=$folder/bin apt=$folder/apt
programs="kubelet kube-scheduler kube-controller-manager kube-apiserver"
[ "$(. /etc/os-release; echo "$ID-$VERSION_ID")" = debian-12 ] ||
  { echo "engine.sh: the packages are known for Debian 12 only" >&2; exit 1; }

mkdir -p "$apt"/{lists/partial,cache/archives/partial,debs,source} "$root" "$bin"
cat >"$apt/sources.list" <<LIST
deb http://deb.debian.org/debian bookworm main
deb-src http://deb.debian.org/debian bookworm main
LIST
apt_options=(-qq -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$apt/lists"
  -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root)
packages="containerd runc etcd-server kubernetes-client iptables libip4tc2 libip6tc2 libxtables12 libnetfilter-conntrack3
  libnfnetlink0 libnftnl11 libmnl0 golang-1.19-go golang-1.19-src dpkg-dev"
if [ ! -e "$apt/fetched" ]; then
  apt-get "${apt_options[@]}" update
  (cd "$apt/debs" && apt-get "${apt_options[@]}" download $packages)
  (cd "$apt/source" && apt-get "${apt_options[@]}" source --download-only kubernetes)
  for deb in "$apt"/debs/*.deb; do dpkg-deb -x "$deb" "$root"; done
  touch "$apt/fetched"
fi
[ "$only_fetch" = fetch ] && exit 0

missing=
for program in $programs; do [ -x "$bin/$program" ] || missing="$missing $program"; done
[ -z "$missing" ] && exit 0
source=$folder/go/src/k8s.io/kubernetes
if [ ! -d "$source" ]; then
  mkdir -p "$(dirname "$source")"
  rm -rf "$source.new"
  PATH=$PATH:$root/usr/bin dpkg-source --no-check -q -x "$apt"/source/kubernetes_*.dsc "$source.new"
  mv "$source.new" "$source"
fi
export GOROOT=$root/usr/lib/go-1.19 GOPATH=$folder/go GOCACHE=$folder/go-cache HOME=$folder
export GO111MODULE=off CGO_ENABLED=0 GOFLAGS=${GOFLAGS--p=1} GOMAXPROCS=${GOMAXPROCS-2} PATH=$root/usr/lib/go-1.19/bin:$PATH
cd "$source"
version=k8s.io/component-base/version
flags="-s -w -X $version.gitVersion=v1.20.2 -X $version.gitMajor=1 -X $version.gitMinor=20"
for program in $missing; do
  if [ "$program" = kube-apiserver ] && ! ls pkg/generated/openapi/zz_generated.openapi.go >/dev/null 2>&1; then
    # The API server's own documentation of its objects is generated code, as `make generated_files` makes it.
    packages_with_models=$(grep -rlE '^// \+k8s:openapi-gen=true' vendor/k8s.io/api/ vendor/k8s.io/apimachinery/ \
      vendor/k8s.io/apiserver/ vendor/k8s.io/apiextensions-apiserver/ vendor/k8s.io/kube-aggregator/ \
      vendor/k8s.io/metrics/ staging/src/k8s.io pkg cmd --include=*.go 2>/dev/null | xargs -n1 dirname |
      sed 's,^staging/src/,,; s,^vendor/,,; s,^\(pkg\|cmd\)/,k8s.io/kubernetes/&,' | sort -u | paste -sd,)
    go build -o "$folder/openapi-gen" k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen
    "$folder/openapi-gen" --v 0 --logtostderr -O zz_generated.openapi -h hack/boilerplate/boilerplate.generatego.txt \
      -p k8s.io/kubernetes/pkg/generated/openapi -r /dev/null -i "$packages_with_models"
  fi
  nice -n 19 go build -trimpath -ldflags "$flags" -o "$bin/$program.new" "k8s.io/kubernetes/cmd/$program"
  mv "$bin/$program.new" "$bin/$program"
  echo "engine.sh: built $program"
done
