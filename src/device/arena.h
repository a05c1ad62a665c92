// Memory for gathered units: a tenant (a unit) takes its range while it is gathered and gives it back.
// In host memory pages move from tenant to tenant (page_arena.h); on a GPU blocks do (block_arena.h).
#pragma once

#include <cstddef>

namespace shoal {

class Arena {
 public:
  virtual ~Arena() = default;

  // Memory for the tenant, contents unspecified; grows the arena if it must.
  virtual std::byte* take(int tenant) = 0;
  virtual void give(int tenant) = 0;

  // Bytes of backing memory.
  virtual size_t nbytes() const = 0;
};

}  // namespace shoal
