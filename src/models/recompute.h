// What blocks keep for backward, and what backward computes again. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

namespace shoal::models {

// As a user asks for it.
enum class Recompute : uint8_t {
  none,       // a block keeps everything that its operations need
  selective,  // what matmuls and attention gave; not what norms and activation functions made of it
  full,       // its input
  automatic,  // as little is computed again as the memory allows; see RecomputedBlocks
};
// As the command line has them.
inline constexpr std::array<const char*, 4> kRecomputeNames = {"none", "selective", "full", "auto"};
inline const char* name_of(Recompute recompute) { return kRecomputeNames[static_cast<size_t>(recompute)]; }

// How a model does it, block by block. Backward begins with the last block and frees as it goes: what the first blocks
// compute again comes when there is room for it, so they are the ones that keep least.
struct RecomputedBlocks {
  int64_t full = 0;       // the first ones
  int64_t selective = 0;  // those after them; the others keep everything

  bool operator==(const RecomputedBlocks&) const = default;
  bool are_of(int64_t layers) const { return full >= 0 && selective >= 0 && full + selective <= layers; }
};

// All blocks alike; `automatic` computes nothing again until somebody has looked at the memory.
RecomputedBlocks blocks_of(Recompute recompute, int64_t layers);

// "none", "selective", "full in 6 of 32 blocks, selective in the others".
std::string describe(const RecomputedBlocks& blocks, int64_t layers);

// The least recompute that fits: first blocks become selective, one by one, since that costs next to nothing; then
// full. Full in all of them where that does not fit either.
RecomputedBlocks least_recompute(int64_t layers, const std::function<bool(const RecomputedBlocks&)>& fits);

}  // namespace shoal::models
