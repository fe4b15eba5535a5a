# SPDX-License-Identifier: Apache-2.0
# bin/gpushare-device-plugin, where gRPC, its generator and libcurl are (packages libgrpc++-dev,
# protobuf-compiler-grpc, libcurl4-openssl-dev). They are shared libraries of the machine. What decides is
# in libkubernetes.a and needs none of them.
wire_sources := tools/kubernetes/deviceplugin.cc tools/kubernetes/podresources.cc tools/kubernetes/kubelet.cc
kubernetes_edge := $(wire_sources) tools/kubernetes/plugin.cc tools/kubernetes/pod_watch.cc
$(call library,lib/libkubernetes.a,$(filter-out $(kubernetes_edge) %/main.cc,$(wildcard tools/kubernetes/*.cc)))
has_grpc := $(and $(wildcard /usr/include/grpcpp/grpcpp.h),$(wildcard /usr/include/curl/curl.h /usr/include/*/curl/curl.h),$(call first_there,protoc),$(call first_there,grpc_cpp_plugin))
grpc_libraries := -lgrpc++ -lgrpc -lgpr -lprotobuf -labsl_synchronization
ifneq ($(has_grpc),)
wire := $(O)/gen/wire
wire_files := $(foreach name,deviceplugin podresources,$(addprefix $(wire)/$(name),.pb.cc .pb.h .grpc.pb.cc .grpc.pb.h))
$(wire_files) &: $(wildcard tools/kubernetes/*.proto)
	$(call say,PROTO,$(wire))
	@mkdir -p $(wire)
	$(Q)protoc -I tools/kubernetes --cpp_out=$(wire) --grpc_out=$(wire) --plugin=protoc-gen-grpc=$(call first_there,grpc_cpp_plugin) $^
# Generated code has warnings of its own.
alone += $(wire_sources)
wire_objects := $(call objects,$(wire_sources))
$(wire_objects): $(wire_files)
$(wire_objects): CPPFLAGS += -isystem $(wire)
ifeq ($(SAN),)
$(call library,lib/libkubelet.a,$(wire_sources))
device_plugin := $(O)/bin/gpushare-device-plugin
$(call program,bin/gpushare-device-plugin,$(addprefix tools/kubernetes/,main.cc plugin.cc pod_watch.cc),lib/libkubelet.a lib/libkubernetes.a lib/libexporter.a lib/libtools.a lib/libshmctl.a,$(grpc_libraries) -lcurl)
# gRPC brings the machine's libstdc++; there must be one only.
$(device_plugin): LDFLAGS := $(filter-out -static-libstdc++,$(LDFLAGS))
endif
endif
