# SPDX-License-Identifier: Apache-2.0
# One make for the whole tree. Every folder adds a fragment (FOLDER/FOLDER.mk) that lists what it
# builds; the rules are here. `make` alone needs no root, GPU or network and writes only below $(O).
#   make            everything                     O=DIR    build there instead of build/
#   make help       the targets                    V=1      show the commands
#   SAN=address,undefined | SAN=thread             sanitized build in its own folder
MAKEFLAGS += --no-builtin-rules --no-builtin-variables
# What people build by hand is built by all cores, unless -j says otherwise.
ifneq ($(filter all demo deb dist,$(or $(MAKECMDGOALS),all)),)
jobs := $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
MAKEFLAGS += $(jobs)
endif
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

comma := ,
SAN ?=
O ?= build$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))
# A folder below this one has one spelling, which is also that of the files that say what depends on what.
override O := $(patsubst $(CURDIR)/%,%,$(O))
# What is never sanitized is made once, in the build that a sanitized one lies in; that one has a copy.
unsanitized := $(patsubst %/san-$(subst $(comma),-,$(SAN)),%,$(O))
V ?= 0
Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-6s %s\n' $(1) $(2))

CCACHE := $(shell command -v ccache 2>/dev/null)
CC := gcc
# The first of these programs that is there. Not every shell's `command -v` takes several.
first_there = $(firstword $(foreach name,$(1),$(shell command -v $(name) 2>/dev/null)))
CLANG ?= $(or $(call first_there,clang-19 clang-18 clang),clang)
CLANGXX ?= $(or $(call first_there,clang++-19 clang++-18 clang++),clang++)
CLANG_TIDY ?= $(or $(call first_there,clang-tidy-19 clang-tidy-18 clang-tidy),clang-tidy)
CLANG_FORMAT ?= $(or $(call first_there,clang-format-19 clang-format-18 clang-format),clang-format)
GXX := $(CCACHE) g++
# Clang takes little more than half of g++'s time, as it gains more by precompiled headers, and with its
# sanitizers' runtimes, which are in the program, libraries can be preloaded. What calls in a program's
# launch path is compiled by g++ (intercept/shim/shim.mk).
CXX := $(CCACHE) $(CLANGXX)
# Ubuntu's /usr/sbin/bpftool only looks for the one of the kernel that runs; any will do.
BPFTOOL ?= $(firstword $(wildcard /usr/lib/linux-tools/*/bpftool /usr/sbin/bpftool) bpftool)
AR := ar

# The one place of the version. The changelog of the packages and the module's source, which DKMS builds where
# there is no Makefile, repeat it; `make` compares them.
VERSION := 0.1.0
$(if $(filter "$(VERSION)",$(shell awk '$$2 == "GS_VERSION" {print $$3}' kmod/compat/version.h)),,$(error kmod/compat/version.h is not of version $(VERSION)))
$(if $(filter ($(VERSION)),$(shell head -n 1 tools/setup/debian/changelog)),,$(error tools/setup/debian/changelog is not of version $(VERSION)))
COMMIT := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)

WARN := -Wall -Wextra -Wshadow -Werror
CPPFLAGS := -I. -I$(O)/gen -DSPDLOG_FMT_EXTERNAL -DBOOST_ASIO_NO_DEPRECATED
# Sanitizers double an optimizer's time, and what they find needs none. -g1 is enough for
# a backtrace and takes a quarter less time than -g; `make OPTIMIZE='-O0 -g'` is for a debugger.
# A test program's own code is compiled once and run once: an optimizer takes half of the time that
# compiling it takes, and saves none; line numbers take a fifth, and GoogleTest names the line.
# What Debian's packages are compiled with (dpkg-buildflags): the agent runs as root, and reads what programs that
# it does not trust wrote. Without an optimizer the C library has no checked functions.
HARDENED := $(if $(SAN),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fstack-clash-protection -fcf-protection)
OPTIMIZE := $(if $(SAN),-O0 -g1,-O2 -g1 $(HARDENED))
TEST_OPTIMIZE := $(if $(filter command%,$(origin OPTIMIZE)),$(OPTIMIZE),-O0 -g0)
HOT_OPTIMIZE := $(if $(filter command%,$(origin OPTIMIZE)),$(OPTIMIZE),-O1 -g1)
CXXFLAGS = -std=c++23 $(OPTIMIZE) -fPIC -fno-omit-frame-pointer -fvisibility=hidden $(WARN) $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=undefined -fsanitize-ignorelist=tools/setup/sanitizers.txt) $(if $(findstring thread,$(SAN)),-DASIO_DISABLE_FENCED_BLOCK)
CFLAGS := -std=c11 -O2 -g -fPIC $(HARDENED) $(WARN)
# libstdc++ is static, so that programs run where an older or no g++ is; libgcc_s is everywhere, and its
# unwinder must fit the machine's glibc. A sanitizer's runtime is in the program, for the libraries that
# it loads too, and wants libstdc++ shared.
# All symbols are bound at the start, and the tables of them are read-only from then on: the agent runs as root.
LDFLAGS := $(if $(SAN),-fsanitize=$(SAN),-static-libstdc++) -pthread -Wl,-z,relro,-z,now
# Most of what is linked is tests, and lld takes a quarter of the usual linker's time for them. It
# cannot be told to keep its warnings of static programs to itself.
LLD := $(call first_there,ld.lld-19 ld.lld-18 ld.lld)
linker = $(if $(LLD),$(if $(SAN)$(filter $(O)/bin/tests/% $(O)/bin/fuzz/%,$@),--ld-path=$(LLD)))
# For programs that run where there is no libc, or where the dynamic loader is slow. They open no
# library, of which a static program would have to be warned.
STATIC := -static -Wl,--no-warnings
compat_object := $(O)/obj/shmctl/compat/arc4random.o
all_objects += $(compat_object)
# Last of every program's libraries.
formatting := lib/libformatting.a
formatting_source := shmctl/compat/fmt.cc

# --- what fragments call ------------------------------------------------------------------------
# $(call library,lib/libx.a,SOURCES)           static library
# $(call program,bin/x,SOURCES,LIBS,FLAGS)     program; LIBS: our archives, FLAGS: to the linker
# $(call gtest,name,SOURCES,LIBS,FLAGS)        test program bin/tests/name, run by `make test`
# $(call gbench,name,SOURCES,LIBS,FLAGS)       benchmark bin/bench/name, run by `make bench`
# $(call fuzzer,name,SOURCES,LIBS,FLAGS)       libFuzzer program bin/fuzz/name, built where SAN has address
objects = $(patsubst %.cc,$(O)/obj/%.o,$(1))
# The files of a folder that go into one library or program are compiled together, this many at a time: most of the
# work are templates, which each file by itself would instantiate again. A cold build takes two thirds of the time
# so. Sanitized builds, which are made as a whole, have a folder's files together. TOGETHER=1 compiles each by itself.
TOGETHER ?= $(if $(SAN),14,7)
# Not these: main functions, of which several lie in one folder; the shim's files, which are written for the flags
# of shim.mk; files in whose folder each has the same names; and what a fragment adds because it has flags of its own.
alone := %main.cc intercept/shim/% bench/gpu/scenarios/% tools/top/draw/% $(addprefix tests/,conformance/% intercept/shim/iterations/% \
  sched/enforce/recovery_test.cc sched/spatial/sm_sets_test.cc sched/tenants/takeover_test.cc shmctl/plane/ledger_death_test.cc shmctl/plane/snapshot_test.cc tools/top/model_test.cc)
# $(call compiled,SOURCES): their objects. $(O)/joined/FOLDER/COUNT-FIRST-LAST.cc includes the files that are compiled
# together; it is written anew only when they are others.
compiled = $(strip $(if $(filter 1,$(TOGETHER)),$(call objects,$(1)),$(call objects,$(filter $(alone),$(1))) \
  $(foreach folder,$(sort $(dir $(1))),$(call lots_of,$(filter-out $(alone),$(filter $(addprefix $(folder),$(notdir $(1))),$(1)))))))
lots_of = $(call in_lots,$(filter %_test.cc,$(1))) $(call in_lots,$(filter-out %_test.cc,$(1)))
in_lots = $(if $(1),$(call lot,$(wordlist 1,$(TOGETHER),$(1))) $(call in_lots,$(filter-out $(wordlist 1,$(TOGETHER),$(1)),$(1))))
lot = $(if $(word 2,$(1)),$(call objects,$(call joined,$(dir $(firstword $(1)))$(words $(1))-$(basename $(notdir $(firstword $(1))))-$(notdir $(lastword $(1))),$(subst $(newline) ,$(newline),$(foreach file,$(1),$(hash)include "$(file)"$(newline))))),$(call objects,$(1)))
joined = $(1)$(if $(call same,$(strip $(file <$(O)/joined/$(1))),$(strip $(2))),,$(shell mkdir -p $(dir $(O)/joined/$(1)))$(file >$(O)/joined/$(1),$(2)))
hash := \#
define newline


endef
# The objects with the functions of the precompiled headers of the rooms that the sources lie in.
room_objects = $(strip $(foreach room,$(rooms_with_functions),$(if $(filter $(room)/%,$(filter-out $(addsuffix %,$(with_other_flags)),$(1))),$(O)/obj/$(room)/precompiled.o)))
# In sanitized builds the archives have them.
drops_unused = $(if $(or $(SAN),$(call room_objects,$(1))),-Wl$(comma)--gc-sections)
# $(call never_sanitized,FILE...): the rule for the copies of a sanitized build.
define copy_rule
$(O)/$(1): $(unsanitized)/$(1)
	@mkdir -p $$(@D)
	$$(Q)cp $$< $$@
endef
never_sanitized = $(if $(filter-out $(O),$(unsanitized)),$(foreach file,$(1),$(eval $(call copy_rule,$(file)))))
# $(call below,FOLDER...,PATTERN): the files of that name in the folders and up to three levels below them.
below = $(foreach folder,$(1),$(foreach depth,/ /*/ /*/*/ /*/*/*/,$(wildcard $(folder)$(depth)$(2))))

# $(call parts,NAME,PARTS): a file that holds PARTS, written anew only when they are others. Who needs
# it is remade when its list shrinks, or grows by something that is older than itself. GNU make 4.3 leaves a file's
# last newline in what it has read, or takes it away, as its memory happens to lie: blanks at the end are no difference.
same = $(if $(subst x$(1)x,,x$(2)x),,same)
parts_file = $(O)/parts/$(subst /,-,$(1))
parts = $(parts_file)$(if $(call same,$(strip $(file <$(parts_file))),$(strip $(2))),,$(shell mkdir -p $(O)/parts)$(file >$(parts_file),$(2)))

# A file that is written anew when the tree has been copied or moved. Dependencies that named the old place, as those
# on precompiled headers do, are mended then, so that what was compiled need not be compiled again.
old_place := $(strip $(file <$(O)/parts/where))
where := $(call parts,where,$(CURDIR))
ifneq ($(or $(call same,$(old_place),$(CURDIR)),$(call same,$(old_place),)),same)
$(shell find $(O) -type f -name '*.d' -exec sed -i 's|$(old_place)/|$(CURDIR)/|g' {} +)
endif

define library_rule
all_objects += $(3)
libraries += $(O)/$(1)
$(O)/$(1): $(3) $(call room_objects,$(2)) $(call parts,$(1),$(2))
	$$(call say,AR,$(1))
	@mkdir -p $$(@D)
	$$(Q)rm -f $$@ && $(AR) qcs $$@ $(3) $(call room_objects,$(2))
endef
library = $(eval $(call library_rule,$(1),$(2),$(call compiled,$(2))))

link_rule = $(call link_objects_rule,$(1),$(2),$(3),$(4),$(call compiled,$(2)))
define link_objects_rule
all_objects += $(5)
$(O)/$(1): $(5) $(call room_objects,$(2)) $(addprefix $(O)/,$(3) $(formatting)) $(compat_object) $(call parts,$(1),$(2) $(3) $(4))
	$$(call say,LINK,$(1))
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) $$(LDFLAGS) $(if $(findstring $(STATIC),$(4)),,$$(linker)) $(call drops_unused,$(2)) -o $$@ $(5) $(call room_objects,$(2)) $(addprefix $(O)/,$(3) $(formatting)) $(compat_object) $(4)
endef
define program_rule
programs += $(O)/$(1)
$(call link_rule,$(1),$(2),$(3),$(4))
endef
program = $(eval $(call program_rule,$(1),$(2),$(3),$(4)))

GTEST_LIBS := -lgtest -lgtest_main -lgmock
define gtest_rule
gtests += $(O)/bin/tests/$(1)
$(call link_rule,bin/tests/$(1),$(2),$(3),$(GTEST_LIBS) $(4))
endef
gtest = $(eval $(call gtest_rule,$(1),$(2),$(3),$(4)))

define gbench_rule
gbenches += $(O)/bin/bench/$(1)
$(call link_rule,bin/bench/$(1),$(2),$(3),-lbenchmark_main -lbenchmark $(4))
endef
gbench = $(eval $(call gbench_rule,$(1),$(2),$(3),$(4)))

# A test that is a script of this tree: a program beside the others, so that `make test` finds and counts it.
# $(call script_test,NAME,SCRIPT,WHAT IT NEEDS,ARGUMENTS): SCRIPT is its command line from the top of the tree on,
# after which come the build folder and ARGUMENTS. GoogleTest's own, as --gtest_filter=*, it is given with $$$$@ alone.
define script_test_rule
other_tests += $(O)/bin/tests/$(1)
$(O)/bin/tests/$(1): $(where) $(call parts,script-$(1),$(2) $(4)) | $(3)
	@mkdir -p $$(@D)
	@printf '#!/bin/sh\ncd %s && exec %s %s %s\n' '$(CURDIR)' '$(2)' '$(abspath $(O))' '$(4)' > $$@
	@chmod +x $$@
endef
script_test = $(eval $(call script_test_rule,$(1),$(2),$(3),$(4)))

# A fuzzer is its own file and our libraries of the address and undefined sanitizers' build, where the product's
# objects count which of their branches were taken (COVERAGE); libFuzzer reads the counts.
define fuzzer_rule
fuzzers += $(O)/bin/fuzz/$(1)
$(call link_rule,bin/fuzz/$(1),$(2),$(3),-fsanitize=fuzzer $(4))
endef
fuzzer = $(eval $(call fuzzer_rule,$(1),$(2),$(3),$(4)))

# What many files include is parsed once for all of them. No file relies on it: clang-tidy, which looks
# at each file by itself (`make lint`), does without.
# $(call precompile,FILE,HEADER,FLAGS): the flags are expanded here, so that no target's own are in
# them. What follows -Xclang, and the sloppiness, are what ccache wants.
#   A precompiled header names the files in it by whole paths. Those of a tree that was copied or moved are made
# anew, with ccache, too.
export CCACHE_SLOPPINESS := pch_defines,time_macros
define precompile_rule
$(1): $(2) $(where) $(if $(filter $(of_products),$(1)),$(flags))
	$$(call say,CXX,$$<)
	@mkdir -p $$(@D)
	$$(Q)CCACHE_EXTRAFILES=$(where) $(CXX) $(CPPFLAGS) $(3) -Xclang -fno-pch-timestamp -fpch-instantiate-templates -MMD -MP -x c++-header -o $$@ $$<
precompiled += $(1)
endef
precompile = $(eval $(call precompile_rule,$(1),$(2),$(3)))

# With other flags the product is another one, and its precompiled headers fit no file.
flags := $(call parts,flags,$(CXXFLAGS))
of_product := $(O)/obj/precompiled.pch
of_hot := $(O)/obj/precompiled-hot.pch
product_rooms := sched tools
of_products := $(of_product) $(of_hot) $(foreach folder,$(product_rooms),$(O)/obj/$(folder)/precompiled.pch)
# $(call compile,FOLDER/,PRECOMPILED): the objects of what lies below it. They depend on the headers that were
# precompiled by their own lists of dependencies.
define compile_rule
$(O)/obj/$(1)%.o: $(1)%.cc $(if $(filter $(of_products),$(2)),$(flags)) | $(2)
	$$(call say,CXX,$$<)
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) $$(CPPFLAGS) $$(CXXFLAGS) $(if $(filter $(of_products),$(2)),$$(COVERAGE)) -include-pch $(2) -MMD -MP -c -o $$@ $$<
$(O)/obj/$(1)%.o: $(O)/joined/$(1)%.cc $(if $(filter $(of_products),$(2)),$(flags)) | $(2)
	$$(call say,CXX,$$(<:$(O)/joined/%=%))
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) $$(CPPFLAGS) $$(CXXFLAGS) $(if $(filter $(of_products),$(2)),$$(COVERAGE)) -include-pch $(2) -MMD -MP -c -o $$@ $$<
endef
compile = $(eval $(call compile_rule,$(1),$(2)))

# Branches are counted for the fuzzers in what is compiled with a precompiled header of the product's.
COVERAGE := $(if $(findstring address,$(SAN)),-fsanitize-coverage=inline-8bit-counters$(comma)pc-table)
# Not in these, of which no fuzzer calls a function: counters take an eighth of the time that compiling them takes.
never_fuzzed := bench/ tools/ intercept/sim/ $(addprefix sched/,account/ daemon/ enforce/ jobs/ module/ mps/ registry/ shim/ spatial/ step/ usage/)
$(foreach folder,$(never_fuzzed),$(O)/obj/$(folder)%.o): COVERAGE :=

# The files of a room share a precompiled header with our own headers in it, too.
# $(call room,FOLDER,HEADER,FLAGS)
define room_rule
$(call precompile,$(O)/obj/$(1)/precompiled.pch,$(2),$(3))
$(call compile,$(1)/,$(O)/obj/$(1)/precompiled.pch)
endef
room = $(eval $(call room_rule,$(1),$(2),$(3)))
# Where nothing is optimized, compiling the functions of these headers again and again takes longer than all else:
# there one object has them (-fpch-codegen), and a file that includes a scheduler takes a quarter of the time. Who
# links an object of the room links that one too; what a program does not use of it is dropped (--gc-sections), and
# may name what the program does not have.
define room_with_functions_rule
$(call room_rule,$(1),$(2),$(3) -fpch-codegen)
$(O)/obj/$(1)/precompiled.o: $(O)/obj/$(1)/precompiled.pch
	$$(call say,CXX,$$<)
	$$(Q)$(CLANGXX) $(3) -ffunction-sections -fdata-sections -Wno-unused-command-line-argument -c -o $$@ $$<
rooms_with_functions += $(1)
endef
room_with_functions = $(eval $(call room_with_functions_rule,$(1),$(2),$(3)))

$(call precompile,$(of_product),shmctl/compat/precompiled.h,$(CXXFLAGS) $(COVERAGE))
$(call compile,,$(of_product))
$(foreach folder,$(product_rooms),$(call $(if $(SAN),room_with_functions,room),$(folder),$(folder)/precompiled.h,$(CXXFLAGS) $(COVERAGE)))
test_flags := $(subst $(OPTIMIZE),$(TEST_OPTIMIZE),$(CXXFLAGS))
$(call room_with_functions,tests/sched,tests/sched/precompiled.h,$(test_flags))
$(call room_with_functions,tests,tests/support/precompiled.h,$(test_flags))
$(O)/obj/tests/%.o: OPTIMIZE := $(TEST_OPTIMIZE)
# Optimized are what a kernel under QEMU runs; workloads, which are measured, and which the demo runs,
# when nothing of the tests is installed; and what is stepped through instruction by instruction, as it
# is in the agent.
optimized := tests/kernel/ tests/kmod/guest/ tests/workloads/ tests/shmctl/plane/ tests/intercept/shim/streams/
with_other_flags := $(optimized)
$(foreach folder,$(optimized),$(call compile,$(folder),$(of_product)))
$(foreach folder,$(optimized),$(O)/obj/$(folder)%.o): OPTIMIZE := $(OPTIMIZE)
# Pure arithmetic and the agent's step, of which tests run thousands of rounds, take up to thirty times as long
# when they are sanitized and not optimized: these are optimized a little. So is the simulated GPU, which works for
# half of the time that the tests of the shim take.
hot := $(addprefix sched/,account/ enforce/ jobs/ orders/ policy/ slo/ spatial/ step/) shmctl/usage/ intercept/sim/ intercept/shim/iterations/ bench/sched/replay/
ifneq ($(SAN),)
with_other_flags += $(hot)
$(call precompile,$(of_hot),sched/precompiled.h,$(subst $(OPTIMIZE),$(HOT_OPTIMIZE),$(CXXFLAGS)) $(COVERAGE))
$(foreach folder,$(hot),$(call compile,$(folder),$(of_hot)))
$(foreach folder,$(hot),$(O)/obj/$(folder)%.o): OPTIMIZE := $(HOT_OPTIMIZE)
endif

# BPF: intercept/bpf/x.bpf.c -> gen/intercept/bpf/x.skel.h
$(O)/gen/%.bpf.o: %.bpf.c
	$(call say,BPF,$<)
	@mkdir -p $(@D)
	$(Q)$(CLANG) -target bpf -D__TARGET_ARCH_x86 -g -O2 -Wall -Wextra -Werror -I. -I/usr/include/$(shell uname -m)-linux-gnu -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
$(O)/gen/%.skel.h: $(O)/gen/%.bpf.o
	$(call say,SKEL,$@)
	$(Q)$(BPFTOOL) gen skeleton $< name $(notdir $*)_skel > $@

# `make demo`, `make test` and `make test-containers` see to the packages first. Make starts over when it has remade a
# makefile, so all that was looked up above is looked up again.
packages_for := $(or $(if $(filter test-containers,$(MAKECMDGOALS)),containers),$(if $(filter test test-kernel%,$(MAKECMDGOALS)),kernel),$(filter demo,$(MAKECMDGOALS)))
ifneq ($(packages_for),)
include $(O)/packages-$(packages_for).mk
$(O)/packages-%.mk: tools/setup/packages.sh
	@mkdir -p $(@D)
	@sh $< --$*
	@touch $@
endif

include shmctl/shmctl.mk
include kmod/kmod.mk intercept/intercept.mk sched/sched.mk tools/tools.mk tools/slurm/slurm.mk tools/kubernetes/kubernetes.mk tests/tests.mk bench/bench.mk

-include $(sort $(all_objects:.o=.d) $(precompiled:.pch=.d)) $(wildcard $(O)/gen/intercept/bpf/*.d)

.PHONY: all check demo tests plain-tests sanitized-tests test test-long test-gpu bench bench-gpu fuzzers install dist clean help
all: $(libraries) $(programs) $(extra_targets)  ## build everything

demo: $(demo_needs)  ## five programs share a GPU, or a simulated one, for ten seconds
	$(O)/bin/gpushare-demo

tests: $(gtests) $(other_tests) $(programs) $(extra_targets)
# What `make test` builds and runs how: each once, in the build that finds most in it, and again only where another
# one finds other faults. Most run under the address and undefined sanitizers. Code whose threads share memory runs
# under the thread sanitizer as well; what runs in users' programs, and what is stepped through instruction by
# instruction, plain as well, as it is shipped. Plain only: what watches an agent and programs in real time; the tools,
# whose tests are those and pictures of text (`make test-long` runs them sanitized); and long runs in virtual time,
# which show figures and take ten times as long sanitized. `make check` runs all of them plain.
sanitized_only := sched_test nvrm_test nvrm_decode_test nvrm_abi_test cuda_abi_test cuda_standin_test kmod_pure_test kmod_user_test \
  iteration_test bpf_test sim_test workloads_test lifeline_test driver_line_test progress_test tpot_test credits_test needs_test
threaded_tests := shmctl_test driver_line_test progress_test streams_test
plain_only := sched_system_test sched_mps_test bench_test attacks_test tools_test figures_test
# These, and the demo in tools_test, wait nearly all the time, and want a machine that is not busy.
quiet := sched_system_test sched_mps_test tools_test bench_test attacks_test
# These never wait: `make check` runs them in the time that the others leave.
computing := sched_test nvrm_test nvrm_decode_test nvrm_abi_test cuda_abi_test kmod_pure_test iteration_test figures_test orders_test tpot_test \
  gangs_test credits_test
# The longest, which begin first, so that none is left to run alone.
long := sched_test driver_line_test kill_storm_test shim_test conformance_test shmctl_test
# The tests of a program run in so many parts at once: PROGRAM@iofn is the part i, counted from 0.
parts_of_attacks_test := 6
parts_of_conformance_test := 2
parts_of_driver_line_test := 2
parts_of_sched_mps_test := 2
parts_of_shim_test := 2
parts_of_sched_system_test := 6
parts_of_sched_test := 3
parts_of_tools_test := 2
in_parts = $(foreach name,$(1),$(if $(parts_of_$(name)),$(foreach part,$(wordlist 1,$(parts_of_$(name)),0 1 2 3 4 5),$(name)@$(part)of$(parts_of_$(name))),$(name)))
in_order = $(filter $(long),$(1)) $(filter-out $(long),$(1))
test_programs = $(addprefix $(O)/bin/tests/,$(1))

all_gtests := $(notdir $(gtests))
plain_gtests := $(filter-out $(sanitized_only),$(all_gtests))
sanitized_gtests := $(if $(findstring thread,$(SAN)),$(threaded_tests),$(filter-out $(plain_only),$(all_gtests)))
plain-tests: $(call test_programs,$(plain_gtests)) $(other_tests) $(programs) $(extra_targets)
sanitized-tests: $(call test_programs,$(sanitized_gtests)) $(extra_targets)
# What tests/run.sh asks for.
quiet_tests := $(call test_programs,$(call in_parts,$(quiet)))
plain_tests := $(call test_programs,$(call in_parts,$(call in_order,$(filter-out $(quiet),$(plain_gtests))))) $(other_tests)
sanitized_tests := $(call test_programs,$(call in_parts,$(call in_order,$(sanitized_gtests))))
computing_tests := $(call test_programs,$(call in_parts,$(call in_order,$(computing))))
check_tests := $(call test_programs,$(call in_parts,$(call in_order,$(filter-out $(quiet) $(computing),$(all_gtests)))))
list-of-%-tests:
	@printf '%s\n' $($*_tests)

# What the programs start is in their prerequisites.
check: $(gtests) $(programs) $(extra_targets)  ## the tests of ring 1, plain; T='Filter.*' runs some
	@+tests/run.sh check "$(MAKE)" $(O) $(if $(T),'$(T)')

test:  ## all tests that this machine can run, also under sanitizers, and the fuzzers
	@+tests/run.sh all "$(MAKE)" $(O)

# In virtual time 10,000 kills take half a minute. In real time each takes one second, and many
# simulated GPUs run at once: AT_ONCE, by default two for each processor. Then every tool is used at
# random for SOAK_MINUTES.
KILLS ?= 10000
REAL_KILLS ?= $(KILLS)
AT_ONCE ?=
SOAK_MINUTES ?= 480
# Random events for each policy that orders jobs; a million take a minute in virtual time.
ORDER_EVENTS ?= 1000000
# Of two calls of streams one stands still before each STEPS-th of its instructions.
STEPS ?= 23
sanitized_tools := $(O)/san-address-undefined/bin/tests/tools_test
test-long: all $(addprefix $(O)/bin/tests/,kill_storm_test orders_test sched_test tpot_test streams_test)  ## agents and supervisors killed KILLS=10000 times; all tools at random for SOAK_MINUTES=480
	GPUSHARE_TEST_ORDER_EVENTS=$(ORDER_EVENTS) $(O)/bin/tests/orders_test --gtest_filter='*OrderStorm.OneRuns*'
	GPUSHARE_TEST_ORDER_EVENTS=$(ORDER_EVENTS) $(O)/bin/tests/tpot_test --gtest_filter='TpotStorm*'
	GPUSHARE_TEST_FREEZE_SEEDS=600 GPUSHARE_TEST_CHARGE_SEEDS=60 $(O)/bin/tests/sched_test --gtest_filter='*FrozenModel*:*ChargesModel*'
	GPUSHARE_TEST_SEEDS=600 $(O)/bin/tests/streams_test --gtest_filter='InterleavedTest.*'
	GPUSHARE_TEST_STEPS=$(STEPS) $(O)/bin/tests/streams_test --gtest_filter='StepsTest.AllPairs'
	GPUSHARE_TEST_VIRTUAL_KILLS=$(KILLS) $(O)/bin/tests/kill_storm_test --gtest_filter='VirtualStorm.*'
	tests/sched/kills/storm.sh $(O) --kills $(REAL_KILLS) $(if $(AT_ONCE),--at-once $(AT_ONCE))
	$(MAKE) SAN=address,undefined O=$(O)/san-address-undefined $(sanitized_tools)
	$(sanitized_tools) --gtest_filter='-Demo.*:*RealTime*'
	tests/gpu/long/soak.py $(O) --simulated --minutes $(SOAK_MINUTES)

test-gpu: all $(gtests)  ## the tests of a real GPU (root)
	@tests/gpu/run.sh $(O)

bench: $(gbenches) $(O)/bin/bench/probe_cost  ## micro-benchmarks, JSON in $(O)/bench
	@mkdir -p $(O)/bench $(RESULTS)
	@for b in $(gbenches); do \
	  $$b --benchmark_out=$(O)/bench/$$(basename $$b).json --benchmark_out_format=json || exit 1; done
	@[ "$$(id -u)" != 0 ] || $(O)/bin/bench/probe_cost --commit $(COMMIT) --out $(RESULTS)/probe_cost.jsonl

# RESULTS=bench/results adds the run to the runs of record (bench/results/README.md).
RESULTS ?= $(O)/bench
export RESULTS
bench-gpu: all  ## the measured table of the README, on this machine's GPU (root)
	@mkdir -p $(RESULTS)
	$(O)/bin/bench/gpu-scenarios --commit $(COMMIT) --out $(RESULTS)/gpu_scenarios.jsonl

ifneq ($(findstring address,$(SAN)),)
fuzzers: $(fuzzers)
else
fuzzers:  ## the libFuzzer programs
	$(MAKE) SAN=address,undefined O=$(O)/san-address-undefined fuzzers
endif

PREFIX ?= /usr/local
DESTDIR ?=
include tools/setup/install.mk tools/setup/lint.mk docs/pictures/pictures.mk

clean:  ## remove what was built
	rm -rf $(O)

help:  ## this list
	@awk -F':.*## ' '/^[a-z_-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  O=DIR  SAN=address,undefined|thread  V=1  PREFIX=$(PREFIX)  DESTDIR=  apply to all of them"
