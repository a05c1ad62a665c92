#include "models/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal::models {
namespace {

std::vector<int64_t> values(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.flatten().to(at::kLong);
  return {whole.const_data_ptr<int64_t>(), whole.const_data_ptr<int64_t>() + whole.numel()};
}

TEST(Documents, PositionsBeginAnewAndNumbersCountOverAllRows) {
  const auto documents = make_documents({{3, 1}, {4}, {1, 1, 2}}, 4, at::kCPU);
  EXPECT_EQ(documents->lengths, (std::vector<int64_t>{3, 1, 4, 1, 1, 2}));
  EXPECT_EQ(documents->positions.sizes().vec(), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(values(documents->positions), (std::vector<int64_t>{0, 1, 2, 0, 0, 1, 2, 3, 0, 0, 0, 1}));
  EXPECT_EQ(values(documents->numbers), (std::vector<int64_t>{0, 0, 0, 1, 2, 2, 2, 2, 3, 4, 5, 5}));
}

TEST(Documents, LengthsThatDoNotFillTheRowBreakAPromise) {
  EXPECT_ANY_THROW(make_documents({{3}}, 4, at::kCPU));
  EXPECT_ANY_THROW(make_documents({{3, 2}}, 4, at::kCPU));
  EXPECT_ANY_THROW(make_documents({{4, 0}}, 4, at::kCPU));
}

}  // namespace
}  // namespace shoal::models
