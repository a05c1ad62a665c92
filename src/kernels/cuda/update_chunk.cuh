// The chunk of a segment, the unit of work of an update's thread block, and how a block walks through it.
#pragma once

#include <cstdint>

#include "kernels/cuda/span.cuh"
#include "kernels/update.h"

namespace shoal::kernels::cuda {

// Everything a block must know, so that it starts with one read. A chunk with vectors has its first one at element
// `head`, which is 0 except in a segment's first chunk.
struct alignas(16) Chunk {
  void* weight;
  void* master;
  const void* grad;
  void* first;
  void* second;
  int32_t group;
  uint16_t numel;
  uint8_t head;
  uint8_t has_vectors;
};
static_assert(sizeof(Chunk) == 48, "three 16-byte reads");

namespace {

constexpr int kUpdateThreads = 128;
// Blocks at a time on a multiprocessor: 72 registers a thread with two states and 56 with one, which spills nothing but
// 16 bytes in one of the fp16 forms. The more blocks, the less it counts that a small parameter leaves a block's
// threads with little to do.
constexpr int update_blocks(bool second) { return second ? 7 : 9; }
constexpr int kUpdateTile = kUpdateThreads * kPack;  // elements that a block updates at a time
constexpr int kMostChunkTiles = 8;

// Calls body(access) for every element of the chunk.
template <class Body>
__device__ inline void for_each_pack(const Chunk& chunk, const Body& body) {
  const int thread = static_cast<int>(threadIdx.x);
  const int numel = chunk.numel;
  int single = thread, singles_end = numel;
  if (chunk.has_vectors) {
    const int head = chunk.head;
    const int vectors_end = head + (numel - head) / kVector * kVector;
    constexpr int kStride = kUpdateThreads * kVector;
    for (int begin = head + thread * kVector; begin < vectors_end; begin += kUpdateTile) {
      body(Access<int, kVector>{begin, kStride, begin + kStride < vectors_end ? 2 : 1});
    }
    // Left are fewer than two vectors of elements, for the last threads, which had the least to do.
    const int left = kUpdateThreads - 1 - thread;
    single = left < head ? left : vectors_end + (left - head);
    singles_end = left < head + (numel - vectors_end) ? single + 1 : single;
  }
  for (; single < singles_end; single += kUpdateTile) {
    body(Access<int, 1>{single, kUpdateThreads, count_before(singles_end, single, kUpdateThreads, kPack)});
  }
}

}  // namespace
}  // namespace shoal::kernels::cuda
