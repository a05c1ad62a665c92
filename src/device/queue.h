// Where a rank's model lives, and how work on it is done: in host memory, at once, on threads (host_queue.h); or in a
// GPU's memory, on a stream, in order and later (cuda_queue.h). The parts that keep weights, gradients and states call
// this and do not know which of the two it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "device/alarm.h"
#include "device/arena.h"
#include "device/copy_streams.h"
#include "device/slab.h"
#include "kernels/blocks.h"
#include "kernels/decide.h"
#include "kernels/reduce.h"
#include "kernels/trust_ratio.h"
#include "kernels/update.h"

namespace shoal {

// Calls work(begin, end) for spans that cover [0, numel), maybe on several threads.
using ParallelFor = std::function<void(int64_t numel, const std::function<void(int64_t begin, int64_t end)>& work)>;

// In the calling thread alone.
void in_one_span(int64_t numel, const std::function<void(int64_t, int64_t)>& work);

// Runs of elements that are updated together, in a form that the queue made of them.
class UpdateList {
 public:
  virtual ~UpdateList() = default;
};

// What an update needs to know, one entry a parameter group; which alternative says which optimizer.
template <class Step>
using StepVector = std::vector<Step>;
using GroupSteps = kernels::EveryStep::Variant<StepVector>;

// The same in a queue's memory.
struct PlacedSteps {
  kernels::AnyStep of_groups;
  const int* apply = nullptr;  // 0 there: the update leaves everything as it is; null: it does not
};
inline constexpr size_t kMostStepNbytes = kernels::EveryStep::kMostNbytes;
// For a queue of host memory. The steps stay where they are as long as the result is used.
PlacedSteps in_host_memory(const GroupSteps& steps);

// For each number of steps that may have been applied before the next one, from the first on: the constants of its
// groups, one number after the other.
struct StepChoices {
  int64_t first_steps_before = 0;
  int64_t count = 1;
  GroupSteps steps;
};

// A few bytes of a queue's memory that the host reads when the queue has come to them. Used again and again, each time
// after the last reading is over.
class LateRead {
 public:
  virtual ~LateRead() = default;
  // The bytes as they are after what the queue was given so far.
  virtual void begin(const void* from) = 0;
  // Whether wait() would return at once.
  virtual bool ready() const = 0;
  // Holds the calling thread until they are there; may be called again.
  virtual const void* wait() = 0;
};

class Queue {
 public:
  virtual ~Queue() = default;

  // -1: host memory. Otherwise pointers are memory of this GPU.
  virtual int device() const = 0;
  // The GPU's stream that the work goes to, a cudaStream_t; null in host memory.
  virtual void* stream() const = 0;

  // Whoever waits for this queue throws what the alarm is raised with. Null: none.
  virtual void heed(std::shared_ptr<Alarm>) {}

  virtual std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) = 0;
  // Host memory that copies of this queue reach at full speed.
  virtual std::shared_ptr<Slab> allocate_host(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) = 0;
  virtual std::unique_ptr<Arena> make_arena(std::vector<size_t> tenant_nbytes, std::shared_ptr<Ledger> ledger) = 0;

  // Between host memory and this queue's. When they return, the host memory is read or written; what the queue was
  // given before is done.
  virtual void upload(void* to, const void* from_host, size_t nbytes) = 0;
  virtual void download(void* to_host, const void* from, size_t nbytes) = 0;

  // Ways for that many chunks beside this queue's work; see paced_copies.h, which uses them.
  virtual std::unique_ptr<CopyStreams> make_copy_streams(int chunks) = 0;

  // Elementwise work on host memory, on this rank's threads: work(begin, end) for spans that cover [0, numel).
  virtual void on_host(int64_t numel, const std::function<void(int64_t begin, int64_t end)>& work) = 0;

  virtual void zero(void* memory, size_t nbytes) = 0;
  virtual void copy(void* to, const void* from, size_t nbytes) = 0;
  // See kernels/convert.h.
  virtual void convert(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel) = 0;
  virtual void add(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel) = 0;
  // See kernels/blocks.h. `feedback` without memory: there are no errors; with it, values are fp32.
  virtual void quantize(const void* values, DType dtype, int64_t numel, int bits, void* blocks,
                        const kernels::ErrorFeedback& feedback = {}) = 0;
  virtual void dequantize(const void* blocks, int bits, void* values, DType dtype, int64_t numel) = 0;
  virtual void fold_blocks(const kernels::BlockFold& args) = 0;
  // See kernels/reduce.h.
  virtual void ordered_fold(const kernels::OrderedFold& args) = 0;
  virtual void sum_squares(const void* values, DType dtype, int64_t numel, int64_t first_run, double* pieces) = 0;
  virtual void sum_pieces(const std::vector<kernels::PieceSums>& ranges) = 0;

  // The fp32 values of a segment's weights.
  virtual void read_masters(const kernels::Segment& segment, float* values) = 0;
  // See kernels/trust_ratio.h.
  virtual void trust_ratios(const kernels::TrustRatios& args) = 0;

  // Segments whose pointers stay as they are; `groups` names the parameter group of each.
  virtual std::unique_ptr<UpdateList> make_update_list(std::vector<kernels::Segment> segments,
                                                       std::vector<int> groups) = 0;
  virtual void update(const UpdateList& list, const PlacedSteps& steps) = 0;

  // Decides a step and picks its constants; see kernels/decide.h. `picked` has room for kMostStepNbytes a group. What
  // is returned holds as long as `picked` and the record are left alone.
  virtual PlacedSteps decide(const kernels::Decision& decision, const StepChoices& choices, void* picked) = 0;
  virtual std::unique_ptr<LateRead> make_late_read(size_t nbytes) = 0;
};

}  // namespace shoal
