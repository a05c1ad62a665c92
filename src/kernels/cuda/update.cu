// See update.h; the contract is kernels/update_steps.h.
#include "kernels/cuda/update.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/cuda/lane.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/update_chunk.cuh"
#include "kernels/cuda/update_master.cuh"
#include "kernels/segment.h"
#include "kernels/update_formulas.h"

namespace shoal::kernels::cuda {
namespace {

template <class Step>
using DeviceFormula = Formula<DeviceLane, Step>;
template <class Step>
constexpr bool kHasSecond = kStates<Step> > 1;

template <class Step, class Storage, DType grad_dtype>
__global__ void __launch_bounds__(kUpdateThreads, update_blocks(kHasSecond<Step>))
    update_kernel(const Chunk* chunks, const Step* steps, const int* apply) {
  const Chunk chunk = chunks[blockIdx.x];
  if (apply != nullptr && *apply == 0) return;
  const DeviceFormula<Step> formula(steps[chunk.group]);
  for_each_pack(chunk, [&](const auto& access) {
    float p[kPack], g[kPack], first[kPack] = {}, second[kPack] = {};
    load_floats<grad_dtype>(access, chunk.grad, g);
    Storage::load(access, chunk.weight, chunk.master, p);
    if (formula.reads_first()) access.load(chunk.first, first);
    if constexpr (kHasSecond<Step>) access.load(chunk.second, second);
#pragma unroll
    for (int k = 0; k < kPack; ++k) p[k] = formula(p[k], g[k], first[k], second[k]);
    if (formula.writes_first()) access.store(chunk.first, first);
    if constexpr (kHasSecond<Step>) access.store(chunk.second, second);
    Storage::store(access, chunk.weight, chunk.master, p);
  });
}

// The same for what is kept in 16 bits, of any dtypes and any master: which, is asked at run time, alike in all
// threads, so that there is one such kernel an optimizer. See [Note: states of 16 bits] in kernels/update.h.
template <class Step>
__global__ void __launch_bounds__(kUpdateThreads)
    update_narrow_kernel(const Chunk* chunks, const Step* steps, const int* apply, SegmentTable::Batch kind) {
  const Chunk chunk = chunks[blockIdx.x];
  if (apply != nullptr && *apply == 0) return;
  const DeviceFormula<Step> formula(steps[chunk.group]);
  for_each_pack(chunk, [&](const auto& access) {
    float p[kPack], g[kPack], first[kPack] = {}, second[kPack] = {};
    load_floats(access, kind.grad_dtype, chunk.grad, g);
    load_master(access, kind.weight_dtype, kind.master_kind, chunk.weight, chunk.master, p);
    if (formula.reads_first()) load_floats(access, kind.state_dtype, chunk.first, first);
    if constexpr (kHasSecond<Step>) load_floats(access, kind.state_dtype, chunk.second, second);
#pragma unroll
    for (int k = 0; k < kPack; ++k) p[k] = formula(p[k], g[k], first[k], second[k]);
    if (formula.writes_first()) store_floats(access, kind.state_dtype, chunk.first, first);
    if constexpr (kHasSecond<Step>) store_floats(access, kind.state_dtype, chunk.second, second);
    store_master(access, kind.weight_dtype, kind.master_kind, chunk.weight, chunk.master, p);
  });
}

template <class Step>
void launch_narrow(const SegmentTable::Batch& batch, const Chunk* chunks, const Step* steps, const int* apply,
                   cudaStream_t stream) {
  update_narrow_kernel<Step><<<static_cast<unsigned>(batch.chunk_count), kUpdateThreads, 0, stream>>>(
      chunks + batch.first_chunk, steps, apply, batch);
}

template <class Step, class Storage>
void launch_by_grad(const SegmentTable::Batch& batch, const Chunk* chunks, const Step* steps, const int* apply,
                    cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(batch.chunk_count);
  chunks += batch.first_chunk;
  switch (batch.grad_dtype) {
    case DType::f32:
      update_kernel<Step, Storage, DType::f32><<<grid, kUpdateThreads, 0, stream>>>(chunks, steps, apply);
      return;
    case DType::bf16:
      update_kernel<Step, Storage, DType::bf16><<<grid, kUpdateThreads, 0, stream>>>(chunks, steps, apply);
      return;
    case DType::f16:
      update_kernel<Step, Storage, DType::f16><<<grid, kUpdateThreads, 0, stream>>>(chunks, steps, apply);
      return;
  }
}

template <class Step>
void launch_all(const SegmentTable& table, const Step* steps, const int* apply, Stream stream, const char* name) {
  for (const SegmentTable::Batch& batch : table.batches()) {
    const cudaStream_t on = stream_of(stream);
    if (batch.state_dtype != DType::f32 || batch.master_kind == Master::none) {
      launch_narrow(batch, table.chunks(), steps, apply, on);
    } else if (batch.master_kind == Master::weight) {
      launch_by_grad<Step, OwnMaster>(batch, table.chunks(), steps, apply, on);
    } else if (batch.master_kind == Master::remainder) {
      launch_by_grad<Step, SplitMaster>(batch, table.chunks(), steps, apply, on);
    } else if (batch.weight_dtype == DType::bf16) {
      launch_by_grad<Step, FullMaster<DType::bf16>>(batch, table.chunks(), steps, apply, on);
    } else {
      launch_by_grad<Step, FullMaster<DType::f16>>(batch, table.chunks(), steps, apply, on);
    }
    check_launch(name);
  }
}

// Every chunk but a segment's first begins at a vector, since chunks are whole tiles behind the first vector.
void cut(const Segment& s, int group, int64_t chunk_numel, std::vector<Chunk>& chunks) {
  AlignmentFinder finder;
  finder.add(s.weight, nbytes_of(s.weight_dtype));
  finder.add(s.master, master_nbytes(s.master_kind));
  finder.add(s.grad, nbytes_of(s.grad_dtype));
  finder.add(s.first, nbytes_of(s.state_dtype));
  finder.add(s.second, nbytes_of(s.state_dtype));
  const Alignment alignment = finder.found();
  int head = static_cast<int>(std::min<int64_t>(alignment.head, s.numel));
  for (int64_t begin = 0; begin < s.numel;) {
    const int64_t numel = std::min(head + chunk_numel, s.numel - begin);
    const Segment part = part_of(s, begin, begin + numel);
    Chunk chunk;
    chunk.weight = part.weight;
    chunk.master = part.master;
    chunk.grad = part.grad;
    chunk.first = part.first;
    chunk.second = part.second;
    chunk.group = group;
    chunk.numel = static_cast<uint16_t>(numel);
    chunk.head = static_cast<uint8_t>(head);
    chunk.has_vectors = alignment.vectors ? 1 : 0;
    chunks.push_back(chunk);
    begin += numel;
    head = 0;
  }
}

// Small shards are cut small, so that they fill the device; large ones large, so that a block's start counts little.
int64_t chunk_numel_for(int64_t batch_numel) {
  constexpr int64_t kWantedChunks = 4096;
  const int64_t tiles = batch_numel / kWantedChunks / kUpdateTile;
  return std::clamp<int64_t>(tiles, 1, kMostChunkTiles) * kUpdateTile;
}

using Kind = std::array<int, 4>;
Kind kind_of(const Segment& s) {
  return {static_cast<int>(s.master_kind), static_cast<int>(s.weight_dtype), static_cast<int>(s.grad_dtype),
          static_cast<int>(s.state_dtype)};
}

}  // namespace

SegmentTable::SegmentTable(const std::vector<Segment>& segments, const std::vector<int>& groups) {
  SHOAL_CHECK_EQ(segments.size(), groups.size());
  std::vector<size_t> order;
  for (size_t i = 0; i < segments.size(); ++i) {
    check_segment(segments[i]);
    SHOAL_CHECK_GE(groups[i], 0);
    if (segments[i].numel == 0) continue;
    order.push_back(i);
    has_first_ = has_first_ && segments[i].first != nullptr;
    has_second_ = has_second_ && segments[i].second != nullptr;
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return kind_of(segments[a]) < kind_of(segments[b]); });

  std::vector<Chunk> chunks;
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    const Segment& like = segments[order[begin]];
    int64_t batch_numel = 0;
    for (; end < order.size() && kind_of(segments[order[end]]) == kind_of(like); ++end) {
      batch_numel += segments[order[end]].numel;
    }
    Batch batch;
    batch.weight_dtype = like.weight_dtype;
    batch.master_kind = like.master_kind;
    batch.grad_dtype = like.grad_dtype;
    batch.state_dtype = like.state_dtype;
    batch.first_chunk = static_cast<int64_t>(chunks.size());
    const int64_t chunk_numel = chunk_numel_for(batch_numel);
    for (size_t i = begin; i < end; ++i) cut(segments[order[i]], groups[order[i]], chunk_numel, chunks);
    batch.chunk_count = static_cast<int64_t>(chunks.size()) - batch.first_chunk;
    batches_.push_back(batch);
  }

  if (chunks.empty()) return;
  const size_t nbytes = chunks.size() * sizeof(Chunk);
  check_cuda(cudaMalloc(reinterpret_cast<void**>(&chunks_), nbytes), "allocating the table of an update");
  nbytes_ = static_cast<int64_t>(nbytes);
  cudaError_t copied = cudaMemcpy(chunks_, chunks.data(), nbytes, cudaMemcpyHostToDevice);
  // The copy returns when the chunks have left the vector. We wait until they have arrived: an update may run on a
  // stream that does not wait for the default one.
  if (copied == cudaSuccess) copied = cudaStreamSynchronize(nullptr);
  if (copied != cudaSuccess) cudaFree(chunks_);  // a constructor that throws has no destructor
  check_cuda(copied, "copying the table of an update");
}

SegmentTable::~SegmentTable() {
  if (chunks_ != nullptr) cudaFree(chunks_);
}

void update(const SegmentTable& table, const AnyStep& steps, const int* apply, Stream stream) {
  std::visit(
      [&](const auto* of_groups) {
        using Step = std::decay_t<decltype(*of_groups)>;
        const char* name = optimizer_row(Step::kKinds[0]).name.data();  // a literal
        if constexpr (!kStatesNeedMomentum<Step>) {
          SHOAL_CHECK(kStates<Step> < 1 || table.has_first(), "({})", name);
          SHOAL_CHECK(kStates<Step> < 2 || table.has_second(), "({})", name);
        }
        launch_all(table, of_groups, apply, stream, name);
      },
      steps);
}

}  // namespace shoal::kernels::cuda
