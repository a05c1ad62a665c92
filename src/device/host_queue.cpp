// See host_queue.h.
#include "device/host_queue.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "device/host_copy_streams.h"
#include "device/page_arena.h"
#include "kernels/convert.h"
#include "kernels/decide_body.h"
#include "kernels/segment.h"
#include "plan/memory.h"

namespace shoal {

void in_one_span(int64_t numel, const std::function<void(int64_t, int64_t)>& work) {
  if (numel > 0) work(0, numel);
}

PlacedSteps in_host_memory(const GroupSteps& steps) {
  return std::visit([](const auto& of_groups) { return PlacedSteps{of_groups.data()}; }, steps);
}

namespace {

struct HostUpdateList final : UpdateList {
  std::vector<kernels::Segment> segments;
  std::vector<int> groups;
};

template <class Pointer>
Pointer* advance(Pointer* pointer, int64_t numel, size_t element) {
  using Byte = std::conditional_t<std::is_const_v<Pointer>, const std::byte, std::byte>;
  return pointer == nullptr ? nullptr : reinterpret_cast<Byte*>(pointer) + static_cast<size_t>(numel) * element;
}

// Nothing is late here.
class HostRead final : public LateRead {
 public:
  explicit HostRead(size_t nbytes) : bytes_(nbytes) {}
  void begin(const void* from) override { std::memcpy(bytes_.data(), from, bytes_.size()); }
  bool ready() const override { return true; }
  const void* wait() override { return bytes_.data(); }

 private:
  std::vector<std::byte> bytes_;
};

class HostQueue final : public Queue {
 public:
  explicit HostQueue(ParallelFor parallel_for) : parallel_for_(std::move(parallel_for)) {}

  int device() const override { return -1; }
  void* stream() const override { return nullptr; }

  std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) override {
    return Slab::create(nbytes, Slab::Backing::anonymous, std::move(ledger), kind);
  }

  std::shared_ptr<Slab> allocate_host(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) override {
    return allocate(nbytes, std::move(ledger), kind);
  }

  std::unique_ptr<Arena> make_arena(std::vector<size_t> tenant_nbytes, std::shared_ptr<Ledger> ledger) override {
    return std::make_unique<PageArena>(std::move(tenant_nbytes), kArenaGranule, std::move(ledger));
  }

  void upload(void* to, const void* from_host, size_t nbytes) override { copy(to, from_host, nbytes); }
  void download(void* to_host, const void* from, size_t nbytes) override { copy(to_host, from, nbytes); }

  std::unique_ptr<CopyStreams> make_copy_streams(int) override { return make_host_copy_streams(); }
  void on_host(int64_t numel, const std::function<void(int64_t, int64_t)>& work) override {
    parallel_for_(numel, work);
  }

  void zero(void* memory, size_t nbytes) override {
    if (nbytes > 0) std::memset(memory, 0, nbytes);
  }

  void copy(void* to, const void* from, size_t nbytes) override {
    if (nbytes > 0) std::memcpy(to, from, nbytes);
  }

  void convert(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel) override {
    parallel_for_(numel, [&](int64_t begin, int64_t end) {
      kernels::convert(advance(in, begin, nbytes_of(in_dtype)), in_dtype, advance(out, begin, nbytes_of(out_dtype)),
                       out_dtype, end - begin);
    });
  }

  void add(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel) override {
    parallel_for_(numel, [&](int64_t begin, int64_t end) {
      kernels::add(advance(in, begin, nbytes_of(in_dtype)), in_dtype, advance(out, begin, nbytes_of(out_dtype)),
                   out_dtype, end - begin);
    });
  }

  void quantize(const void* values, DType dtype, int64_t numel, int bits, void* blocks,
                const kernels::ErrorFeedback& feedback) override {
    if (feedback.errors == nullptr) return kernels::quantize(values, dtype, numel, bits, blocks);
    SHOAL_CHECK(dtype == DType::f32, "errors of {}", name_of(dtype));
    kernels::quantize_with_errors(static_cast<const float*>(values), numel, bits, blocks, feedback);
  }
  void dequantize(const void* blocks, int bits, void* values, DType dtype, int64_t numel) override {
    kernels::dequantize(blocks, bits, values, dtype, numel);
  }
  void fold_blocks(const kernels::BlockFold& args) override { kernels::fold_blocks(args); }

  void ordered_fold(const kernels::OrderedFold& args) override { kernels::ordered_fold(args); }

  void sum_squares(const void* values, DType dtype, int64_t numel, int64_t first_run, double* pieces) override {
    kernels::sum_squares(values, dtype, numel, first_run, pieces);
  }

  void sum_pieces(const std::vector<kernels::PieceSums>& ranges) override {
    for (const kernels::PieceSums& range : ranges) kernels::sum_pieces(range);
  }

  void read_masters(const kernels::Segment& segment, float* values) override {
    switch (segment.master_kind) {
      case kernels::Master::weight: return copy(values, segment.weight, static_cast<size_t>(segment.numel) * 4);
      case kernels::Master::full: return copy(values, segment.master, static_cast<size_t>(segment.numel) * 4);
      case kernels::Master::none:
        return convert(segment.weight, segment.weight_dtype, values, DType::f32, segment.numel);
      case kernels::Master::remainder: return kernels::join(segment.weight, segment.master, values, segment.numel);
    }
  }

  void trust_ratios(const kernels::TrustRatios& args) override { kernels::trust_ratios(args); }

  std::unique_ptr<UpdateList> make_update_list(std::vector<kernels::Segment> segments,
                                               std::vector<int> groups) override {
    SHOAL_CHECK_EQ(segments.size(), groups.size());
    auto list = std::make_unique<HostUpdateList>();
    list->segments = std::move(segments);
    list->groups = std::move(groups);
    return list;
  }

  void update(const UpdateList& list, const PlacedSteps& steps) override {
    if (steps.apply != nullptr && *steps.apply == 0) return;
    const auto& host = static_cast<const HostUpdateList&>(list);
    std::visit(
        [&](const auto* of_groups) {
          for (size_t index = 0; index < host.segments.size(); ++index) {
            const kernels::Segment& segment = host.segments[index];
            const auto& step = of_groups[host.groups[index]];
            parallel_for_(segment.numel, [&](int64_t begin, int64_t end) {
              kernels::update(kernels::part_of(segment, begin, end), step);
            });
          }
        },
        steps.of_groups);
  }

  PlacedSteps decide(const kernels::Decision& decision, const StepChoices& choices, void* picked) override {
    kernels::decide(decision);
    return std::visit(
        [&](const auto& steps) {
          using Step = typename std::decay_t<decltype(steps)>::value_type;
          const auto groups = static_cast<int64_t>(steps.size()) / choices.count;
          const kernels::StepChoice<Step> choice{steps.data(), choices.first_steps_before, choices.count, groups,
                                                 static_cast<Step*>(picked)};
          for (int64_t group = 0; group < groups; ++group) kernels::pick(choice, *decision.record, group);
          return PlacedSteps{choice.picked, &decision.record->applied};
        },
        choices.steps);
  }

  std::unique_ptr<LateRead> make_late_read(size_t nbytes) override { return std::make_unique<HostRead>(nbytes); }

 private:
  ParallelFor parallel_for_;
};

}  // namespace

std::unique_ptr<Queue> make_host_queue(ParallelFor parallel_for) {
  return std::make_unique<HostQueue>(std::move(parallel_for));
}

}  // namespace shoal
