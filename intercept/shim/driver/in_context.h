// SPDX-License-Identifier: Apache-2.0
// InContext: a context is current in the calling thread for a while. AllowedInCaptures: what the
// thread calls for a while ends no capture of another thread. Any thread.
#pragma once

#include "intercept/shim/driver/driver.h"

namespace gpushare::shim {

// Makes `context` current while it lives, unless it is current already. Ask is_there().
// `Functions`: a table that has the functions, Driver or a smaller one.
template <typename Functions>
class InContext {
 public:
  InContext(const Functions& driver, CUcontext context) : driver_(driver) {
    CUcontext now = nullptr;
    if (driver.cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == context) {
      is_there_ = true;
    } else {
      is_there_ = is_pushed_ = driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
    }
  }
  ~InContext() {
    CUcontext ours = nullptr;
    if (is_pushed_) driver_.cuCtxPopCurrent_v2(&ours);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

  bool is_there() const { return is_there_; }

 private:
  const Functions& driver_;
  bool is_there_ = false, is_pushed_ = false;
};

// A capture in the mode GLOBAL forbids all threads questions about streams and events, except those
// in the mode RELAXED. `Functions`: as above.
template <typename Functions>
class AllowedInCaptures {
 public:
  explicit AllowedInCaptures(const Functions& driver) : driver_(driver) {
    is_set_ = driver.cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;
  }
  ~AllowedInCaptures() {
    if (is_set_) driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  AllowedInCaptures(const AllowedInCaptures&) = delete;
  AllowedInCaptures& operator=(const AllowedInCaptures&) = delete;

 private:
  const Functions& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool is_set_ = false;
};

}  // namespace gpushare::shim
