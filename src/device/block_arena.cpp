// See block_arena.h.
#include "device/block_arena.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace shoal {

BlockArena::BlockArena(std::vector<size_t> tenant_nbytes, NewSlab new_slab) : new_slab_(std::move(new_slab)) {
  for (const size_t nbytes : tenant_nbytes) tenants_.push_back({nbytes, {}, false});
}

std::byte* BlockArena::take(int tenant_index) {
  Tenant& tenant = tenants_.at(static_cast<size_t>(tenant_index));
  SHOAL_CHECK(!tenant.taken, "tenant {} is taken already", tenant_index);
  tenant.taken = true;
  if (tenant.nbytes == 0) return nullptr;
  auto best = free_.end();
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    if (block->nbytes >= tenant.nbytes && (best == free_.end() || block->nbytes < best->nbytes)) best = block;
  }
  if (best == free_.end()) {
    slabs_.push_back(new_slab_(tenant.nbytes));
    tenant.block = {slabs_.size() - 1, 0, tenant.nbytes};
  } else {
    tenant.block = {best->slab, best->offset, tenant.nbytes};
    best->offset += tenant.nbytes;
    best->nbytes -= tenant.nbytes;
    if (best->nbytes == 0) free_.erase(best);
  }
  return slabs_[tenant.block.slab]->data() + tenant.block.offset;
}

void BlockArena::give(int tenant_index) {
  Tenant& tenant = tenants_.at(static_cast<size_t>(tenant_index));
  SHOAL_CHECK(tenant.taken, "tenant {} is not taken", tenant_index);
  tenant.taken = false;
  if (tenant.nbytes == 0) return;
  free_.push_back(tenant.block);
  std::sort(free_.begin(), free_.end(),
            [](const Block& a, const Block& b) { return std::tie(a.slab, a.offset) < std::tie(b.slab, b.offset); });
  std::vector<Block> merged;
  for (const Block& block : free_) {
    const bool follows = !merged.empty() && merged.back().slab == block.slab &&
                         merged.back().offset + merged.back().nbytes == block.offset;
    if (follows) {
      merged.back().nbytes += block.nbytes;
    } else {
      merged.push_back(block);
    }
  }
  free_ = std::move(merged);
}

size_t BlockArena::nbytes() const {
  size_t total = 0;
  for (const auto& slab : slabs_) total += slab->nbytes();
  return total;
}

}  // namespace shoal
