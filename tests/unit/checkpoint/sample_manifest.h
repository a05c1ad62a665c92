// A small manifest that is whole, for tests that damage it.
#pragma once

#include "checkpoint/manifest.h"

namespace shoal::testing {

inline checkpoint::Manifest sample_manifest() {
  checkpoint::Manifest manifest;
  manifest.step = 120;
  manifest.world = 2;
  manifest.progress = {100, 20, 65536.5, 2, 119, -1, {}};
  manifest.extra = {{"model_config", "{\"a\": \"b\\n\"}"}, {"position", "17"}};
  manifest.config = "{\"zero_optimization\": {\"stage\": 3}}";
  manifest.states = {StateKind::weight, StateKind::first_moment};
  manifest.params = {{"w", {"tied"}, {3, 5}, DType::f32, true},
                     {"none", {}, {0, 2}, DType::f32, true},
                     {"frozen", {}, {}, DType::bf16, false}};
  manifest.files = {{"rank-00000.bin", 8232}, {"rank-00001.bin", 8194}};
  manifest.randoms = {{0, 0, 8192, 7, 55}};
  manifest.pieces = {{0, StateKind::weight, 0, 10, DType::f32, 0, 0, 1},
                     {0, StateKind::first_moment, 0, 10, DType::f32, 0, 4096, 2},
                     {0, StateKind::weight, 10, 5, DType::f32, 1, 0, 0xfedcba9876543210},
                     {0, StateKind::first_moment, 10, 5, DType::f32, 1, 4096, 4},
                     {2, StateKind::weight, 0, 1, DType::bf16, 1, 8192, 5}};
  return manifest;
}

}  // namespace shoal::testing
