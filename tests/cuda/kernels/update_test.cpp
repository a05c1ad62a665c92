#include "kernels/cuda/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "cuda/kernels/kernel_test.h"
#include "kernels/update_narrow.h"
#include "unit/kernels/textbook.h"

namespace shoal::kernels {
namespace {

template <class Step>
void run_on_cpu(const Kernels& kernels, const Segment& s, const Step& step) {
  is_narrow(s) ? update_narrow(kernels, s, step) : kernels.update(s, step);
}

// Beside the samples of every optimizer: three parameter groups each, of what the options can be.
const std::vector<AdamStep> kAdamSteps = {
    {.grad_scale = 0.3f, .lr = 1e-3f, .weight_decay = 0.1f, .inv_bias1 = 2.5f, .inv_sqrt_bias2 = 7.1f},
    {.grad_scale = 1e-4f, .lr = 1e-3f, .weight_decay = 0.1f, .decoupled = false, .inv_bias1 = 1.1f},
    {.grad_scale = 0.7f, .lr = 0x1p-101f, .beta1 = 0.95f, .beta2 = 0.99f, .weight_decay = 0.01f}};  // below kLeastRate
const std::vector<AdamStep> kOddAdamSteps = {
    {.lr = 0, .weight_decay = 0.1f},
    {.lr = 0.1f, .beta1 = 0, .beta2 = 0, .eps = 0},
    {.grad_scale = 0, .lr = 0x1p-100f, .eps = 1e-30f, .weight_decay = 1, .decoupled = false}};
const std::vector<SgdStep> kSgdSteps = {
    {.lr = 0.1f, .momentum = 0.9f, .dampening = 0.2f, .weight_decay = 0.01f},
    {.lr = 0.1f, .momentum = 0.9f, .dampening = 0.2f, .first_step = true},
    {.grad_scale = 0.3f, .lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true}};
const std::vector<SgdStep> kPlainSgdSteps = {
    {.grad_scale = 0.3f, .lr = 0.1f}, {.lr = 0.01f, .weight_decay = 0.1f}, {.grad_scale = 2, .lr = 0}};
const std::vector<AdagradStep> kAdagradSteps = {
    {.grad_scale = 0.3f, .lr = 0.1f, .weight_decay = 0.01f}, {.lr = 0.01f, .eps = 0}, {.grad_scale = 5, .lr = 1e-4f}};
const std::vector<LionStep> kLionSteps = {{.grad_scale = 0.3f, .lr = 1e-3f, .weight_decay = 0.1f},
                                          {.lr = 1e-4f, .beta1 = 0.95f, .beta2 = 0.98f},
                                          {.grad_scale = 0, .lr = 0.1f, .weight_decay = 1}};

struct Storage {
  DType weight_dtype;
  Master master_kind;
  DType state_dtype = DType::f32;
};
constexpr Storage kStorages[] = {{DType::f32, Master::weight},
                                 {DType::bf16, Master::remainder},
                                 {DType::bf16, Master::full},
                                 {DType::f16, Master::full},
                                 {DType::f32, Master::weight, DType::bf16},
                                 {DType::bf16, Master::remainder, DType::bf16},
                                 {DType::f16, Master::full, DType::bf16},
                                 {DType::bf16, Master::none},
                                 {DType::bf16, Master::none, DType::bf16},
                                 {DType::f16, Master::none},
                                 {DType::f16, Master::none, DType::f16}};

// `shift` is between the alignments of a segment's arrays: 0 lets them be read as vectors, 1 does not.
struct Shape {
  Storage storage;
  DType grad_dtype;
  int64_t numel, offset, shift;
};

class CudaUpdate : public KernelOnGpu {
 protected:
  // A segment's memory on the host, and its copy on the device.
  struct Memory {
    Memory(CudaUpdate& test, const Shape& s)
        : shape(s),
          weight(s.storage.weight_dtype, s.offset, s.numel, 41),
          master(s.storage.master_kind == Master::full ? DType::f32 : DType::bf16, (s.offset + s.shift) % 4, s.numel,
                 42),
          grad(s.grad_dtype, (s.offset + 2 * s.shift) % 4, s.numel, 43),
          first(s.storage.state_dtype, (s.offset + 3 * s.shift) % 4, s.numel, 44),
          second(s.storage.state_dtype, s.offset, s.numel, 45),
          device_weight(test, weight, s.numel),
          device_master(test, master, s.numel),
          device_grad(test, grad, s.numel),
          device_first(test, first, s.numel),
          device_second(test, second, s.numel) {}

    Segment on_cpu() { return segment(weight, master, grad, first, second); }
    Segment on_gpu() { return segment(device_weight, device_master, device_grad, device_first, device_second); }

    Shape shape;
    Elements weight, master, grad, first, second;
    Copy device_weight, device_master, device_grad, device_first, device_second;

   private:
    template <class Place>
    Segment segment(Place& w, Place& m, Place& g, Place& one, Place& two) {
      return {.numel = shape.numel,
              .weight = w.data(),
              .weight_dtype = shape.storage.weight_dtype,
              .master_kind = shape.storage.master_kind,
              .master = master_nbytes(shape.storage.master_kind) == 0 ? nullptr : m.data(),
              .grad = g.data(),
              .grad_dtype = shape.grad_dtype,
              .first = one.data(),
              .second = two.data(),
              .state_dtype = shape.storage.state_dtype};
    }
  };
  using Memories = std::vector<std::unique_ptr<Memory>>;

  // A split master is compared as the fp32 value it makes; where that is NaN, the weight must be one too.
  static ::testing::AssertionResult same_masters(Memory& m, Elements& weight, Elements& master) {
    if (m.shape.storage.master_kind != Master::remainder) {
      if (auto weights = same(m.weight, weight); !weights) return weights << " in the weight";
      return same(m.master, master) << " in the master";
    }
    for (int64_t i = -1; i <= m.shape.numel; ++i) {
      const auto half = [i](Elements& e) { return static_cast<uint16_t*>(e.data())[i]; };
      const float a = whole_of(half(m.weight), half(m.master)), b = whole_of(half(weight), half(master));
      if (bits_of(a) == bits_of(b)) continue;
      if (std::isnan(a) && std::isnan(b) && std::isnan(from_bf16(half(weight)))) continue;
      return ::testing::AssertionFailure() << "split master " << i << ": expected " << a << ", got " << b
                                           << " with the weight " << from_bf16(half(weight));
    }
    return ::testing::AssertionSuccess();
  }

  static void expect_same(Memory& m) {
    SCOPED_TRACE(::testing::Message() << "weight " << name_of(m.shape.storage.weight_dtype) << ", master kind "
                                      << static_cast<int>(m.shape.storage.master_kind) << ", states "
                                      << name_of(m.shape.storage.state_dtype) << ", gradient "
                                      << name_of(m.shape.grad_dtype) << ", " << m.shape.numel << " elements at "
                                      << m.shape.offset << ", shifted by " << m.shape.shift);
    Elements weight = m.device_weight.now(), master = m.device_master.now();
    ASSERT_TRUE(same_masters(m, weight, master));
    ASSERT_TRUE(same(m.first, m.device_first.now())) << "in the first state";
    ASSERT_TRUE(same(m.second, m.device_second.now())) << "in the second state";
    ASSERT_TRUE(same(m.grad, m.device_grad.now())) << "in the gradient";
  }

  // Two steps over all of them in one table, segments dealt to the groups in turn.
  template <class Step>
  void expect_equal_updates(const char* name, const std::vector<Step>& steps, const std::vector<Shape>& shapes) {
    SCOPED_TRACE(name);
    Memories memories;
    std::vector<Segment> segments;
    std::vector<int> groups;
    for (const Shape& shape : shapes) {
      memories.push_back(std::make_unique<Memory>(*this, shape));
      segments.push_back(memories.back()->on_gpu());
      groups.push_back(static_cast<int>(groups.size() % steps.size()));
    }
    const Step* device_steps = take_copy(steps);
    const int* apply = take_copy(std::vector<int>{1});
    const cuda::SegmentTable table(segments, groups);
    for (int step = 0; step < 2; ++step) {
      cuda::update(table, device_steps, step == 0 ? apply : nullptr, nullptr);
      for (size_t i = 0; i < memories.size(); ++i) {
        run_on_cpu(reference_, memories[i]->on_cpu(), steps[static_cast<size_t>(groups[i])]);
      }
    }
    for (auto& memory : memories) ASSERT_NO_FATAL_FAILURE(expect_same(*memory));
    reset();
  }

  void expect_equal_updates_of_all(const std::vector<Shape>& shapes) {
    EveryStep::for_each([&](auto like) {
      if (HasFatalFailure()) return;
      expect_equal_updates(optimizer_row(like.kKinds[0]).name.data(), samples(like), shapes);
    });
    if (HasFatalFailure()) return;
    ASSERT_NO_FATAL_FAILURE(expect_equal_updates("adam", kAdamSteps, shapes));
    ASSERT_NO_FATAL_FAILURE(expect_equal_updates("adam, odd", kOddAdamSteps, shapes));
    ASSERT_NO_FATAL_FAILURE(expect_equal_updates("sgd", kSgdSteps, shapes));
    ASSERT_NO_FATAL_FAILURE(expect_equal_updates("sgd without momentum", kPlainSgdSteps, shapes));
    ASSERT_NO_FATAL_FAILURE(expect_equal_updates("adagrad", kAdagradSteps, shapes));
    ASSERT_NO_FATAL_FAILURE(expect_equal_updates("lion", kLionSteps, shapes));
  }
};

TEST_F(CudaUpdate, EqualsTheReferenceToTheBit) {
  for (const Storage& storage : kStorages) {
    for (DType grad_dtype : kDtypes) {
      std::vector<Shape> shapes;
      for (int64_t numel : device_numels()) {
        for (int64_t offset : kEveryOffset) shapes.push_back({storage, grad_dtype, numel, offset, 0});
        shapes.push_back({storage, grad_dtype, numel, numel % 4, 1});
      }
      ASSERT_NO_FATAL_FAILURE(expect_equal_updates_of_all(shapes));
    }
  }
}

TEST_F(CudaUpdate, OneTableMayHoldEveryKindOfSegment) {
  std::vector<Shape> shapes;
  for (int64_t numel : {1000, 0, 4099, 1}) {
    for (const Storage& storage : kStorages) {
      for (DType grad_dtype : kDtypes) shapes.push_back({storage, grad_dtype, numel, numel % 3, numel % 2});
    }
  }
  ASSERT_NO_FATAL_FAILURE(expect_equal_updates_of_all(shapes));
}

TEST_F(CudaUpdate, AMillionElementsEqualTheReference) {
  if (tests_are_small()) GTEST_SKIP() << "SHOAL_TEST_SIZE=small";
  for (const Storage& storage : kStorages) {
    ASSERT_NO_FATAL_FAILURE(expect_equal_updates(
        "adam", kAdamSteps, {{storage, DType::bf16, 1'000'003, 3, 0}, {storage, DType::f32, 100'001, 1, 1}}));
  }
}

// Shards so large that a chunk is several tiles: the same contents over and over, and the same answer everywhere.
TEST_F(CudaUpdate, LargeShardsInChunksOfManyTiles) {
  if (tests_are_small()) GTEST_SKIP() << "SHOAL_TEST_SIZE=small";
  constexpr int64_t kPeriod = 65'536;
  const AdamStep step{.grad_scale = 0.5f, .lr = 1e-3f, .weight_decay = 0.1f, .inv_bias1 = 2, .inv_sqrt_bias2 = 3};
  Elements weight(DType::bf16, 0, kPeriod, 1), master(DType::bf16, 0, kPeriod, 2), grad(DType::bf16, 0, kPeriod, 3);
  Elements first(DType::f32, 0, kPeriod, 4), second(DType::f32, 0, kPeriod, 5);
  for (const int64_t periods : {131, 300, 520}) {  // 2, 4 and 8 tiles a chunk
    for (const int64_t skip : {0, 3}) {            // elements before the segment
      const int64_t whole = periods * kPeriod, numel = whole - skip - 5;
      const auto repeat = [&](Elements& elements) {
        const auto nbytes = static_cast<size_t>(kPeriod) * nbytes_of(elements.dtype());
        void* device = take(nbytes * static_cast<size_t>(periods));
        for (int64_t k = 0; k < periods; ++k) {
          check(cudaMemcpy(static_cast<char*>(device) + static_cast<size_t>(k) * nbytes, elements.data(), nbytes,
                           cudaMemcpyHostToDevice),
                "copy to the device");
        }
        return static_cast<char*>(device);
      };
      char *w = repeat(weight), *m = repeat(master), *g = repeat(grad), *one = repeat(first), *two = repeat(second);
      const Segment segment{.numel = numel,
                            .weight = w + 2 * skip,
                            .weight_dtype = DType::bf16,
                            .master_kind = Master::remainder,
                            .master = m + 2 * skip,
                            .grad = g + 2 * skip,
                            .grad_dtype = DType::bf16,
                            .first = reinterpret_cast<float*>(one) + skip,
                            .second = reinterpret_cast<float*>(two) + skip};
      cuda::update(cuda::SegmentTable({segment}, {0}), take_copy(std::vector<AdamStep>{step}), nullptr, nullptr);

      Elements new_weight = weight, new_master = master, new_first = first, new_second = second;
      reference_.update(Segment{.numel = kPeriod,
                                .weight = new_weight.data(),
                                .weight_dtype = DType::bf16,
                                .master_kind = Master::remainder,
                                .master = new_master.data(),
                                .grad = grad.data(),
                                .grad_dtype = DType::bf16,
                                .first = new_first.floats(),
                                .second = new_second.floats()},
                        step);
      Elements period_weight = weight, period_master = master, period_first = first, period_second = second;
      for (int64_t k = 0; k < periods; ++k) {
        const auto get = [k](Elements& to, const char* device) {
          const auto nbytes = static_cast<size_t>(kPeriod) * nbytes_of(to.dtype());
          read(to.data(), device + static_cast<size_t>(k) * nbytes, nbytes);
        };
        get(period_weight, w);
        get(period_master, m);
        get(period_first, one);
        get(period_second, two);
        for (int64_t i = 0; i < kPeriod; ++i) {
          const int64_t at = k * kPeriod + i;
          const bool updated = at >= skip && at < skip + numel;
          const auto value = [i](Elements& high, Elements& low) {
            return whole_of(static_cast<uint16_t*>(high.data())[i], static_cast<uint16_t*>(low.data())[i]);
          };
          const auto equal = [](float a, float b) {
            return bits_of(a) == bits_of(b) || (std::isnan(a) && std::isnan(b));
          };
          ASSERT_TRUE(equal(value(period_weight, period_master),
                            updated ? value(new_weight, new_master) : value(weight, master)))
              << "weight " << at << " of " << numel << " behind " << skip;
          ASSERT_TRUE(equal(period_first.floats()[i], (updated ? new_first : first).floats()[i])) << "first " << at;
          ASSERT_TRUE(equal(period_second.floats()[i], (updated ? new_second : second).floats()[i])) << "second " << at;
        }
      }
      reset();
    }
  }
}

// A shard of very many parameters of odd sizes, one behind the other.
TEST_F(CudaUpdate, ManySmallSegmentsOfOneShard) {
  const int count = tests_are_small() ? 200 : 20'000;
  std::mt19937 random(9);
  std::vector<int64_t> numels;
  int64_t whole = 0;
  for (int i = 0; i < count; ++i) {
    numels.push_back(i % 50 == 0 ? static_cast<int64_t>(random() % 3000) : static_cast<int64_t>(random() % 40));
    whole += numels.back();
  }
  Memory memory(*this, {{DType::bf16, Master::remainder}, DType::bf16, whole, 0, 0});
  const Segment on_gpu = memory.on_gpu(), on_cpu = memory.on_cpu();
  const auto part = [](Segment s, int64_t begin, int64_t numel) {
    s.numel = numel;
    s.weight = static_cast<uint16_t*>(s.weight) + begin;
    s.master = static_cast<uint16_t*>(s.master) + begin;
    s.grad = static_cast<const uint16_t*>(s.grad) + begin;
    s.first = static_cast<float*>(s.first) + begin;
    s.second = static_cast<float*>(s.second) + begin;
    return s;
  };
  std::vector<Segment> segments;
  std::vector<int> groups;
  int64_t begin = 0;
  for (int64_t numel : numels) {
    groups.push_back(static_cast<int>(random() % 3));
    segments.push_back(part(on_gpu, begin, numel));
    reference_.update(part(on_cpu, begin, numel), kAdamSteps[static_cast<size_t>(groups.back())]);
    begin += numel;
  }
  cuda::SegmentTable table({}, {});
  table = cuda::SegmentTable(segments, groups);
  EXPECT_EQ(table.batches().size(), 1u);
  cuda::update(table, take_copy(kAdamSteps), nullptr, nullptr);
  ASSERT_NO_FATAL_FAILURE(expect_same(memory));
}

TEST_F(CudaUpdate, ApplyZeroLeavesEveryByteAsItIs) {
  Memories memories;
  std::vector<Segment> segments;
  for (const Storage& storage : kStorages) {
    for (int64_t shift : {0, 1}) {
      memories.push_back(std::make_unique<Memory>(*this, Shape{storage, DType::f32, 3001, 1, shift}));
      segments.push_back(memories.back()->on_gpu());
    }
  }
  const cuda::SegmentTable table(segments, std::vector<int>(segments.size(), 0));
  const int* apply = take_copy(std::vector<int>{0});
  EveryStep::for_each([&](auto like) { cuda::update(table, take_copy(samples(like)), apply, nullptr); });
  for (auto& m : memories) {
    const auto untouched = [](const Elements& expected, const Elements& actual) {
      for (int64_t i = 0; i < expected.count(); ++i) ASSERT_EQ(expected.bits(i), actual.bits(i)) << i;
    };
    ASSERT_NO_FATAL_FAILURE(untouched(m->weight, m->device_weight.now()));
    ASSERT_NO_FATAL_FAILURE(untouched(m->master, m->device_master.now()));
    ASSERT_NO_FATAL_FAILURE(untouched(m->first, m->device_first.now()));
    ASSERT_NO_FATAL_FAILURE(untouched(m->second, m->device_second.now()));
  }
}

TEST_F(CudaUpdate, AWeightWhoseMasterIsNanIsNan) {
  constexpr int64_t kCount = 9;
  Memory memory(*this, {{DType::bf16, Master::remainder}, DType::f32, kCount, 0, 0});
  const std::vector<float> nans(kCount, NAN);
  Segment segment = memory.on_gpu();
  segment.grad = take_copy(nans);
  cuda::update(cuda::SegmentTable({segment}, {0}), take_copy(kAdamSteps), nullptr, nullptr);
  Elements weight = memory.device_weight.now();
  for (int64_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(std::isnan(from_bf16(static_cast<uint16_t*>(weight.data())[i]))) << i;
  }
}

TEST_F(CudaUpdate, PlainSgdNeedsNoState) {
  Memory memory(*this, {{DType::f32, Master::weight}, DType::f32, 77, 1, 0});
  Segment on_gpu = memory.on_gpu(), on_cpu = memory.on_cpu();
  on_gpu.first = on_gpu.second = on_cpu.first = on_cpu.second = nullptr;
  cuda::update(cuda::SegmentTable({on_gpu}, {0}), take_copy(kPlainSgdSteps), nullptr, nullptr);
  reference_.update(on_cpu, kPlainSgdSteps[0]);
  ASSERT_NO_FATAL_FAILURE(expect_same(memory));
}

TEST_F(CudaUpdate, RunsOnTheStreamItIsGiven) {
  Memory memory(*this, {{DType::f32, Master::weight}, DType::f32, 1001, 0, 0});
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  const cuda::SegmentTable table({memory.on_gpu()}, {0});
  int* apply = take_copy(std::vector<int>{0});
  const LionStep* steps = take_copy(kLionSteps);
  check(cudaDeviceSynchronize(), "the copies");  // the stream does not wait for the default one
  // The flag is set on the stream itself: an update on another one would most likely not see it.
  check(cudaMemsetAsync(apply, 1, sizeof(int), stream), "cudaMemsetAsync");
  cuda::update(table, steps, apply, stream);
  check(cudaStreamSynchronize(stream), "the update");
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  reference_.update(memory.on_cpu(), kLionSteps[0]);
  ASSERT_NO_FATAL_FAILURE(expect_same(memory));
}

TEST(CudaUpdateArguments, SegmentThatContradictsItselfIsABrokenPromise) {
  float weight = 1, grad = 1, state = 0;
  const Segment good{.numel = 1, .weight = &weight, .grad = &grad, .first = &state, .second = &state};
  const auto refused = [](const Segment& s, const std::vector<int>& groups = {0}) {
    EXPECT_THROW(cuda::SegmentTable({s}, groups), BrokenPromise);
  };
  refused(good, {});
  refused(good, {-1});
  Segment s = good;
  s.numel = -1;
  refused(s);
  s = good;
  s.grad = nullptr;
  refused(s);
  s = good;
  s.weight_dtype = DType::bf16;  // its own master, but not fp32
  refused(s);
  s = good;
  s.master = &state;
  refused(s);
  s = good;
  s.master_kind = Master::remainder;
  s.weight_dtype = DType::f16;  // only bf16 has a remainder
  s.master = &state;
  refused(s);
  s = good;
  s.first = reinterpret_cast<float*>(reinterpret_cast<char*>(&state) + 2);  // between two elements
  refused(s);
}

TEST(CudaUpdateArguments, AnEmptyTableIsNoLaunchAndNoMemory) {
  const cuda::SegmentTable table({{}, {}}, {0, 1});
  EXPECT_EQ(table.nbytes(), 0);
  EXPECT_TRUE(table.batches().empty());
  EXPECT_NO_THROW(cuda::update(table, static_cast<const AdamStep*>(nullptr), nullptr, nullptr));
}

TEST_F(CudaUpdate, AnOptimizerWithoutItsStatesIsABrokenPromise) {
  Memory memory(*this, {{DType::f32, Master::weight}, DType::f32, 5, 0, 0});
  Segment segment = memory.on_gpu();
  segment.second = nullptr;
  const cuda::SegmentTable no_second({segment}, {0});
  segment.first = nullptr;
  const cuda::SegmentTable no_first({segment}, {0});
  EveryStep::for_each([&](auto like) {
    using Step = decltype(like);
    SCOPED_TRACE(optimizer_row(Step::kKinds[0]).name);
    if (kStatesNeedMomentum<Step>) return;
    const Step* none = nullptr;
    if (kStates<Step> != 0) {
      EXPECT_THROW(cuda::update(no_first, none, nullptr, nullptr), BrokenPromise);
    }
    if (kStates<Step> == 2) {
      EXPECT_THROW(cuda::update(no_second, none, nullptr, nullptr), BrokenPromise);
    }
  });
}

}  // namespace
}  // namespace shoal::kernels
