#include "kernels/update.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>

#include "base/check.h"
#include "kernels/update_narrow.h"
#include "unit/kernels/awkward.h"
#include "unit/kernels/textbook.h"

namespace shoal::kernels {
namespace {

// One step of some optimizer, on any version of the kernels: every sample of textbook.h.
struct Optimizer {
  std::string name;
  std::function<void(const UpdateKernels&, const Segment&)> run;
  std::function<void(const Kernels&, const Segment&)> run_narrow;  // as update.h does with what is kept in 16 bits
};

const std::vector<Optimizer>& optimizers() {
  static const std::vector<Optimizer> all = [] {
    std::vector<Optimizer> made;
    EveryStep::for_each([&](auto like) {
      for (const auto& step : samples(like)) {
        made.push_back({std::string(optimizer_row(step.kKinds[0]).name) + " " + std::to_string(made.size()),
                        [step](const UpdateKernels& kernels, const Segment& s) { kernels(s, step); },
                        [step](const Kernels& kernels, const Segment& s) { update_narrow(kernels, s, step); }});
      }
    });
    return made;
  }();
  return all;
}

struct Storage {
  DType weight_dtype;
  Master master_kind;
  DType state_dtype = DType::f32;
};
constexpr Storage kStorages[] = {{DType::f32, Master::weight},
                                 {DType::bf16, Master::remainder},
                                 {DType::bf16, Master::full},
                                 {DType::f16, Master::full}};

// The memory of one segment, filled from a seed, so that two of them start equal.
struct Memory {
  Memory(Storage kind, DType grad_dtype, int64_t numel, int64_t offset)
      : storage(kind),
        count(numel),
        weight(kind.weight_dtype, offset, numel, 41),
        master(kind.master_kind == Master::full ? DType::f32 : DType::bf16, 1, numel, 42),
        grad(grad_dtype, offset, numel, 43),
        first(kind.state_dtype, offset, numel, 44),
        second(kind.state_dtype, 2, numel, 45) {}

  Segment segment() {
    return {.numel = count,
            .weight = weight.data(),
            .weight_dtype = storage.weight_dtype,
            .master_kind = storage.master_kind,
            .master = master_nbytes(storage.master_kind) == 0 ? nullptr : master.data(),
            .grad = grad.data(),
            .grad_dtype = grad.dtype(),
            .first = first.data(),
            .second = second.data(),
            .state_dtype = storage.state_dtype};
  }

  Storage storage;
  int64_t count;
  Elements weight, master, grad, first, second;
};

// A split master is compared as the fp32 value it makes; what it means for NaN is then what it means for fp32.
::testing::AssertionResult same_masters(Memory& expected, Memory& actual) {
  if (expected.storage.master_kind != Master::remainder) {
    if (auto weights = same(expected.weight, actual.weight); !weights) return weights << " in the weight";
    return same(expected.master, actual.master) << " in the master";
  }
  for (int64_t i = -1; i <= expected.count; ++i) {
    const auto whole = [i](Memory& m) {
      return whole_of(static_cast<uint16_t*>(m.weight.data())[i], static_cast<uint16_t*>(m.master.data())[i]);
    };
    const float a = whole(expected), b = whole(actual);
    if (bits_of(a) == bits_of(b) || (std::isnan(a) && std::isnan(b))) continue;
    return ::testing::AssertionFailure() << "split master " << i << ": expected " << a << ", got " << b;
  }
  return ::testing::AssertionSuccess();
}

void expect_same(Memory& expected, Memory& actual) {
  ASSERT_TRUE(same_masters(expected, actual));
  ASSERT_TRUE(same(expected.first, actual.first)) << "in the first state";
  ASSERT_TRUE(same(expected.second, actual.second)) << "in the second state";
  ASSERT_TRUE(same(expected.grad, actual.grad)) << "in the gradient";
}

Segment piece(const Segment& whole, int64_t begin, int64_t end) {
  const auto at = [begin](auto* memory, size_t nbytes) -> decltype(memory) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(memory)>>, const char, char>;
    return memory == nullptr ? nullptr : reinterpret_cast<Byte*>(memory) + begin * static_cast<int64_t>(nbytes);
  };
  Segment s = whole;
  s.numel = end - begin;
  s.weight = at(whole.weight, nbytes_of(whole.weight_dtype));
  s.master = at(whole.master, whole.master_kind == Master::full ? 4 : 2);
  s.grad = at(whole.grad, nbytes_of(whole.grad_dtype));
  s.first = at(whole.first, nbytes_of(whole.state_dtype));
  s.second = at(whole.second, nbytes_of(whole.state_dtype));
  return s;
}

template <class Body>
void for_each_combination(Body body) {
  for (const Optimizer& optimizer : optimizers()) {
    for (const Storage& storage : kStorages) {
      for (DType grad_dtype : kDtypes) {
        SCOPED_TRACE(::testing::Message()
                     << optimizer.name << ", weight " << name_of(storage.weight_dtype) << ", master kind "
                     << static_cast<int>(storage.master_kind) << ", gradient " << name_of(grad_dtype));
        body(optimizer, storage, grad_dtype);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

class UpdateIsa : public EveryIsa {};

// One element as the contract has it: widened, updated by the reference, rounded once. See [Note: states of 16 bits].
void update_one_by_hand(const Kernels& reference, const Optimizer& optimizer, const Segment& narrow, int64_t i) {
  float master = load_element(narrow.weight, narrow.weight_dtype, i);
  float first = load_element(narrow.first, narrow.state_dtype, i);
  float second = load_element(narrow.second, narrow.state_dtype, i);
  Segment one = piece(narrow, i, i + 1);
  one.first = &first;
  one.second = &second;
  one.state_dtype = DType::f32;
  if (narrow.master_kind == Master::none) {
    one.weight = &master;
    one.weight_dtype = DType::f32;
    one.master_kind = Master::weight;
    one.master = nullptr;
  }
  optimizer.run(reference.update, one);
  store_element(narrow.first, narrow.state_dtype, i, first);
  store_element(narrow.second, narrow.state_dtype, i, second);
  if (narrow.master_kind == Master::none) store_element(narrow.weight, narrow.weight_dtype, i, master);
}

constexpr Storage kNarrowStorages[] = {
    {DType::f32, Master::weight, DType::bf16}, {DType::bf16, Master::remainder, DType::bf16},
    {DType::f16, Master::full, DType::bf16},   {DType::bf16, Master::none, DType::f32},
    {DType::bf16, Master::none, DType::bf16},  {DType::f16, Master::none, DType::f32},
    {DType::f16, Master::none, DType::f16}};

TEST_P(UpdateIsa, StatesOf16BitsAreWidenedUpdatedAndRoundedOnce) {
  for (const Optimizer& optimizer : optimizers()) {
    for (const Storage& storage : kNarrowStorages) {
      for (const DType grad_dtype : {DType::f32, storage.weight_dtype}) {
        for (const int64_t numel : {0, 1, 17, 1023, 1024, 2051}) {
          SCOPED_TRACE(::testing::Message() << optimizer.name << ", weight " << name_of(storage.weight_dtype)
                                            << ", master kind " << static_cast<int>(storage.master_kind) << ", states "
                                            << name_of(storage.state_dtype) << ", " << numel << " elements");
          Memory expected(storage, grad_dtype, numel, 1), actual(storage, grad_dtype, numel, 1);
          for (int step = 0; step < 2; ++step) {
            for (int64_t i = 0; i < numel; ++i) update_one_by_hand(reference_, optimizer, expected.segment(), i);
            optimizer.run_narrow(*tested_, actual.segment());
          }
          ASSERT_NO_FATAL_FAILURE(expect_same(expected, actual));
        }
      }
    }
  }
}

TEST_P(UpdateIsa, EqualsTheReferenceToTheBit) {
  for_each_combination([&](const Optimizer& optimizer, const Storage& storage, DType grad_dtype) {
    for (int64_t numel : kNumels) {
      for (int64_t offset : kOffsets) {
        SCOPED_TRACE(::testing::Message() << numel << " elements at " << offset);
        Memory expected(storage, grad_dtype, numel, offset), actual(storage, grad_dtype, numel, offset);
        for (int step = 0; step < 2; ++step) {
          optimizer.run(reference_.update, expected.segment());
          optimizer.run(tested_->update, actual.segment());
        }
        ASSERT_NO_FATAL_FAILURE(expect_same(expected, actual));
      }
    }
  });
}

TEST_P(UpdateIsa, AnyCutOfTheSpanAndAnyThreadCountGivesTheSameBits) {
  for_each_combination([&](const Optimizer& optimizer, const Storage& storage, DType grad_dtype) {
    constexpr int64_t kCount = 1000;
    Memory whole(storage, grad_dtype, kCount, 1);
    optimizer.run(tested_->update, whole.segment());
    for (int thread_count : {1, 2, 3, 5}) {
      std::mt19937 random(static_cast<uint32_t>(thread_count));
      std::vector<int64_t> cuts = {0, kCount};
      for (int i = 1; i < thread_count + (thread_count == 1 ? 7 : 0); ++i) cuts.push_back(random() % kCount);
      std::sort(cuts.begin(), cuts.end());
      Memory cut(storage, grad_dtype, kCount, 1);
      std::vector<std::thread> threads;
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        const Segment part = piece(cut.segment(), cuts[i], cuts[i + 1]);
        if (thread_count == 1) {
          optimizer.run(tested_->update, part);
        } else {
          threads.emplace_back([&, part] { optimizer.run(tested_->update, part); });
        }
      }
      for (std::thread& thread : threads) thread.join();
      ASSERT_NO_FATAL_FAILURE(expect_same(whole, cut)) << thread_count << " threads";
    }
  });
}

TEST_P(UpdateIsa, TheOnePassOnStatesOf16BitsGivesTheBitsOfTheBlocks) {
  int passes = 0;
  for (const bool decoupled : {true, false}) {
    const AdamStep step{
        .grad_scale = 0.3f, .lr = 1e-3f, .weight_decay = 0.1f, .decoupled = decoupled, .inv_bias1 = 2.5f};
    for (const Storage& storage : kNarrowStorages) {
      for (const DType grad_dtype : kDtypes) {
        for (const int64_t numel : {0, 1, 9, 17, 64, 1025}) {
          SCOPED_TRACE(::testing::Message()
                       << "weight " << name_of(storage.weight_dtype) << ", master kind "
                       << static_cast<int>(storage.master_kind) << ", states " << name_of(storage.state_dtype)
                       << ", gradient " << name_of(grad_dtype) << ", " << numel << " elements");
          Memory expected(storage, grad_dtype, numel, 1), actual(storage, grad_dtype, numel, 1);
          if (!tested_->update.narrow_adamw(actual.segment(), step)) {
            ASSERT_NO_FATAL_FAILURE(expect_same(expected, actual));  // nothing was done
            continue;
          }
          passes += numel == 17 ? 1 : 0;
          update_narrow(*tested_, expected.segment(), step);
          ASSERT_NO_FATAL_FAILURE(expect_same(expected, actual));
        }
      }
    }
  }
  EXPECT_EQ(passes, 5);  // kinds
}

INSTANTIATE_TEST_SUITE_P(, UpdateIsa, ::testing::Values(Isa::neon, Isa::avx2, Isa::avx512), isa_test_name);

TEST(Update, PublicDoorsRunTheActiveVersion) {
  float weight = 1, grad = 1, first = 0, second = 0;
  const Segment s{.numel = 1, .weight = &weight, .grad = &grad, .first = &first, .second = &second};
  update(s, SgdStep{.lr = 0.25f});
  EXPECT_EQ(weight, 0.75f);
  update(s, AdagradStep{.lr = 0.25f, .eps = 0});
  EXPECT_EQ(weight, 0.5f);
  update(s, LionStep{.lr = 0.25f});
  EXPECT_EQ(weight, 0.25f);
  first = second = 0;
  update(s, AdamStep{.lr = 0.25f, .beta1 = 0, .beta2 = 0, .eps = 0});
  EXPECT_EQ(weight, 0.0f);
}

TEST(Update, PublicDoorsTakeStatesOf16Bits) {
  uint16_t weight = to_bf16(1), first = 0;
  const float grad = 1;
  const Segment s{.numel = 1,
                  .weight = &weight,
                  .weight_dtype = DType::bf16,
                  .master_kind = Master::none,
                  .grad = &grad,
                  .first = &first,
                  .state_dtype = DType::bf16};
  update(s, SgdStep{.lr = 0.25f, .momentum = 0.5f});
  EXPECT_EQ(from_bf16(weight), 0.75f);
  EXPECT_EQ(from_bf16(first), 1.0f);
  update(s, SgdStep{.lr = 0x1p-12f});
  EXPECT_EQ(from_bf16(weight), 0.75f);  // less than half of the last bit: lost
}

TEST(Update, EveryOptimizerNeedsTheStatesOfItsRow) {
  float weight = 1, grad = 1, first = 0, second = 0;
  EveryStep::for_each([&](auto like) {
    SCOPED_TRACE(optimizer_row(like.kKinds[0]).name);
    for (const auto& step : samples(like)) {
      Segment s{.numel = 1, .weight = &weight, .grad = &grad, .first = &first, .second = &second};
      EXPECT_NO_THROW(update(s, step));
      const int states = keeps_states(step) ? optimizer_row(step.kKinds[0]).states() : 0;
      const auto is_refused = [&] {
        try {
          update(s, step);
        } catch (const BrokenPromise&) {
          return true;
        }
        return false;
      };
      s.second = nullptr;
      EXPECT_EQ(is_refused(), states > 1);
      s.first = nullptr;
      EXPECT_EQ(is_refused(), states > 0);
    }
  });
}

TEST(Update, SegmentThatContradictsItselfIsABrokenPromise) {
  float weight = 1, grad = 1, state = 0;
  const Segment good{.numel = 1, .weight = &weight, .grad = &grad, .first = &state, .second = &state};
  const auto refused = [](Segment s) { EXPECT_THROW(update(s, AdamStep{}), BrokenPromise); };
  Segment s = good;
  s.second = nullptr;
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
  s.master_kind = Master::none;  // but fp32
  refused(s);
  s = good;
  s.first = nullptr;
  EXPECT_THROW(update(s, SgdStep{.momentum = 0.9f}), BrokenPromise);
  EXPECT_NO_THROW(update(s, SgdStep{}));
}

}  // namespace
}  // namespace shoal::kernels
