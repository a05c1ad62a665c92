// The arena in host memory: each tenant has an address range of its own, backed by pages only while it is taken.
// Pages move from tenant to tenant, so the arena is exactly as large as the most that was ever taken at one time,
// whatever the sizes and the order, and a tenant's address never changes.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "device/arena.h"
#include "device/ledger.h"

namespace shoal {

class PageArena final : public Arena {
 public:
  // tenant_nbytes: address range of each tenant; multiples of the granule. Nothing is backed yet.
  PageArena(std::vector<size_t> tenant_nbytes, size_t granule, std::shared_ptr<Ledger> ledger);
  ~PageArena() override;
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  // Backs the tenant's range with pages (contents unspecified) and returns its begin; grows the arena if it must.
  std::byte* take(int tenant) override;
  // Gives the pages back to the arena.
  void give(int tenant) override;

  // Bytes of backing memory: the most that was ever taken at one time.
  size_t nbytes() const override { return backed_nbytes_; }

 private:
  struct Extent {
    size_t offset = 0;  // in the backing file
    size_t nbytes = 0;
  };
  struct Tenant {
    std::byte* data = nullptr;
    size_t nbytes = 0;
    std::vector<Extent> extents;  // mapped at data, in order; kept after give() until the pages are needed
    bool taken = false;
  };

  std::vector<Extent> pick(size_t nbytes, const std::vector<Extent>& wished);
  void forget_former_holders(const std::vector<Extent>& extents);
  void put_back(const std::vector<Extent>& extents);

  size_t granule_;
  std::shared_ptr<Ledger> ledger_;  // shared with the slabs
  int fd_ = -1;
  size_t backed_nbytes_ = 0;
  std::vector<Extent> free_;  // sorted by offset, merged
  std::vector<Tenant> tenants_;
};

}  // namespace shoal
