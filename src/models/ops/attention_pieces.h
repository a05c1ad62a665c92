// In which pieces cuDNN's deterministic backward takes attention, so that its workspace, which grows by the square of
// time, stays small. Numbers alone: the operation (repeatable_attention.h) and the memory plan ask the same functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shoal::models::ops {

// Of 16-bit elements; `heads` is a multiple of `kv_heads`.
struct AttentionShape {
  int64_t batch = 1, heads = 1, kv_heads = 1, time = 1, dim = 1;
};

// Rows of the batch, and heads of k and v with the heads of q that read them, of one call. It follows from the shape
// alone, and so do the bits.
struct AttentionPiece {
  int64_t batch = 0, kv_heads = 0;

  bool is_none() const { return batch == 0; }  // FlashAttention's backward takes this shape
};
AttentionPiece piece_of(const AttentionShape& shape);

// What cuDNN asks for in a call; 0 where it is not taken.
size_t piece_workspace_nbytes(const AttentionShape& shape);

// What backward holds in it beside what a block keeps: the workspace, the gradients of q, k and v and of attention's
// output, and two of the block's input; less `given_back` elements of a token, which the block kept for what came after
// attention. 0 where cuDNN is not taken.
size_t backward_in_flight_nbytes(const AttentionShape& shape, int64_t hidden, int64_t given_back);

}  // namespace shoal::models::ops
