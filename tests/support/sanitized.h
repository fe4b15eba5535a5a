// SPDX-License-Identifier: Apache-2.0
// GS_IS_SANITIZED: this code is under the address or the thread sanitizer, 1, or not, 0. Each
// compiler says so in its own way.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GS_IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GS_IS_SANITIZED 1
#endif
#endif
#ifndef GS_IS_SANITIZED
#define GS_IS_SANITIZED 0
#endif
