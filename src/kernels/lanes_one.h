// The vector of one lane: what the bodies (update_body.h and its like) use for elements that do not fill a vector.
// Also the list of what every lanes_*.h provides. See [Note: nothing of an instruction set's file leaks] in element.h.
#pragma once

#include "kernels/element.h"

namespace shoal::kernels {
namespace {

struct OneLane {
  static constexpr int64_t kWidth = 1;
  static constexpr bool kPrefetches = false;
  using F = float;

  static F set(float value) { return value; }
  static F mul(F a, F b) { return a * b; }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F div(F a, F b) { return a / b; }
  static F fma(F a, F b, F c) { return __builtin_fmaf(a, b, c); }    // a * b + c, one rounding
  static F fnma(F a, F b, F c) { return __builtin_fmaf(-a, b, c); }  // c - a * b, one rounding
  static F sqrt(F a) { return __builtin_sqrtf(a); }
  // magnitude with the sign of `a`; zero where `a` is zero or NaN.
  static F signed_as(F magnitude, F a) { return a > 0 ? magnitude : a < 0 ? -magnitude : 0.0f; }

  template <DType dtype>
  static F load(const void* memory, int64_t i) {
    return load_element<dtype>(memory, i);
  }
  template <DType dtype>
  static void store(void* memory, int64_t i, F value) {
    store_element<dtype>(memory, i, value);
  }
  static F load_split(const void* weight, const void* remainder, int64_t i) {
    return whole_of(static_cast<const uint16_t*>(weight)[i], static_cast<const uint16_t*>(remainder)[i]);
  }
  static void store_split(void* weight, void* remainder, int64_t i, F value) {
    static_cast<uint16_t*>(weight)[i] = high_half(value);
    static_cast<uint16_t*>(remainder)[i] = low_half(value);
  }
};

}  // namespace
}  // namespace shoal::kernels
