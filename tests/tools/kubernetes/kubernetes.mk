# SPDX-License-Identifier: Apache-2.0
# Shares in Kubernetes: what needs gRPC, and the whole with a real Kubernetes. The rest is in tools_test.
ifeq ($(SAN),)
ifneq ($(has_grpc),)
$(call gtest,kubernetes_test,tests/tools/kubernetes/grpc/kubelet_test.cc,lib/libkubelet.a lib/libkubernetes.a lib/libtools.a lib/libshmctl.a,$(grpc_libraries))
$(O)/bin/tests/kubernetes_test: LDFLAGS := $(filter-out -static-libstdc++,$(LDFLAGS))
$(call objects,tests/tools/kubernetes/grpc/kubelet_test.cc): $(wire_files)
$(call objects,tests/tools/kubernetes/grpc/kubelet_test.cc): CPPFLAGS += -isystem $(wire)
else
kubernetes_skip := $(O)/bin/tests/kubernetes_test
$(kubernetes_skip): tests/tools/kubernetes/kubernetes.mk
	@mkdir -p $(@D)
	@printf '#!/bin/sh\necho "kubernetes.mk:1: Skipped"\necho "gRPC is not installed (packages libgrpc++-dev protobuf-compiler-grpc libcurl4-openssl-dev)"\necho "[  SKIPPED ] KubeletTest.All (0 ms)"\n' > $@
	@chmod +x $@
other_tests += $(kubernetes_skip)
endif

# Where the Kubernetes is that tests/tools/kubernetes/engine.sh builds, once.
KUBERNETES ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gpushare/kubernetes
.PHONY: test-kubernetes
test-kubernetes: $(device_plugin) $(addprefix $(O)/,bin/gpushare bin/gpushared bin/gpushare-exporter bin/gpushare-sim bin/workloads/endless lib/sim/libcuda.so.1)  ## pods of a real Kubernetes on the simulated GPU (root; KUBERNETES=DIR: where it is kept, built at first)
	@tests/tools/kubernetes/engine.sh $(KUBERNETES)
	@python3 tests/tools/kubernetes/kubernetes_test.py $(abspath $(O)) $(KUBERNETES) $(T)
endif
