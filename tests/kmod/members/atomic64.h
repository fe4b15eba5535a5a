// SPDX-License-Identifier: Apache-2.0
// The few functions of the kernel's linux/atomic.h that kmod/members/counter.h uses, by the
// compiler's own atomic operations. Include it before that header.
#pragma once

// NOLINTBEGIN(readability-identifier-naming): the kernel's names
struct atomic64_t {
  long long counter = 0;
};

inline long long atomic64_read(const atomic64_t* v) {
  return __atomic_load_n(&v->counter, __ATOMIC_RELAXED);
}
inline void atomic64_set(atomic64_t* v, long long value) {
  __atomic_store_n(&v->counter, value, __ATOMIC_RELAXED);
}
inline long long atomic64_add_return(long long more, atomic64_t* v) {
  return __atomic_add_fetch(&v->counter, more, __ATOMIC_SEQ_CST);
}
inline void atomic64_add(long long more, atomic64_t* v) { atomic64_add_return(more, v); }
inline void atomic64_sub(long long less, atomic64_t* v) { atomic64_add_return(-less, v); }
inline void atomic64_inc(atomic64_t* v) { atomic64_add_return(1, v); }
inline void atomic64_dec(atomic64_t* v) { atomic64_add_return(-1, v); }
inline bool atomic64_try_cmpxchg(atomic64_t* v, long long* old, long long wanted) {
  return __atomic_compare_exchange_n(&v->counter, old, wanted, /*weak=*/false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_RELAXED);
}
// NOLINTEND(readability-identifier-naming)

#define READ_ONCE(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
