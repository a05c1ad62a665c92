// See audit.h.
#include "train/audit.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/mix.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

// Elements that are digested at a time: what is made of them on the way, 24 bytes an element, stays in a cache, or
// small on a GPU.
constexpr int64_t kCpuPiece = int64_t{1} << 16, kGpuPiece = int64_t{1} << 20;

at::Tensor bits_of(const at::Tensor& flat) {
  switch (flat.element_size()) {
    case 1: return flat.view(at::kChar);
    case 2: return flat.view(at::kShort);
    case 4: return flat.view(at::kInt);
    case 8: return flat.view(at::kLong);
    default: SHOAL_CHECK(false, "elements of {} bytes", flat.element_size()); return {};
  }
}

}  // namespace

// A sum of bits times odd numbers, modulo 2^64: a difference in one element is not lost in it.
at::Tensor bits_digest(const at::Tensor& tensor) {
  const at::Tensor bits = bits_of(tensor.detach().contiguous().view({-1}));
  const int64_t piece = std::min(bits.numel(), tensor.is_cpu() ? kCpuPiece : kGpuPiece);
  const at::TensorOptions whole = tensor.options().dtype(at::kLong).requires_grad(false);
  at::Tensor sum = at::zeros({}, whole);
  if (piece == 0) return sum;
  const at::Tensor odd = at::arange(1, 2 * piece, 2, whole);
  for (int64_t begin = 0; begin < bits.numel(); begin += piece) {
    const int64_t numel = std::min(piece, bits.numel() - begin);
    const at::Tensor part = bits.narrow(0, begin, numel).to(at::kLong);  // of 8 bytes an element: the tensor itself
    sum.mul_(0x5851f42d4c957f2dll).add_(part.mul(odd.narrow(0, 0, numel)).sum());
  }
  return sum;
}

void check_auditable(const Config& config, at::Device device, bool deterministic) {
  if (config.zero.error_feedback >= 0) {
    throw Error("--audit-every",
                "its passes would change what zeropp_loco_param feeds back to the run. Leave one of them out.");
  }
  if (!device.is_cuda() || deterministic) return;
  throw Error("--audit-every",
              "kernels of the GPU may add in any order, so that sound ranks differ. Add --deterministic.");
}

Audit::Audit(Engine& engine, std::vector<Unit> units, Group& world, const Mesh& mesh)
    : engine_(engine), units_(std::move(units)), world_(world), mesh_(mesh), names_{"the loss"} {
  for (const Unit& unit : units_) {
    SHOAL_CHECK_EQ(static_cast<size_t>(engine_.unit_index(unit.name)) + 1, names_.size());
    names_.push_back(fmt::format("the gradients of unit {}", unit.name));
  }
}

AuditError::AuditError(int64_t step, const std::string& found)
    : Error("audit",
            fmt::format("before step {}: {}. A processor, its memory or a link cannot be trusted. Go on without "
                        "it, from a checkpoint that an audit without findings followed.",
                        step, found)) {}

// Leaves first: passes wait for updates of their units that are still to come, and weights are read after them.
std::string Audit::find(const LossOf& loss_of) {
  const std::string in_leaves = compare_leaves(loss_of);
  const std::string in_weights = compare_weights();
  const std::string& found = in_weights.empty() ? in_leaves : in_weights;
  if (!found.empty()) world_.barrier({"tell", "audit"}).wait();
  return found;
}

std::string Audit::compare_leaves(const LossOf& loss_of) {
  std::vector<LeafRun> runs;
  run_round(0, loss_of, runs);
  run_round(1, loss_of, runs);
  if (!runs_differ(runs)) return "";
  run_round(0, loss_of, runs);
  if (mesh_.data_ranks() > 2) run_round(2, loss_of, runs);
  return judge_runs(runs, names_);
}

// The weights that stay whole on every rank, as it computes with them.
std::string Audit::compare_weights() {
  std::vector<std::string> names;
  std::vector<uint64_t> own;
  for (const ParamInfo& info : engine_.state().params()) {
    if (info.sharded) continue;
    for (const Unit& unit : units_) {
      for (const Parameter& param : unit.params) {
        if (param.name != info.name) continue;
        names.push_back(info.name);
        own.push_back(static_cast<uint64_t>(bits_digest(param.tensor).item<int64_t>()));
      }
    }
  }
  return own.empty() ? "" : judge_copies(gathered(own), names);
}

std::vector<uint64_t> Audit::run_leaf(int64_t leaf, const LossOf& loss_of) {
  // A unit's digest is the sum over its parameters', so that the order in which gradients come does not show.
  std::vector<at::Tensor> sums(names_.size());
  const auto see = [&](int unit, int param, const at::Tensor& grad) {
    const auto key = static_cast<int64_t>(mixed(static_cast<uint64_t>(param) + 1) | 1);
    at::Tensor& sum = sums[static_cast<size_t>(unit) + 1];
    const at::Tensor digest = bits_digest(grad).mul_(key);
    sum = sum.defined() ? sum.add_(digest) : digest;
  };
  const HooksView hooks = engine_.hooks();
  hooks.run_leaf(leaf);
  hooks.watch_gradients(see);
  try {
    const at::Tensor loss = loss_of(leaf);
    sums[0] = bits_digest(loss);
    engine_.backward(loss);
    engine_.drop_gradients();
  } catch (...) {
    hooks.watch_gradients({});
    hooks.run_leaf({});
    throw;
  }
  hooks.watch_gradients({});
  hooks.run_leaf({});
  std::vector<uint64_t> digests;
  for (const at::Tensor& sum : sums) {
    digests.push_back(sum.defined() ? static_cast<uint64_t>(sum.item<int64_t>()) : 0);
  }
  return digests;
}

void Audit::run_round(int shift, const LossOf& loss_of, std::vector<LeafRun>& runs) {
  const int ranks = mesh_.data_ranks();
  const auto leaf_of = [&](int rank) { return int64_t{(mesh_.data_rank(rank) + shift) % ranks}; };
  const std::vector<std::vector<uint64_t>> all = gathered(run_leaf(leaf_of(world_.rank()), loss_of));
  for (int rank = 0; rank < world_.size(); ++rank) {
    runs.push_back({rank, leaf_of(rank), all[static_cast<size_t>(rank)]});
  }
}

std::vector<std::vector<uint64_t>> Audit::gathered(const std::vector<uint64_t>& own) {
  std::vector<uint64_t> all(own.size() * static_cast<size_t>(world_.size()));
  world_.all_gather({{"share", "digests"}, own.data(), all.data(), own.size() * sizeof(uint64_t), nullptr}).wait();
  std::vector<std::vector<uint64_t>> ranks;
  for (size_t at = 0; at < all.size(); at += own.size()) {
    ranks.emplace_back(all.begin() + static_cast<int64_t>(at), all.begin() + static_cast<int64_t>(at + own.size()));
  }
  return ranks;
}

}  // namespace shoal::train
