# SPDX-License-Identifier: Apache-2.0
$(call library,lib/libshmctl.a,$(wildcard $(addsuffix /*.cc,$(addprefix shmctl/,base plane program settings shim))))
$(O)/obj/shmctl/base/version.o: CPPFLAGS += -DGS_VERSION=\"$(VERSION)\" -DGS_COMMIT=\"$(COMMIT)\"
$(O)/fuzz/shmctl/base/version.o: CPPFLAGS += -DGS_VERSION=\"$(VERSION)\" -DGS_COMMIT=\"$(COMMIT)\"
$(call library,$(formatting),$(formatting_source))
