// A state without an engine: a few parameters of awkward sizes, cut over the ranks, with values that tell parameter,
// state and element apart.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/state_ends.h"
#include "shoal/group.h"

namespace shoal::testing {

class FakeState {
 public:
  using Key = std::pair<int, StateKind>;

  // Each rank owns an uneven part of each parameter; whole: keeps everything, as at stage 0.
  FakeState(int rank, int world, bool whole = false, int moments = 2, int64_t rows = 37)
      : params_({{"wte", {"head.tied"}, {rows, 3}, "embed", DType::bf16, true},
                 {"block.w", {}, {5, 7}, "block", DType::bf16, true},
                 {"block.frozen", {}, {24}, "block", DType::bf16, false},
                 {"block.none", {}, {0, 3}, "block", DType::bf16, true},
                 {"scale", {}, {1}, "block", DType::f32, true}}),
        rank_(rank) {
    progress_.random_state = {1, 2, 3, static_cast<uint8_t>(rank)};
    for (int param = 0; param < static_cast<int>(params_.size()); ++param) {
      const ParamInfo& info = params_[static_cast<size_t>(param)];
      int64_t numel = 1;
      for (const int64_t extent : info.shape) numel *= extent;
      for (const StateKind kind : {StateKind::weight, StateKind::first_moment, StateKind::second_moment}) {
        if (static_cast<int>(kind) > (info.trainable ? moments : 0)) continue;
        const int64_t begin = rank == 0 ? 0 : numel * rank / world, end = numel * (rank + 1) / world;
        if (end > begin) owned_.push_back({param, kind, begin, end - begin});
        if (whole && numel > 0) kept_.push_back({param, kind, 0, numel});
        if (!whole && end > begin) kept_.push_back({param, kind, begin, end - begin});
        values_[{param, kind}].assign(static_cast<size_t>(numel), -1.0f);
      }
    }
  }

  // Of every element; exact in bf16 where the parameter is frozen.
  void fill(float salt = 0) {
    for (auto& [key, values] : values_) {
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = params_[static_cast<size_t>(key.first)].trainable
                        ? salt + 0.1f * static_cast<float>(i) + 100.0f * static_cast<float>(key.first) +
                              1000.0f * static_cast<float>(key.second)
                        : static_cast<float>(i);
      }
    }
  }

  checkpoint::StateSource source() const {
    checkpoint::StateSource source{params_, owned_};
    source.read = [this](const StateRun& part, float* values) {
      std::memcpy(values, values_.at({part.param, part.kind}).data() + part.begin,
                  static_cast<size_t>(part.numel) * sizeof(float));
    };
    source.progress = progress_;
    return source;
  }
  checkpoint::StateSink sink() {
    checkpoint::StateSink sink{params_, kept_};
    sink.write = [this](const StateRun& part, const float* values) {
      std::memcpy(values_.at({part.param, part.kind}).data() + part.begin, values,
                  static_cast<size_t>(part.numel) * sizeof(float));
    };
    return sink;
  }

  // Whether what this rank keeps is what the other has there.
  bool keeps_values_of(const FakeState& other) const {
    for (const StateRun& run : kept_) {
      const auto at = [&run](const FakeState& state) {
        return state.values_.at({run.param, run.kind}).data() + run.begin;
      };
      if (std::memcmp(at(*this), at(other), static_cast<size_t>(run.numel) * sizeof(float)) != 0) return false;
    }
    return true;
  }

  std::vector<ParamInfo> params_;
  int rank_;
  std::vector<StateRun> owned_, kept_;
  std::map<Key, std::vector<float>> values_;
  EngineProgress progress_;
};

}  // namespace shoal::testing
