// Parameters whole for the user, for a while, outside the arena.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/blueprint.h"
#include "layout/flat_layout.h"
#include "optim/kept_states.h"
#include "shard/weights.h"
#include "shoal/engine.h"

namespace shoal {

struct GatherParts {
  const ModelLayout& layout;
  Weights& weights;
  KeptStates& states;
  Group& channel;  // for bytes of the model
  Queue& queue;
  std::shared_ptr<Ledger> ledger;
};

// Some parameters, whole while this lives. A unit of which all sharded parameters are among them can be used meanwhile:
// it reads the same memory.
class GatheredParams {
 public:
  // Collective. Gathers the flats that hold the parameters; units that a pass holds gathered are left as they are.
  GatheredParams(const GatherParts& parts, const std::vector<ParamAddress>& params);
  // Takes the memory away again; communicates nothing.
  ~GatheredParams();
  GatheredParams(const GatheredParams&) = delete;
  GatheredParams& operator=(const GatheredParams&) = delete;

  // Collective. What rank `root` wrote becomes the value on all ranks.
  void take_written(int root);
  // Units of which only a part is gathered here: they cannot be used.
  const std::vector<int>& partly() const { return partly_; }

 private:
  struct Flat {
    std::shared_ptr<Slab> memory;  // null where the flat is whole anyway
    std::byte* whole = nullptr;
    std::vector<Piece> pieces;  // those asked for
    bool attached = false;      // their parameters read `memory`
  };

  void find_flats(const std::vector<ParamAddress>& params);
  void attach();
  void hold_units();
  void release();

  GatherParts parts_;
  std::map<std::pair<int, int>, Flat> flats_;  // by unit and flat: the same order on every rank
  std::vector<int> held_;                      // units that are whole here
  std::vector<int> partly_;
};

// The same around a call; with Access::write rank 0's values become everybody's.
void with_gathered(const GatherParts& parts, const std::vector<ParamAddress>& params, Access access,
                   const std::function<void()>& use);

}  // namespace shoal
