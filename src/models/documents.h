// Several documents in a row of tokens, one after the other: attention stays within each, and positions begin anew.
// The trainer makes one for each packed micro-batch; a forward without it has rows of one document.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace shoal::models {

// Of a batch of rows, in the order of its tokens. Read by all blocks, and again by what backward recomputes.
struct Documents {
  std::vector<int64_t> lengths;  // of all rows, row after row; none is 0
  at::Tensor positions;          // [batch, time] int64: from 0 in each document
  at::Tensor numbers;            // [batch, time] int64: which document a token belongs to
};

// `rows` has the lengths of each row's documents, each row's sum being `time`.
std::shared_ptr<const Documents> make_documents(const std::vector<std::vector<int64_t>>& rows, int64_t time,
                                                at::Device device);

}  // namespace shoal::models
