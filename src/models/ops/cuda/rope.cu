// See rope.h. A block has whole rows, where they are short enough, so that the only divisions are those of a thread's
// place in its block. A thread holds the angles of one pack of pairs and turns that pack in up to four heads of a row.
#include "models/ops/cuda/rope.h"

#include <algorithm>

#include "models/ops/cuda/pack.cuh"

namespace shoal::models::ops::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kHeads = 4;  // a thread

struct Shape {
  unsigned packs;       // of half a head
  unsigned head_steps;  // threads that share the heads of a row
  unsigned rows;        // of a block
};

template <typename T, int kWidth>
__device__ __forceinline__ void turn_heads(const Rope& args, unsigned row, int pair, int first_head, int head_step) {
  const int half = static_cast<int>(args.dim / 2);
  const int q_heads = static_cast<int>(args.q.heads);
  const int heads = q_heads + static_cast<int>(args.k.heads);

  // [head][first or second half]
  Held<T, kWidth> held[kHeads][2];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    const int head = first_head + h * head_step;
    if (head >= heads) continue;
    const bool is_q = head < q_heads;
    const void* in = is_q ? args.q.in : args.k.in;
    const int64_t at =
        row * (is_q ? args.q.in_stride : args.k.in_stride) + (is_q ? head : head - q_heads) * args.dim + pair;
    held[h][0].load_once(in, at);
    held[h][1].load_once(in, at + half);
  }
  const int64_t angle = int64_t{row % static_cast<unsigned>(args.time)} * half + pair;
  constexpr int kAngles = kWidth == 1 ? 1 : 4;
  float cos[kWidth], sin[kWidth];
#pragma unroll
  for (int part = 0; part < kWidth; part += kAngles) {
    const auto cosines = load_pack<float, kAngles>(args.cos, angle + part);
    const auto sines = load_pack<float, kAngles>(args.sin, angle + part);
#pragma unroll
    for (int j = 0; j < kAngles; ++j) {
      cos[part + j] = cosines.values[j];
      sin[part + j] = args.inverse ? -sines.values[j] : sines.values[j];
    }
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    const int head = first_head + h * head_step;
    if (head >= heads) continue;
    float first[kWidth], second[kWidth];
    held[h][0].to_floats(first);
    held[h][1].to_floats(second);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float a = first[j], b = second[j];
      first[j] = fmaf(a, cos[j], -(b * sin[j]));
      second[j] = fmaf(b, cos[j], a * sin[j]);
    }
    held[h][0].round_from(first);
    held[h][1].round_from(second);
    const bool is_q = head < q_heads;
    void* out = is_q ? args.q.out : args.k.out;
    const int64_t at =
        row * (is_q ? args.q.out_stride : args.k.out_stride) + (is_q ? head : head - q_heads) * args.dim + pair;
    held[h][0].store(out, at);
    held[h][1].store(out, at + half);
  }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads, 3) turn(Rope args, Shape shape) {
  const unsigned row_threads = shape.packs * shape.head_steps;
  for (unsigned place = threadIdx.x; place < shape.rows * row_threads; place += kThreads) {
    const unsigned row_in_block = place / row_threads;
    const unsigned in_row = place - row_in_block * row_threads;
    const unsigned head = in_row / shape.packs;
    const unsigned row = blockIdx.x * shape.rows + row_in_block;
    if (row >= args.rows) return;
    turn_heads<T, kWidth>(args, row, static_cast<int>((in_row - head * shape.packs) * kWidth), static_cast<int>(head),
                          static_cast<int>(shape.head_steps));
  }
}

template <typename T, int kWidth>
void launch(const Rope& args, Stream stream) {
  const int64_t heads = args.q.heads + args.k.heads;
  Shape shape;
  shape.packs = static_cast<unsigned>(args.dim / 2 / kWidth);
  shape.head_steps = static_cast<unsigned>((heads + kHeads - 1) / kHeads);
  const unsigned row_threads = shape.packs * shape.head_steps;
  if (row_threads == 0 || args.rows == 0) return;
  shape.rows = std::max(1u, kThreads / row_threads);
  blocks_for(args.rows, 1);  // rows are counted in 32 bits
  turn<T, kWidth><<<blocks_for(args.rows, static_cast<int>(shape.rows)), kThreads, 0, stream_of(stream)>>>(args, shape);
  check_launch("rope");
}

bool divides(int64_t width, const RopeSide& side) {
  return all_aligned(side.in, side.out) && side.in_stride % width == 0 && side.out_stride % width == 0;
}

}  // namespace

void rope(const Rope& args, Stream stream) {
  with_type(args.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constexpr int64_t kWidth = kWidest<T>;
    if (args.dim / 2 % kWidth == 0 && divides(kWidth, args.q) && divides(kWidth, args.k) &&
        all_aligned(args.cos, args.sin)) {
      launch<T, kWidest<T>>(args, stream);
    } else {
      launch<T, 1>(args, stream);
    }
  });
}

}  // namespace shoal::models::ops::cuda
