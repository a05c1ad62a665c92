// See attention_pieces.h.
#include "models/ops/attention_pieces.h"

#include <algorithm>

namespace shoal::models::ops {

namespace {

// cuDNN works on tiles of 128 positions. Below the least there is little to win, and every length costs a plan, tens of
// milliseconds of the first step: of documents, whose lengths are any, few have one of these 29.
constexpr int64_t kTile = 128, kLeastTime = 512, kMostTime = 4096;

// Bytes of a head: the gradient of its scores, in 16 bits; those of k and v before heads are added up; a sum a row.
int64_t head_nbytes(const AttentionShape& shape) { return shape.time * (2 * shape.time + 4 * shape.dim + 4); }

// Twelve times q is less than what most models hold in the backward of their feed-forward part. A smaller piece than
// the least leaves processors of a GPU idle.
int64_t most_nbytes(const AttentionShape& shape) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const int64_t q_nbytes = 2 * shape.batch * shape.heads * shape.time * shape.dim;
  return std::clamp(12 * q_nbytes, 320 * kMiB, 1024 * kMiB);
}

// The size of a part when `count` things are cut into equal ones of at most `most`.
int64_t even_part(int64_t count, int64_t most) {
  const int64_t parts = (count + most - 1) / most;
  return (count + parts - 1) / parts;
}

}  // namespace

AttentionPiece piece_of(const AttentionShape& shape) {
  if (shape.time % kTile != 0 || shape.time < kLeastTime || shape.time > kMostTime) return {};
  if (shape.batch < 1 || shape.kv_heads < 1 || shape.heads % shape.kv_heads != 0) return {};
  const int64_t groups = most_nbytes(shape) / (head_nbytes(shape) * (shape.heads / shape.kv_heads));
  if (groups == 0) return {};
  if (groups < shape.kv_heads) return {1, even_part(shape.kv_heads, groups)};
  return {even_part(shape.batch, groups / shape.kv_heads), shape.kv_heads};
}

size_t piece_workspace_nbytes(const AttentionShape& shape) {
  const AttentionPiece piece = piece_of(shape);
  if (piece.is_none()) return 0;
  return static_cast<size_t>(piece.batch * piece.kv_heads * (shape.heads / shape.kv_heads) * head_nbytes(shape));
}

size_t backward_in_flight_nbytes(const AttentionShape& shape, int64_t hidden, int64_t given_back) {
  const auto workspace = static_cast<int64_t>(piece_workspace_nbytes(shape));
  if (workspace == 0) return 0;
  const int64_t elements = 2 * hidden + 2 * (shape.heads + shape.kv_heads) * shape.dim - given_back;
  return static_cast<size_t>(std::max<int64_t>(workspace + 2 * shape.batch * shape.time * elements, 0));
}

}  // namespace shoal::models::ops
