/* SPDX-License-Identifier: Apache-2.0
 *
 * gpushare.h: what a program may tell gpushare of itself, and ask. C99 and C++, no library to link:
 * the functions are in libgpushare.so where that is preloaded (`gpushare run --shim`, `gpushare
 * preload enable`). Where it is not, or no agent wants to know, every call returns
 * GPUSHARE_NOT_ATTACHED at once (one comparison without the library), and nothing else changes: no
 * program has to ask first, or to be built twice.
 *
 *   struct gpushare_iteration step = GPUSHARE_ITERATION;
 *   gpushare_begin(&step, GPUSHARE_UNKNOWN);
 *   ... launches, copies, and the wait for their result ...
 *   gpushare_end(&step);
 *
 * Nobody needs this: iterations are also recognised from the launches alone. A process that begins
 * one is no longer guessed at, so announce all of them or none; a child of fork() starts over.
 *
 * Units: times are nanoseconds of CLOCK_MONOTONIC, the SLO is in microseconds. Threads: every
 * function may be called by any thread at any time; one `struct gpushare_iteration` by one thread
 * at a time. No call fails a program or changes errno. Only gpushare_begin() may wait, and the
 * first call of a process: for the agent, at most a second. Errors: the codes below; who does not
 * care may ignore them. glibc before 2.34 needs -ldl.
 */
#ifndef GPUSHARE_H
#define GPUSHARE_H

#include <stdint.h>

/* The library itself, and who wants to look the functions up by itself, define this before. */
#ifndef GPUSHARE_FUNCTION
#include <dlfcn.h>
#include <errno.h>

/* Looked up by the first call; two threads that look at once find the same. `found` points to
 * itself where there is none. A null handle is RTLD_DEFAULT. */
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
  GPUSHARE_NOT_ATTACHED = 1, /* no libgpushare.so, no agent, or it does not want this */
  GPUSHARE_INVALID = 2, /* a null pointer, an unknown phase, an end without a begin, no such GPU */
  GPUSHARE_BUSY = 3     /* not taken note of: other threads' calls took too long. Very rare */
};

enum gpushare_phase {
  GPUSHARE_UNKNOWN = 0,
  GPUSHARE_PREFILL = 1, /* of a decoder: it reads a prompt */
  GPUSHARE_DECODE = 2   /* it writes a token */
};

/* An iteration: a training step, a decoding step, a request. The program's own memory, as many at a
 * time as it likes. What is in it is ours. */
struct gpushare_iteration {
  uint64_t arrived_ns;
  uint64_t began_ns; /* 0: it has not begun */
};
/* clang-format off */
#define GPUSHARE_ITERATION {0, 0}
/* clang-format on */

/* Who says what is known of the iterations. */
enum gpushare_source {
  GPUSHARE_NONE = 0, /* nothing is known */
  GPUSHARE_RECOGNISED = 1,
  GPUSHARE_ANNOUNCED = 2
};

struct gpushare_iterations {
  uint32_t source;     /* enum gpushare_source */
  uint32_t confidence; /* in permille */
  uint32_t phase;      /* of the one that began last */
  uint32_t slo_us;     /* 0: none */
  uint64_t begun;      /* so far, while they were known */
  uint64_t ended;
  uint64_t began_ns;  /* when the last one did; 0: none has */
  uint64_t period_ns; /* mean, from begin to begin; here and below 0: unknown */
  uint64_t p99_ns;    /* of the same; announced: from begin to end */
};

/* The part of a GPU that the process may use. 0: unknown. */
struct gpushare_share {
  char gpu[16]; /* "0000:3b:00.0" */
  uint32_t sms;
  uint32_t sms_entitled; /* of its tenant */
  uint32_t sms_in_use;   /* now, with what is lent to it */
  uint32_t reserved;
};

/* A request has arrived, to be begun later. `iteration` may be null, when one iteration serves
 * several: then it is only counted. */
GPUSHARE_FUNCTION(gpushare_arrive, (struct gpushare_iteration * iteration), (iteration))

/* One begins; `phase` is one of enum gpushare_phase. To be called before the first launch of the
 * iteration. Waits where the agent lets programs take turns and it is another one's. */
GPUSHARE_FUNCTION(gpushare_begin, (struct gpushare_iteration * iteration, int phase),
                  (iteration, phase))

/* Its result is there. The same structure may be used again. */
GPUSHARE_FUNCTION(gpushare_end, (struct gpushare_iteration * iteration), (iteration))

/* What an iteration is to take at most on average, from arrival, or from the begin where arrivals
 * are not announced; microseconds, 0 takes it back. Policy slo keeps the mean of each second at 95
 * % of it or below where it can. What an operator has set for the tenant (slo_us) counts instead.
 */
GPUSHARE_FUNCTION(gpushare_set_slo, (uint32_t us), (us))

/* What the agent sees of this process. */
GPUSHARE_FUNCTION(gpushare_read_iterations, (struct gpushare_iterations * iterations), (iterations))

/* Of the n-th GPU that the agent shares, from 0. GPUSHARE_INVALID: there are not so many. */
GPUSHARE_FUNCTION(gpushare_read_share, (unsigned n, struct gpushare_share* share), (n, share))

#ifdef __cplusplus
}
#endif

#endif
