// `--audit-every`: looks for ranks that compute wrong without noticing. Each rank runs its own leaf of the step that
// comes, then its neighbour's, and digests of losses and gradients are compared; where they differ, more runs say whose
// are wrong. Weights that every rank holds whole are compared too. No mark stays: the gradients are dropped, and what
// is random is drawn by leaf. Called by the trainer, by all ranks between steps.
//
// Equal bits are what it goes by: kernels of a GPU that are not deterministic, or ranks on different processors, look
// like faults.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "layout/mesh.h"
#include "shoal/engine.h"
#include "shoal/error.h"
#include "shoal/group.h"
#include "train/audit_verdict.h"

namespace shoal::train {

// A digest of a tensor's bits, as one int64 where the tensor is: any one changed element changes it.
at::Tensor bits_digest(const at::Tensor& tensor);

// Throws where sound ranks would differ, or an audit would leave a mark.
void check_auditable(const Config& config, at::Device device, bool deterministic);

// A finding, which every rank throws at once: nobody has to be told. It ends the command with an exit code of its own,
// so that no launcher of ours starts the same ranks again (launch/restart_rule.h).
class AuditError : public Error {
 public:
  AuditError(int64_t step, const std::string& found);
};

class Audit {
 public:
  // The loss of one leaf of the step that comes, counted from 0 over all ranks.
  using LossOf = std::function<at::Tensor(int64_t leaf)>;

  // Engine and world outlive it. `units`: the engine's model.
  Audit(Engine& engine, std::vector<Unit> units, Group& world, const Mesh& mesh);

  // "" or who computed wrong, as far as that can be told; the same on every rank, and all of them know it by then.
  std::string find(const LossOf& loss_of);

 private:
  std::string compare_leaves(const LossOf& loss_of);
  std::string compare_weights();
  // Digests of the loss and of each unit's gradients.
  std::vector<uint64_t> run_leaf(int64_t leaf, const LossOf& loss_of);
  // Every rank runs the leaf `shift` behind its own; all of them are added to `runs`.
  void run_round(int shift, const LossOf& loss_of, std::vector<LeafRun>& runs);
  std::vector<std::vector<uint64_t>> gathered(const std::vector<uint64_t>& own);

  Engine& engine_;
  std::vector<Unit> units_;
  Group& world_;
  Mesh mesh_;
  std::vector<std::string> names_;  // of what run_leaf() digests
};

}  // namespace shoal::train
