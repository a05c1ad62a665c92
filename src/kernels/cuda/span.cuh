// How elements of several arrays are cut into accesses: vectors where all pointers allow them at the same element,
// single elements before and after, and single elements throughout where they do not. See [Note: packs] in element.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace shoal::kernels::cuda {
namespace {

// Whether there are vectors, and how many elements stand before the first.
struct Alignment {
  bool vectors = true;
  int head = 0;
};

// What suits every array that was added. Null stands for an array that is not there.
class AlignmentFinder {
 public:
  void add(const void* memory, size_t element_nbytes) {
    if (memory == nullptr) return;
    check_element_alignment(memory, element_nbytes);
    const auto element = reinterpret_cast<uintptr_t>(memory) / element_nbytes;
    const int head = static_cast<int>((kVector - element % kVector) % kVector);
    if (found_.vectors && !is_first_ && head != found_.head) found_ = {false, 0};
    if (is_first_) found_.head = head;
    is_first_ = false;
  }
  Alignment found() const { return found_; }

 private:
  bool is_first_ = true;
  Alignment found_;
};

// How many of a thread's accesses at begin, begin + stride, ... lie before `end`.
template <class Index>
__device__ inline int count_before(Index end, Index begin, int stride, int most) {
  const Index count = (end - begin + stride - 1) / stride;
  return count < most ? static_cast<int>(count) : most;
}

constexpr int kSpanThreads = 256;
constexpr int kSpanTile = kSpanThreads * kPack;  // elements of a thread block

// Calls body(access) for every element of a span: one tile a block, and in the first block also the elements that fill
// no vector.
template <class Body>
__global__ void __launch_bounds__(kSpanThreads) span_kernel(Body body, int64_t numel, Alignment alignment) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t tile = static_cast<int64_t>(blockIdx.x) * kSpanTile;
  if (!alignment.vectors) {
    const int64_t begin = tile + thread;
    const int count = count_before<int64_t>(numel, begin, kSpanThreads, kPack);
    if (begin < numel) body(Access<int64_t, 1>{begin, kSpanThreads, count});
    return;
  }
  const int64_t head = numel < alignment.head ? numel : alignment.head;
  const int64_t vectors_end = head + (numel - head) / kVector * kVector;
  const int64_t begin = head + tile + thread * kVector;
  constexpr int kStride = kSpanThreads * kVector;
  if (begin < vectors_end) {
    body(Access<int64_t, kVector>{begin, kStride, count_before<int64_t>(vectors_end, begin, kStride, kPack / kVector)});
  }
  if (blockIdx.x == 0 && thread < head + (numel - vectors_end)) {
    const int64_t single = thread < head ? thread : vectors_end + (thread - head);
    body(Access<int64_t, 1>{single, 0, 1});
  }
}

// Queues span_kernel; the caller checks the launch.
template <class Body>
void launch_span(const Body& body, int64_t numel, Alignment alignment, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((numel + kSpanTile - 1) / kSpanTile);
  if (blocks > 0) span_kernel<<<blocks, kSpanThreads, 0, stream>>>(body, numel, alignment);
}

}  // namespace
}  // namespace shoal::kernels::cuda
