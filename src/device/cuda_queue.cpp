// See cuda_queue.h.
#include "device/cuda_queue.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "device/block_arena.h"
#include "device/cuda_copy_streams.h"
#include "kernels/cuda/blocks.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/decide.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/trust_ratio.h"
#include "kernels/cuda/update.h"

namespace shoal {

namespace {

void wait_for(const cuda::Event& event, const Alarms& alarms) {
  alarms.wait([&] { return event.reached(); }, [&] { event.synchronize(); });
}

// Numbers of the host that a kernel reads from GPU memory, written anew for each use: a ring, so that a write waits
// only for the use `kTurns` earlier.
class Uploads {
 public:
  Uploads(size_t nbytes, const Alarms& alarms)
      : alarms_(alarms), nbytes_((nbytes + 255) / 256 * 256), pinned_(kTurns * nbytes_) {
    device_ = static_cast<std::byte*>(cuda::allocate(kTurns * nbytes_));
  }
  ~Uploads() { cuda::release(device_); }
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  size_t nbytes() const { return nbytes_; }

  // Copies to the GPU on `stream`, or finds what it copied last; valid for what the stream is given before finish() and
  // for that only.
  const void* begin(const void* values, size_t nbytes, cuda::StreamHandle stream) {
    SHOAL_CHECK_LE(nbytes, nbytes_);
    if (nbytes == last_nbytes_ && std::memcmp(staged_, values, nbytes) == 0) return device_ + turn_ * nbytes_;
    turn_ = (turn_ + 1) % kTurns;
    if (used_[turn_]) wait_for(done_[turn_], alarms_);
    staged_ = static_cast<std::byte*>(pinned_.data()) + turn_ * nbytes_;
    std::memcpy(staged_, values, nbytes);
    last_nbytes_ = nbytes;
    cuda::copy(device_ + turn_ * nbytes_, staged_, nbytes, stream);
    return device_ + turn_ * nbytes_;
  }
  void finish(cuda::StreamHandle stream) {
    done_[turn_].record(stream);
    used_[turn_] = true;
  }

 private:
  static constexpr size_t kTurns = 64;
  const Alarms& alarms_;
  size_t nbytes_;
  cuda::PinnedMemory pinned_;
  std::byte* device_ = nullptr;
  std::array<cuda::Event, kTurns> done_;
  std::array<bool, kTurns> used_{};
  size_t turn_ = 0;
  std::byte* staged_ = nullptr;  // what was copied last
  size_t last_nbytes_ = 0;
};

struct CudaUpdateList final : UpdateList {
  explicit CudaUpdateList(kernels::cuda::SegmentTable made) : table(std::move(made)) {}
  kernels::cuda::SegmentTable table;
};

class CudaRead final : public LateRead {
 public:
  CudaRead(size_t nbytes, int device, cuda::StreamHandle stream, std::shared_ptr<const Alarms> alarms)
      : nbytes_(nbytes), device_(device), stream_(stream), alarms_(std::move(alarms)), pinned_(nbytes) {}
  ~CudaRead() override {
    try {
      if (begun_) there_.synchronize();  // the copy ends before its memory goes
    } catch (...) {                      // a GPU that failed has said so where its numbers were read
    }
  }
  CudaRead(const CudaRead&) = delete;
  CudaRead& operator=(const CudaRead&) = delete;

  void begin(const void* from) override {
    cuda::use_device(device_);
    cuda::copy(pinned_.data(), from, nbytes_, stream_);
    there_.record(stream_);
    begun_ = true;
  }
  bool ready() const override { return there_.reached(); }
  const void* wait() override {
    wait_for(there_, *alarms_);
    return pinned_.data();
  }

 private:
  size_t nbytes_;
  int device_;
  cuda::StreamHandle stream_;
  std::shared_ptr<const Alarms> alarms_;  // shared with the queue, which may go first
  cuda::PinnedMemory pinned_;
  cuda::Event there_;
  bool begun_ = false;
};

class CudaQueue final : public Queue {
 public:
  CudaQueue(int device, cuda::StreamHandle stream, ParallelFor on_host)
      : device_(device), stream_(stream), on_host_(std::move(on_host)) {
    cuda::use_device(device_);
  }
  ~CudaQueue() override = default;
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  int device() const override { return device_; }
  void* stream() const override { return stream_; }
  void heed(std::shared_ptr<Alarm> alarm) override { alarms_->add(std::move(alarm)); }

  std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) override {
    cuda::use_device(device_);
    return Slab::create(nbytes, Slab::Backing::device, std::move(ledger), kind);
  }

  std::shared_ptr<Slab> allocate_host(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) override {
    cuda::use_device(device_);
    return Slab::create(nbytes, Slab::Backing::pinned, std::move(ledger), kind);
  }

  std::unique_ptr<Arena> make_arena(std::vector<size_t> tenant_nbytes, std::shared_ptr<Ledger> ledger) override {
    return std::make_unique<BlockArena>(std::move(tenant_nbytes), [this, ledger = std::move(ledger)](size_t nbytes) {
      return allocate(nbytes, ledger, MemoryKind::gather_arena);
    });
  }

  void upload(void* to, const void* from_host, size_t nbytes) override {
    cuda::use_device(device_);  // the default stream is the current GPU's
    drain();
    cuda::copy(to, from_host, nbytes, stream_);
    cuda::synchronize(stream_);
  }
  void download(void* to_host, const void* from, size_t nbytes) override {
    cuda::use_device(device_);
    drain();
    cuda::copy(to_host, from, nbytes, stream_);
    cuda::synchronize(stream_);
  }

  std::unique_ptr<CopyStreams> make_copy_streams(int chunks) override {
    return make_cuda_copy_streams(device_, stream_, chunks, alarms_);
  }

  void on_host(int64_t numel, const std::function<void(int64_t, int64_t)>& work) override { on_host_(numel, work); }

  void zero(void* memory, size_t nbytes) override { cuda::zero(memory, nbytes, stream_); }
  void copy(void* to, const void* from, size_t nbytes) override { cuda::copy(to, from, nbytes, stream_); }

  void convert(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel) override {
    kernels::cuda::convert(in, in_dtype, out, out_dtype, numel, stream_);
  }
  void add(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel) override {
    kernels::cuda::add(in, in_dtype, out, out_dtype, numel, stream_);
  }
  void quantize(const void* values, DType dtype, int64_t numel, int bits, void* blocks,
                const kernels::ErrorFeedback& feedback) override {
    if (feedback.errors == nullptr) return kernels::cuda::quantize(values, dtype, numel, bits, blocks, stream_);
    SHOAL_CHECK(dtype == DType::f32, "errors of {}", name_of(dtype));
    kernels::cuda::quantize_with_errors(static_cast<const float*>(values), numel, bits, blocks, feedback, stream_);
  }
  void dequantize(const void* blocks, int bits, void* values, DType dtype, int64_t numel) override {
    kernels::cuda::dequantize(blocks, bits, values, dtype, numel, stream_);
  }
  void fold_blocks(const kernels::BlockFold& args) override { kernels::cuda::fold_blocks(args, stream_); }
  void ordered_fold(const kernels::OrderedFold& args) override { kernels::cuda::ordered_fold(args, stream_); }
  void sum_squares(const void* values, DType dtype, int64_t numel, int64_t first_run, double* pieces) override {
    kernels::cuda::sum_squares(values, dtype, numel, first_run, pieces, stream_);
  }

  void sum_pieces(const std::vector<kernels::PieceSums>& ranges) override {
    static_assert(std::is_trivially_copyable_v<kernels::PieceSums>);
    if (ranges.empty()) return;
    const size_t nbytes = ranges.size() * sizeof(ranges[0]);
    const void* on_device = uploads(nbytes).begin(ranges.data(), nbytes, stream_);
    kernels::cuda::sum_pieces(static_cast<const kernels::PieceSums*>(on_device), static_cast<int>(ranges.size()),
                              stream_);
    uploads_->finish(stream_);
  }

  void read_masters(const kernels::Segment& segment, float* values) override {
    switch (segment.master_kind) {
      case kernels::Master::weight: return copy(values, segment.weight, static_cast<size_t>(segment.numel) * 4);
      case kernels::Master::full: return copy(values, segment.master, static_cast<size_t>(segment.numel) * 4);
      case kernels::Master::none:
        return convert(segment.weight, segment.weight_dtype, values, DType::f32, segment.numel);
      case kernels::Master::remainder:
        return kernels::cuda::join(segment.weight, segment.master, values, segment.numel, stream_);
    }
  }

  void trust_ratios(const kernels::TrustRatios& args) override { kernels::cuda::trust_ratios(args, stream_); }

  std::unique_ptr<UpdateList> make_update_list(std::vector<kernels::Segment> segments,
                                               std::vector<int> groups) override {
    cuda::use_device(device_);
    return std::make_unique<CudaUpdateList>(kernels::cuda::SegmentTable(segments, groups));
  }

  void update(const UpdateList& list, const PlacedSteps& steps) override {
    const auto& table = static_cast<const CudaUpdateList&>(list).table;
    kernels::cuda::update(table, steps.of_groups, steps.apply, stream_);
  }

  PlacedSteps decide(const kernels::Decision& decision, const StepChoices& choices, void* picked) override {
    return std::visit(
        [&](const auto& steps) {
          using Step = typename std::decay_t<decltype(steps)>::value_type;
          const size_t nbytes = steps.size() * sizeof(Step);
          const void* on_device = uploads(nbytes).begin(steps.data(), nbytes, stream_);
          const kernels::StepChoice<Step> choice{static_cast<const Step*>(on_device), choices.first_steps_before,
                                                 choices.count, static_cast<int64_t>(steps.size()) / choices.count,
                                                 static_cast<Step*>(picked)};
          kernels::cuda::decide(decision, choice, stream_);
          uploads_->finish(stream_);
          return PlacedSteps{choice.picked, &decision.record->applied};
        },
        choices.steps);
  }

  std::unique_ptr<LateRead> make_late_read(size_t nbytes) override {
    cuda::use_device(device_);
    return std::make_unique<CudaRead>(nbytes, device_, stream_, alarms_);
  }

 private:
  // Before a call that holds the host until the stream has come there: where the stream may never come there, it is
  // asked for first.
  void drain() const {
    if (alarms_->empty()) return;
    cuda::Event here;
    here.record(stream_);
    wait_for(here, *alarms_);
  }

  Uploads& uploads(size_t nbytes) {
    if (!uploads_ || uploads_->nbytes() < nbytes) {
      drain();
      cuda::synchronize(stream_);  // the smaller ring may still be read
      uploads_ = std::make_unique<Uploads>(std::max<size_t>(nbytes, 4096), *alarms_);
    }
    return *uploads_;
  }

  int device_;
  cuda::StreamHandle stream_;
  ParallelFor on_host_;
  std::shared_ptr<Alarms> alarms_ = std::make_shared<Alarms>();  // shared with reads and copy streams
  std::unique_ptr<Uploads> uploads_;
};

}  // namespace

std::unique_ptr<Queue> make_cuda_queue(int device, cuda::StreamHandle stream, ParallelFor on_host) {
  return std::make_unique<CudaQueue>(device, stream, std::move(on_host));
}

}  // namespace shoal
