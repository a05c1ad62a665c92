// Sources of tokens whose values say where they stand, for tests.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "train/token_source.h"

namespace shoal::testing {

// Token i is i.
class Counting : public train::TokenSource {
 public:
  explicit Counting(int64_t numel) : numel_(numel) {}
  int64_t numel() const override { return numel_; }
  int64_t vocab() const override { return numel_; }
  void read(int64_t begin, int64_t numel, int64_t* tokens) const override {
    for (int64_t i = 0; i < numel; ++i) tokens[i] = begin + i;
    EXPECT_LE(begin + numel, numel_);
  }
  std::string describe() const override { return "counting"; }

 private:
  int64_t numel_;
};

// With documents of these lengths. A mask learns every token whose number is not a multiple of 3.
class WithDocuments final : public Counting {
 public:
  explicit WithDocuments(std::vector<int64_t> lengths, bool masked = false)
      : Counting(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})),
        lengths_(std::move(lengths)),
        masked_(masked) {}

  static bool is_learned(int64_t token) { return token % 3 != 0; }
  int64_t documents() const override { return static_cast<int64_t>(lengths_.size()); }
  int64_t document_begin(int64_t document) const override {
    return std::accumulate(lengths_.begin(), lengths_.begin() + document, int64_t{0});
  }
  bool has_mask() const override { return masked_; }
  int64_t count_learned(int64_t begin, int64_t numel) const override {
    int64_t count = 0;
    for (int64_t i = begin; i < begin + numel; ++i) count += !masked_ || is_learned(i);
    return count;
  }
  void read_learned(int64_t begin, int64_t numel, uint8_t* learned) const override {
    for (int64_t i = 0; i < numel; ++i) learned[i] = !masked_ || is_learned(begin + i);
  }

 private:
  std::vector<int64_t> lengths_;
  bool masked_;
};

}  // namespace shoal::testing
