// The fused optimizer updates of kernels/update.h over many segments at once, queued on a stream: the same bits, except
// which NaN a NaN is. Nothing of a step is read on the host, so a step needs no wait for the gradient norm.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cuda/stream.h"
#include "kernels/update.h"

namespace shoal::kernels::cuda {

struct Chunk;  // a piece of a segment that one thread block updates

// Segments that are updated together, cut into chunks once. Holds the chunks in device memory, of the device that is
// current at construction; the segments' memory stays the caller's. Construction and destruction wait for the device.
class SegmentTable {
 public:
  // groups[i] is the parameter group of segments[i]. Segments may differ in dtypes and master kind, and may be empty.
  SegmentTable(const std::vector<Segment>& segments, const std::vector<int>& groups);
  ~SegmentTable();
  SegmentTable(SegmentTable&& other) noexcept { swap(other); }
  SegmentTable& operator=(SegmentTable&& other) noexcept {
    SegmentTable taken(std::move(other));
    swap(taken);
    return *this;
  }

  // Chunks whose dtypes and master kind agree: one launch.
  struct Batch {
    DType weight_dtype = DType::f32;
    Master master_kind = Master::weight;
    DType grad_dtype = DType::f32;
    DType state_dtype = DType::f32;
    int64_t first_chunk = 0;
    int64_t chunk_count = 0;
  };
  const std::vector<Batch>& batches() const { return batches_; }
  const Chunk* chunks() const { return chunks_; }  // device memory

  // Of the device memory held here.
  int64_t nbytes() const { return nbytes_; }
  // Whether every segment has a first and a second state.
  bool has_first() const { return has_first_; }
  bool has_second() const { return has_second_; }

 private:
  void swap(SegmentTable& other) noexcept {
    std::swap(batches_, other.batches_);
    std::swap(chunks_, other.chunks_);
    std::swap(nbytes_, other.nbytes_);
    std::swap(has_first_, other.has_first_);
    std::swap(has_second_, other.has_second_);
  }

  std::vector<Batch> batches_;
  Chunk* chunks_ = nullptr;
  int64_t nbytes_ = 0;
  bool has_first_ = true, has_second_ = true;
};

// steps: device array, one entry a parameter group. apply: device flag, 0 leaves everything as it is; null is 1.
// sgd with momentum in any group needs a first state in every segment of that group.
void update(const SegmentTable& table, const AnyStep& steps, const int* apply, Stream stream);

}  // namespace shoal::kernels::cuda
