// An arena of blocks, for memory whose pages cannot be moved (a GPU's): a tenant takes the smallest free block that
// holds it, or a new slab of exactly its size. Units of one size therefore hand the same few blocks on. With units of
// several sizes the arena may grow beyond the most that was taken at one time: a large unit finds no room in the blocks
// that small ones left.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "device/arena.h"
#include "device/slab.h"

namespace shoal {

class BlockArena final : public Arena {
 public:
  using NewSlab = std::function<std::shared_ptr<Slab>(size_t nbytes)>;
  BlockArena(std::vector<size_t> tenant_nbytes, NewSlab new_slab);

  std::byte* take(int tenant) override;
  void give(int tenant) override;
  size_t nbytes() const override;

 private:
  struct Block {
    size_t slab = 0;
    size_t offset = 0;
    size_t nbytes = 0;
  };
  struct Tenant {
    size_t nbytes = 0;
    Block block;
    bool taken = false;
  };

  std::vector<Tenant> tenants_;
  NewSlab new_slab_;
  std::vector<std::shared_ptr<Slab>> slabs_;
  std::vector<Block> free_;  // sorted by slab and offset, merged
};

}  // namespace shoal
