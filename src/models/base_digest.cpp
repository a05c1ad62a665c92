// See base_digest.h.
#include "models/base_digest.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "base/check.h"
#include "base/mix.h"
#include "base/text.h"
#include "kernels/digest.h"

namespace shoal::models {

namespace {

constexpr int64_t kDigestNumel = int64_t{1} << 18;  // elements that a thread reads at a time

// Of elements [begin, end): the digest of a range is the sum of its parts'.
uint64_t digest_range(const ValueSource& source, int64_t begin, int64_t end) {
  std::atomic<uint64_t> sum = 0;
  at::parallel_for(0, (end - begin + kDigestNumel - 1) / kDigestNumel, 1, [&](int64_t first, int64_t last) {
    std::vector<float> values;
    for (int64_t piece = first; piece < last; ++piece) {
      const int64_t at = begin + piece * kDigestNumel, numel = std::min(kDigestNumel, end - at);
      values.resize(static_cast<size_t>(numel));
      source.read(at, numel, values.data());
      sum += kernels::digest_elements(values.data(), at, numel);
    }
  });
  return sum;
}

}  // namespace

std::string digest_frozen(const std::vector<Unit>& units, Group& world) {
  std::vector<uint64_t> own, names;
  std::set<const void*> seen;  // tied ones count once
  for (const Unit& unit : units) {
    for (const Parameter& param : unit.params) {
      if (param.tensor.requires_grad() || !seen.insert(param.tensor.unsafeGetTensorImpl()).second) continue;
      SHOAL_CHECK(param.source != nullptr, "{} has no source of values", param.name);
      const int64_t numel = param.tensor.numel();
      const int64_t begin = numel / world.size() * world.rank() + std::min<int64_t>(world.rank(), numel % world.size());
      const int64_t end = begin + numel / world.size() + (world.rank() < numel % world.size() ? 1 : 0);
      own.push_back(digest_range(*param.source, begin, end));
      names.push_back(hash_text(param.name + " " + format_shape(param.tensor.sizes().vec())));
    }
  }
  std::vector<uint64_t> all(own.size() * static_cast<size_t>(world.size()));
  world
      .all_gather(
          {{"share", "the digest of frozen weights"}, own.data(), all.data(), own.size() * sizeof(uint64_t), {}})
      .wait();
  uint64_t whole = 0;
  for (size_t param = 0; param < own.size(); ++param) {
    uint64_t sum = 0;
    for (size_t at = param; at < all.size(); at += own.size()) sum += all[at];
    whole += mixed(names[param], sum);
  }
  return fmt::format("{:016x}", whole);
}

}  // namespace shoal::models
