// One piece of memory, owned, counted in a ledger and given back to the system when it dies. Zero on creation.
// Backed by private pages, by a memfd that processes of this host can map too, or by a GPU's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "device/ledger.h"
#include "shoal/error.h"

namespace shoal {

// Memory of a GPU could not be had. Whoever knows the whole plan may say more.
class NoDeviceMemory : public Error {
 public:
  NoDeviceMemory(std::string asked, const std::string& remedy);
  const std::string& asked() const { return asked_; }  // "10 GiB of GPU memory for optimizer states cannot be had: ..."

 private:
  std::string asked_;
};

class Slab {
 public:
  enum class Backing : uint8_t {
    anonymous,  // private to this process; huge pages where the system has them
    shareable,  // a memfd: other processes map it through /proc/<pid>/fd/<fd>
    pinned,     // as anonymous, and the calling thread's GPU copies from and to it by itself
    device,     // of the calling thread's GPU, by the runtime's own allocator: exactly as much as was asked for
  };

  // Maps nbytes (rounded up to pages by the system; the ledger counts nbytes). Zero bytes is a valid, empty slab.
  static std::shared_ptr<Slab> create(size_t nbytes, Backing backing, std::shared_ptr<Ledger> ledger, MemoryKind kind);
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  std::byte* data() const { return data_; }
  size_t nbytes() const { return nbytes_; }
  bool on_device() const { return backing_ == Backing::device; }
  // -1 when anonymous.
  int fd() const { return fd_; }
  // Unique in this process, never reused: tells a peer's cached mapping of an old fd from the new one.
  uint64_t id() const { return id_; }
  bool contains(const void* pointer) const {
    const auto* p = static_cast<const std::byte*>(pointer);
    return p >= data_ && p < data_ + nbytes_;
  }

 private:
  Slab() = default;

  std::byte* data_ = nullptr;
  size_t nbytes_ = 0;
  Backing backing_ = Backing::anonymous;
  int fd_ = -1;
  uint64_t id_ = 0;
  MemoryKind kind_ = MemoryKind::staging;
  std::shared_ptr<Ledger> ledger_;  // shared: slabs outlive the engine when parameters keep them
};

}  // namespace shoal
