// See rope.h. A thread holds the angles of one pack of pairs and turns that pack in up to four heads of a row.
#include "kernels/cuda/rope.h"

#include "kernels/cuda/pack.cuh"

namespace shoal::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kHeads = 4;  // a thread

struct Shape {
  unsigned packs;       // of half a head
  unsigned head_steps;  // threads that share the heads of a row
};

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) turn(Rope args, Shape shape) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t above = index / shape.packs;
  const int64_t row = above / shape.head_steps;
  if (row >= args.rows) return;
  const int pair = static_cast<int>(index - above * shape.packs) * kWidth;
  const int first_head = static_cast<int>(above - row * shape.head_steps);
  const int half = static_cast<int>(args.dim / 2);
  const int q_heads = static_cast<int>(args.q.heads);
  const int heads = q_heads + static_cast<int>(args.k.heads);

  // [head][first or second half]
  Pack<T, kWidth> packs[kHeads][2];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    const int head = first_head + h * static_cast<int>(shape.head_steps);
    if (head >= heads) continue;
    const bool is_q = head < q_heads;
    const void* in = is_q ? args.q.in : args.k.in;
    const int64_t at =
        row * (is_q ? args.q.in_stride : args.k.in_stride) + int64_t{is_q ? head : head - q_heads} * args.dim + pair;
    packs[h][0] = load_pack<T, kWidth>(in, at);
    packs[h][1] = load_pack<T, kWidth>(in, at + half);
  }
  const int64_t angle = row % args.time * half + pair;
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
    const int head = first_head + h * static_cast<int>(shape.head_steps);
    if (head >= heads) continue;
    Pack<T, kWidth> first, second;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float a = to_float(packs[h][0].values[j]);
      const float b = to_float(packs[h][1].values[j]);
      first.values[j] = from_float<T>(fmaf(a, cos[j], -(b * sin[j])));
      second.values[j] = from_float<T>(fmaf(b, cos[j], a * sin[j]));
    }
    const bool is_q = head < q_heads;
    void* out = is_q ? args.q.out : args.k.out;
    const int64_t at =
        row * (is_q ? args.q.out_stride : args.k.out_stride) + int64_t{is_q ? head : head - q_heads} * args.dim + pair;
    store_pack(out, at, first);
    store_pack(out, at + half, second);
  }
}

template <typename T, int kWidth>
void launch(const Rope& args, Stream stream) {
  const int64_t heads = args.q.heads + args.k.heads;
  Shape shape;
  shape.packs = static_cast<unsigned>(args.dim / 2 / kWidth);
  shape.head_steps = static_cast<unsigned>((heads + kHeads - 1) / kHeads);
  const int64_t threads = args.rows * shape.packs * shape.head_steps;
  if (threads == 0) return;
  turn<T, kWidth><<<blocks_for(threads, kThreads), kThreads, 0, stream_of(stream)>>>(args, shape);
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

}  // namespace shoal::kernels::cuda
