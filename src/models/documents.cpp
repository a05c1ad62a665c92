// See documents.h.
#include "models/documents.h"

#include <ATen/ops/empty.h>

#include "base/check.h"

namespace shoal::models {

std::shared_ptr<const Documents> make_documents(const std::vector<std::vector<int64_t>>& rows, int64_t time,
                                                at::Device device) {
  auto made = std::make_shared<Documents>();
  const auto batch = static_cast<int64_t>(rows.size());
  // Pinned, so that nobody waits for the copies to a GPU.
  const auto on_host = [&](at::ScalarType dtype) { return at::TensorOptions(dtype).pinned_memory(device.is_cuda()); };
  const at::Tensor positions = at::empty({batch, time}, on_host(at::kLong));
  const at::Tensor numbers = at::empty({batch, time}, on_host(at::kLong));
  auto* position = positions.mutable_data_ptr<int64_t>();
  auto* number = numbers.mutable_data_ptr<int64_t>();
  for (const std::vector<int64_t>& row : rows) {
    int64_t taken = 0;
    for (const int64_t length : row) {
      SHOAL_CHECK(length > 0);
      taken += length;
      SHOAL_CHECK(taken <= time, "documents of {} tokens in a row of {}", taken, time);
      for (int64_t i = 0; i < length; ++i) {
        *position++ = i;
        *number++ = static_cast<int64_t>(made->lengths.size());
      }
      made->lengths.push_back(length);
    }
    SHOAL_CHECK_EQ(taken, time);
  }
  made->positions = positions.to(device, /*non_blocking=*/true);
  made->numbers = numbers.to(device, /*non_blocking=*/true);
  return made;
}

}  // namespace shoal::models
