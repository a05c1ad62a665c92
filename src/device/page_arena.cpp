// See page_arena.h.
#include "device/page_arena.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/text.h"
#include "shoal/error.h"

namespace shoal {

namespace {

[[noreturn]] void throw_arena_error(const char* call, size_t nbytes) {
  throw Error("memory", fmt::format("{} of {} for gathered units failed: {}. Lower stage3_max_live_parameters or "
                                    "stage3_prefetch_bucket_size, or use smaller units.",
                                    call, format_nbytes(nbytes), std::strerror(errno)));
}

}  // namespace

PageArena::PageArena(std::vector<size_t> tenant_nbytes, size_t granule, std::shared_ptr<Ledger> ledger)
    : granule_(granule), ledger_(std::move(ledger)) {
  SHOAL_CHECK_EQ(granule_ % static_cast<size_t>(sysconf(_SC_PAGESIZE)), 0u);
  fd_ = memfd_create("shoal-arena", MFD_CLOEXEC);
  if (fd_ < 0) throw_arena_error("memfd_create", 0);
  for (const size_t nbytes : tenant_nbytes) {
    SHOAL_CHECK_EQ(nbytes % granule_, 0u);
    Tenant tenant;
    tenant.nbytes = nbytes;
    if (nbytes > 0) {
      void* range = mmap(nullptr, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (range == MAP_FAILED) throw_arena_error("mmap", nbytes);
      tenant.data = static_cast<std::byte*>(range);
    }
    tenants_.push_back(std::move(tenant));
  }
}

PageArena::~PageArena() {
  for (const Tenant& tenant : tenants_) {
    if (tenant.data != nullptr) munmap(tenant.data, tenant.nbytes);
  }
  if (fd_ >= 0) close(fd_);
  ledger_->remove(MemoryKind::gather_arena, backed_nbytes_);
}

std::byte* PageArena::take(int tenant_index) {
  Tenant& tenant = tenants_.at(static_cast<size_t>(tenant_index));
  SHOAL_CHECK(!tenant.taken, "tenant {} is taken already", tenant_index);
  std::vector<Extent> extents = pick(tenant.nbytes, tenant.extents);
  const bool same =
      std::equal(extents.begin(), extents.end(), tenant.extents.begin(), tenant.extents.end(),
                 [](const Extent& a, const Extent& b) { return a.offset == b.offset && a.nbytes == b.nbytes; });
  if (!same) {
    forget_former_holders(extents);
    std::byte* at = tenant.data;
    for (const Extent& extent : extents) {
      void* mapped = mmap(at, extent.nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd_,
                          static_cast<off_t>(extent.offset));
      if (mapped == MAP_FAILED) throw_arena_error("mmap", extent.nbytes);
      at += extent.nbytes;
    }
    tenant.extents = std::move(extents);
  }
  tenant.taken = true;
  return tenant.data;
}

void PageArena::give(int tenant_index) {
  Tenant& tenant = tenants_.at(static_cast<size_t>(tenant_index));
  SHOAL_CHECK(tenant.taken, "tenant {} is not taken", tenant_index);
  tenant.taken = false;
  put_back(tenant.extents);
}

// Who held these pages before loses sight of them: a stale pointer must fault, not read another unit.
void PageArena::forget_former_holders(const std::vector<Extent>& extents) {
  const auto overlap = [](const Extent& a, const Extent& b) {
    return a.offset < b.offset + b.nbytes && b.offset < a.offset + a.nbytes;
  };
  for (Tenant& tenant : tenants_) {
    if (tenant.taken) continue;
    const bool held = std::any_of(tenant.extents.begin(), tenant.extents.end(), [&](const Extent& old) {
      return std::any_of(extents.begin(), extents.end(), [&](const Extent& extent) { return overlap(old, extent); });
    });
    if (!held) continue;
    void* range =
        mmap(tenant.data, tenant.nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (range == MAP_FAILED) throw_arena_error("mmap", tenant.nbytes);
    tenant.extents.clear();
  }
}

// Takes nbytes out of the free extents: the wished ones when they are all free (the mapping then stands already),
// else from the front, growing the file for what is missing.
std::vector<PageArena::Extent> PageArena::pick(size_t nbytes, const std::vector<Extent>& wished) {
  const auto take_out = [this](const Extent& extent) {
    for (size_t i = 0; i < free_.size(); ++i) {
      Extent& hole = free_[i];
      if (extent.offset < hole.offset || extent.offset + extent.nbytes > hole.offset + hole.nbytes) continue;
      const Extent before{hole.offset, extent.offset - hole.offset};
      const Extent after{extent.offset + extent.nbytes, hole.offset + hole.nbytes - extent.offset - extent.nbytes};
      free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
      if (after.nbytes > 0) free_.insert(free_.begin() + static_cast<std::ptrdiff_t>(i), after);
      if (before.nbytes > 0) free_.insert(free_.begin() + static_cast<std::ptrdiff_t>(i), before);
      return true;
    }
    return false;
  };
  const auto is_free = [this](const Extent& extent) {
    return std::any_of(free_.begin(), free_.end(), [&](const Extent& hole) {
      return extent.offset >= hole.offset && extent.offset + extent.nbytes <= hole.offset + hole.nbytes;
    });
  };
  if (!wished.empty() && std::all_of(wished.begin(), wished.end(), is_free)) {
    for (const Extent& extent : wished) SHOAL_CHECK(take_out(extent), "a free extent vanished");
    return wished;
  }
  std::vector<Extent> picked;
  size_t missing = nbytes;
  while (missing > 0 && !free_.empty()) {
    Extent& hole = free_.front();
    const Extent part{hole.offset, std::min(hole.nbytes, missing)};
    missing -= part.nbytes;
    picked.push_back(part);
    hole.offset += part.nbytes;
    hole.nbytes -= part.nbytes;
    if (hole.nbytes == 0) free_.erase(free_.begin());
  }
  if (missing > 0) {
    if (ftruncate(fd_, static_cast<off_t>(backed_nbytes_ + missing)) != 0) throw_arena_error("ftruncate", missing);
    ledger_->add(MemoryKind::gather_arena, missing);
    picked.push_back({backed_nbytes_, missing});
    backed_nbytes_ += missing;
  }
  return picked;
}

void PageArena::put_back(const std::vector<Extent>& extents) {
  free_.insert(free_.end(), extents.begin(), extents.end());
  std::sort(free_.begin(), free_.end(), [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  std::vector<Extent> merged;
  for (const Extent& extent : free_) {
    if (!merged.empty() && merged.back().offset + merged.back().nbytes == extent.offset) {
      merged.back().nbytes += extent.nbytes;
    } else {
      merged.push_back(extent);
    }
  }
  free_ = std::move(merged);
}

}  // namespace shoal
