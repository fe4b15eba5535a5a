/* SPDX-License-Identifier: Apache-2.0
 *
 * gpushare.h: what a program may tell gpushare about itself, and ask. C99 and C++; there is no
 * library to link. The functions are in libgpushare.so if that is preloaded (`gpushare run --shim`,
 * `gpushare preload enable`). If it is not, or if no agent wants to know, every call returns
 * GPUSHARE_NOT_ATTACHED at once (without the library after one comparison), and nothing else
 * changes: a program need not ask first, nor be built twice.
 *
 *   struct gpushare_iteration step = GPUSHARE_ITERATION;
 *   gpushare_begin(&step, GPUSHARE_UNKNOWN);
 *   ... launches, copies, and the wait for their result ...
 *   gpushare_end(&step);
 *
 * No program needs this: iterations are also recognised from the launches alone. Once a process has
 * announced one, only announced iterations count, so announce all of them or none; a child of
 * fork() starts over.
 *
 * Units: times are nanoseconds of CLOCK_MONOTONIC, the SLO is in microseconds. Threads: any thread
 * may call every function at any time; one `struct gpushare_iteration` belongs to one thread at a
 * time. No call ends the program or changes errno. gpushare_begin() may wait; so may the first call
 * of a process, for the agent and at most a second. Errors: the codes below, which a program may
 * ignore. glibc before 2.34 needs -ldl.
 */
#ifndef GPUSHARE_H
#define GPUSHARE_H

#include <stdint.h>

/* Define this before the #include to declare the functions in another way, as the library does. */
#ifndef GPUSHARE_FUNCTION
#include <dlfcn.h>
#include <errno.h>

/* The first call looks the function up; two threads that do so at once find the same. `found`
 * points to itself if there is none. A null handle is RTLD_DEFAULT. */
/* NOLINTBEGIN(bugprone-macro-parentheses): declarators */
#define GPUSHARE_FUNCTION(name, parameters, arguments)          \
  __attribute__((unused)) static inline int name parameters {   \
    typedef int(*gpushare_call) parameters;                     \
    static void* found;                                         \
    gpushare_call call;                                         \
    void* there = __atomic_load_n(&found, __ATOMIC_RELAXED);    \
    if (there == 0) {                                           \
      const int before = errno;                                 \
      there = dlsym((void*)0, #name);                           \
      if (there == 0) there = (void*)&found;                    \
      errno = before;                                           \
      __atomic_store_n(&found, there, __ATOMIC_RELAXED);        \
    }                                                           \
    if (there == (void*)&found) return GPUSHARE_NOT_ATTACHED;   \
    __builtin_memcpy((void*)&call, (void*)&there, sizeof call); \
    return call arguments;                                      \
  }
/* NOLINTEND(bugprone-macro-parentheses) */
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum gpushare_result {
  GPUSHARE_OK = 0,
  GPUSHARE_NOT_ATTACHED = 1, /* no libgpushare.so, no agent, or the agent does not want this */
  GPUSHARE_INVALID = 2, /* a null pointer, an unknown phase, an end without a begin, no such GPU */
  GPUSHARE_BUSY = 3     /* not noted, as other threads' calls took too long; very rare */
};

enum gpushare_phase {
  GPUSHARE_UNKNOWN = 0,
  GPUSHARE_PREFILL = 1, /* a decoder reads a prompt */
  GPUSHARE_DECODE = 2   /* a decoder writes a token */
};

/* An iteration: a training step, a decoding step, a request. It lies in the program's own memory; a
 * program may have any number at a time. Only the functions below may change its members. */
struct gpushare_iteration {
  uint64_t arrived_ns;
  uint64_t began_ns; /* 0: it has not begun, or has ended */
};
/* clang-format off */
#define GPUSHARE_ITERATION {0, 0}
/* clang-format on */

/* How iterations are known. */
enum gpushare_source {
  GPUSHARE_NONE = 0, /* nothing is known */
  GPUSHARE_RECOGNISED = 1,
  GPUSHARE_ANNOUNCED = 2
};

struct gpushare_iterations {
  uint32_t source;     /* enum gpushare_source */
  uint32_t confidence; /* in permille */
  uint32_t phase;      /* enum gpushare_phase, of the iteration that began last */
  uint32_t slo_us;     /* what gpushare_set_slo() has set; 0: nothing */
  uint64_t begun;      /* iterations so far, since they are known */
  uint64_t ended;
  uint64_t began_ns;  /* when the last one began; 0: none has */
  uint64_t period_ns; /* mean, from begin to begin; here and below 0: unknown */
  uint64_t p99_ns;    /* of the period; if announced, of the time from begin to end */
};

/* The SMs of a GPU that the process may use. 0: unknown. */
struct gpushare_share {
  char gpu[16];          /* "0000:3b:00.0" */
  uint32_t sms;          /* all SMs of the GPU */
  uint32_t sms_entitled; /* those that its tenant is entitled to */
  uint32_t sms_in_use;   /* those that its tenant has now, with those that are lent to it */
  uint32_t reserved;
};

/* A request has arrived and will begin later. `iteration` may be null if one iteration serves
 * several requests; the request is then only counted. */
GPUSHARE_FUNCTION(gpushare_arrive, (struct gpushare_iteration * iteration), (iteration))

/* An iteration begins; `phase` is one of enum gpushare_phase. To be called before the first launch
 * of the iteration. Waits while the agent lets programs take turns and it is another one's turn. */
GPUSHARE_FUNCTION(gpushare_begin, (struct gpushare_iteration * iteration, int phase),
                  (iteration, phase))

/* The iteration has ended: its result is there. The same structure may be used again. */
GPUSHARE_FUNCTION(gpushare_end, (struct gpushare_iteration * iteration), (iteration))

/* How long an iteration is to take on average, at most, in microseconds; 0 takes it back. The time
 * runs from the arrival, or from the begin if arrivals are not announced. The policy `slo` keeps
 * the mean of each second at 95 % of it or below if it can. If the operator has set slo_us for the
 * tenant, that counts instead. */
GPUSHARE_FUNCTION(gpushare_set_slo, (uint32_t us), (us))

/* So many iterations will begin from now on, until the job is done; 0 takes it back. Where the GPU
 * runs one job at a time, the shortest first, it is known by that what is left. Call it again when
 * the number changes: the smallest that a program has said, counted from its begin, is believed.
 * One that goes on beyond it for half as long again counts as one of unknown length. */
GPUSHARE_FUNCTION(gpushare_expect, (uint64_t iterations), (iterations))

/* What the agent sees of this process's iterations. */
GPUSHARE_FUNCTION(gpushare_read_iterations, (struct gpushare_iterations * iterations), (iterations))

/* The SMs of the n-th GPU that the agent shares, from 0. GPUSHARE_INVALID: there are not so many.
 */
GPUSHARE_FUNCTION(gpushare_read_share, (unsigned n, struct gpushare_share* share), (n, share))

#ifdef __cplusplus
}
#endif

#endif
