#include "shard/param_slot.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/shard/model_parts.h"

namespace shoal {

using ::testing::HasSubstr;
using testing::message_of;

namespace {

std::shared_ptr<Slab> slab_of(size_t nbytes) {
  return Slab::create(nbytes, Slab::Backing::anonymous, std::make_shared<Ledger>(), MemoryKind::weights);
}

}  // namespace

TEST(ParamSlot, AReleasedParameterThrowsOurMessageAndTheProcessLives) {
  at::Tensor param = at::ones({3, 3}).set_requires_grad(true);
  at::Tensor one = at::ones({1});
  ParamSlot slot(param, "layer.weight", DType::f32);
  ParamSlot slot_of_one(one, "one", DType::f32);
  const std::vector<std::pair<const char*, std::function<void()>>> touches = {{"sum", [&] { param.sum(); }},
                                                                              {"clone", [&] { param.clone(); }},
                                                                              {"norm", [&] { param.norm(); }},
                                                                              {"add", [&] { param.add(1); }},
                                                                              {"mm",
                                                                               [&] {
                                                                                 at::mm(param, at::ones({3, 3}));
                                                                               }},
                                                                              {"add_", [&] { param.detach().add_(1); }},
                                                                              {"copy", [&] {
                                                                                 at::ones({3, 3}).copy_(param);
                                                                               }}};
  for (const auto& [name, touch] : touches) {
    EXPECT_THAT(message_of(touch), HasSubstr("[parameter layer.weight] is released")) << name;
  }
  EXPECT_THAT(message_of([&] { one.item<float>(); }), HasSubstr("[parameter one] is released"));
}

TEST(ParamSlot, AttachesTheParameterAndItsAliasesToOurMemory) {
  const auto first = slab_of(64);
  const auto second = slab_of(64);
  at::Tensor param = at::ones({2, 3});
  ParamSlot slot(param, "w", DType::f32);
  slot.attach(first->data());
  param.fill_(7);
  const at::Tensor alias = param.detach().t();
  EXPECT_EQ(testing::floats_at(first->data(), 7), (std::vector<float>{7, 7, 7, 7, 7, 7, 0}));

  slot.release();
  EXPECT_THAT(message_of([&] { param.sum(); }), HasSubstr("is released"));
  slot.attach(second->data());
  EXPECT_EQ(alias.const_data_ptr(), second->data());
  EXPECT_EQ(param.sum().item<float>(), 0);
}

TEST(ParamSlot, SeesWhatIsWrittenInPlaceWhileItIsAttached) {
  const auto slab = slab_of(64);
  at::Tensor param = at::ones({2, 3}).set_requires_grad(true);
  ParamSlot slot(param, "w", DType::f32);
  EXPECT_FALSE(slot.was_written());
  slot.attach(slab->data());
  param.sum();
  EXPECT_FALSE(slot.was_written());
  param.detach().mul_(2);
  EXPECT_TRUE(slot.was_written());
  slot.release();
  EXPECT_FALSE(slot.was_written());
  slot.attach(slab->data());
  EXPECT_FALSE(slot.was_written());
  param.variable_data().add_(1);
  EXPECT_FALSE(slot.was_written());  // without a trace
  slot.watch();
  EXPECT_FALSE(slot.was_written());
  param.variable_data().add_(1);
  EXPECT_TRUE(slot.was_written());
}

TEST(ParamSlot, TakesAParameterMadeInInferenceMode) {
  const auto slab = slab_of(64);
  at::Tensor param;
  {
    const c10::InferenceMode guard;
    param = at::ones({2, 3});
  }
  ASSERT_TRUE(param.is_inference());
  ParamSlot slot(param, "w", DType::f32);
  slot.attach(slab->data());
  EXPECT_FALSE(slot.was_written());
  slot.watch();
  EXPECT_FALSE(slot.was_written());
  slab->data()[0] = std::byte{1};
  EXPECT_TRUE(slot.was_written());
}

TEST(ParamSlot, SeesOneBitOfMillions) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    constexpr int64_t kNumel = (int64_t{1} << 22) + 3;
    const auto slab = slab_of(static_cast<size_t>(kNumel) * nbytes_of(dtype));
    at::Tensor param = at::ones({kNumel});
    ParamSlot slot(param, "w", dtype);
    slot.attach(slab->data());
    slot.watch();
    EXPECT_FALSE(slot.was_written());
    slab->data()[slab->nbytes() - 1] = std::byte{1};
    EXPECT_TRUE(slot.was_written()) << name_of(dtype);
  }
}

TEST(ParamSlot, SeesElementsThatChangedPlacesAndSigns) {
  const auto slab = slab_of(8 * sizeof(float));
  auto* values = reinterpret_cast<float*>(slab->data());
  at::Tensor param = at::ones({4, 2});
  ParamSlot slot(param, "w", DType::f32);
  for (const bool swaps : {true, false}) {
    for (int i = 0; i < 8; ++i) values[i] = i % 2 == 0 ? 1.0F : -1.0F;
    slot.attach(slab->data());
    slot.watch();
    EXPECT_FALSE(slot.was_written());
    if (swaps) {
      std::swap(values[0], values[1]);
    } else {
      for (int i = 0; i < 8; ++i) values[i] = -values[i];
    }
    EXPECT_TRUE(slot.was_written());
  }
}

TEST(ParamSlot, SeesOtherStridesOverItsOwnMemory) {
  const auto slab = slab_of(4 * sizeof(float));
  at::Tensor param = at::ones({2, 2});
  ParamSlot slot(param, "w", DType::f32);
  slot.attach(slab->data());
  slot.check_unchanged();
  param.set_data(param.t());
  EXPECT_TRUE(slot.was_written());
  EXPECT_THROW(slot.check_unchanged(), Error);
  slot.release();
  slot.attach(slab->data());
  slot.check_unchanged();
  EXPECT_TRUE(param.is_contiguous());
}

TEST(ParamSlot, SeesThatItsStorageHoldsOtherMemory) {
  const auto slab = slab_of(4 * sizeof(float));
  at::Tensor param = at::ones({2, 2}), shared = at::zeros({2, 2});
  ParamSlot slot(param, "w", DType::f32);
  slot.attach(slab->data());
  param.storage().unsafeGetStorageImpl()->set_data_ptr(at::DataPtr(shared.data_ptr(), at::kCPU));
  EXPECT_TRUE(slot.was_written());
  EXPECT_THROW(slot.check_unchanged(), Error);
}

TEST(ParamSlot, AliasesOfOwnedMemoryKeepItAndItsValues) {
  at::Tensor param = at::ones({2, 2});
  ParamSlot slot(param, "w", DType::f32);
  auto slab = slab_of(4 * sizeof(float));
  const std::weak_ptr<Slab> watch = slab;
  const auto other = slab_of(4 * sizeof(float));
  std::byte* const data = slab->data();
  slot.attach(data, std::move(slab));
  param.fill_(3);
  at::Tensor kept = param.detach();
  slot.release();
  slot.attach(other->data());
  param.fill_(4);
  EXPECT_EQ(kept.sum().item<float>(), 12);
  EXPECT_EQ(param.sum().item<float>(), 16);
  EXPECT_FALSE(watch.expired());
  kept.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(ParamSlot, HasItsShapeAndPlainStridesAgainAfterOtherDataWasPutInItsPlace) {
  const auto slab = slab_of(64);
  at::Tensor param = at::ones({2, 3});
  ParamSlot slot(param, "w", DType::f32);
  for (const at::Tensor& other : {at::ones({3, 2}).t(), at::ones({7}).slice(0, 1).reshape({2, 3}), at::ones({4, 1})}) {
    slot.attach(slab->data());
    slot.watch();
    EXPECT_FALSE(slot.was_written());
    param.set_data(other);
    EXPECT_TRUE(slot.was_written());
    slot.release();
    slot.check_unchanged();
    slot.attach(slab->data());
    EXPECT_EQ(param.sizes(), at::IntArrayRef({2, 3}));
    EXPECT_TRUE(param.is_contiguous());
    EXPECT_EQ(param.const_data_ptr(), slab->data());
    slot.release();
  }
}

TEST(ParamSlot, KeepsTheOwnerOfItsMemoryAsLongAsTheParameterLives) {
  auto slab = slab_of(64);
  const std::weak_ptr<Slab> watch = slab;
  at::Tensor param = at::ones({4});
  {
    ParamSlot slot(param, "w", DType::f32);
    slot.attach(slab->data(), slab);
  }
  slab.reset();
  ASSERT_FALSE(watch.expired());
  EXPECT_EQ(param.sum().item<float>(), 0);
  param = at::Tensor();
  EXPECT_TRUE(watch.expired());
}

TEST(ParamSlot, ChangesTheTensorToTheWantedDtypeAndPlainStrides) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const at::Tensor base = at::arange(12, at::kFloat).reshape({3, 4});
    at::Tensor param = base.t().detach().slice(0, 1).set_requires_grad(true);
    ParamSlot slot(param, "w", dtype);
    EXPECT_EQ(param.scalar_type(), to_scalar_type(dtype));
    EXPECT_EQ(param.sizes(), at::IntArrayRef({3, 3}));
    EXPECT_TRUE(param.is_contiguous());
    EXPECT_TRUE(param.requires_grad());
    EXPECT_TRUE(param.is_leaf());
    const auto slab = slab_of(64);
    slot.attach(slab->data());
    EXPECT_EQ(param.sum().item<float>(), 0);
    slot.release();
  }
}

TEST(ParamSlot, TakesParametersOfNoElementAndOfOne) {
  for (const int64_t numel : {0, 1}) {
    const auto slab = slab_of(64);
    at::Tensor param = at::ones({numel, 1});
    ParamSlot slot(param, "w", DType::bf16);
    slot.attach(slab->data());
    EXPECT_EQ(param.sum().item<float>(), 0);
    EXPECT_EQ(slot.numel(), numel);
    slot.release();
  }
}

TEST(ParamSlot, NoticesAParameterThatWasReplacedOrCast) {
  const auto slab = slab_of(64);
  const auto changed_by = [&](const std::function<void(at::Tensor&)>& change) {
    at::Tensor param = at::ones({4});
    ParamSlot slot(param, "w", DType::f32);
    slot.attach(slab->data());
    EXPECT_EQ(message_of([&] { slot.check_unchanged(); }), "");
    change(param);
    return message_of([&] { slot.check_unchanged(); });
  };
  EXPECT_THAT(changed_by([](at::Tensor& param) { param.set_data(param.to(at::kBFloat16)); }),
              HasSubstr("[parameter w] was replaced, moved or cast"));
  EXPECT_THAT(changed_by([](at::Tensor& param) { param.set_data(at::zeros({4})); }), HasSubstr("was replaced"));
  EXPECT_THAT(changed_by([](at::Tensor& param) { param.set_data(at::zeros({5})); }), HasSubstr("was replaced"));
  EXPECT_EQ(changed_by([](at::Tensor& param) { param.fill_(3); }), "");
}

TEST(ParamSlot, NoticesAReleasedParameterThatWasReplaced) {
  at::Tensor param = at::ones({4});
  ParamSlot slot(param, "w", DType::f32);
  EXPECT_EQ(message_of([&] { slot.check_unchanged(); }), "");
  param.set_data(at::zeros({4}));
  EXPECT_THAT(message_of([&] { slot.check_unchanged(); }), HasSubstr("was replaced"));
}

TEST(ParamSlot, LeavesARecordThatKeepsTheMemoryUntilTheParameterIsTakenAgain) {
  auto slab = slab_of(512);
  const std::weak_ptr<Slab> watch = slab;
  at::Tensor param = at::ones({4});
  EXPECT_EQ(find_shard_record(param), nullptr);
  {
    ParamSlot slot(param, "w", DType::f32);
    EXPECT_EQ(find_shard_record(param), nullptr);
    ShardRecord record;
    record.home = make_resident_home(slab);
    record.piece = {0, 128, 4};
    record.mesh = 3;
    slot.leave(std::move(record));
  }
  const ShardRecord* found = find_shard_record(param);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->fetch(), slab->data());
  EXPECT_EQ(found->piece.offset, 128);
  EXPECT_EQ(found->world(), 3);
  EXPECT_THAT(message_of([&] { param.sum(); }), HasSubstr("[parameter w] is released"));

  slab.reset();
  EXPECT_FALSE(watch.expired());
  const ParamSlot next(param, "w", DType::f32);
  EXPECT_TRUE(watch.expired());
}

TEST(ParamSlot, RefusesDtypesItDoesNotStore) {
  EXPECT_EQ(to_dtype(at::kHalf, "w"), DType::f16);
  EXPECT_THAT(message_of([] { to_dtype(at::kDouble, "w"); }), HasSubstr("[parameter w] has dtype Double"));
  EXPECT_THAT(message_of([] { to_dtype(at::kLong, "ids"); }), HasSubstr("[parameter ids] has dtype Long"));
}

}  // namespace shoal
