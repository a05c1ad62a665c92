// Memory of other processes of this host, mapped here; and the own slabs that they may map.
// Both live as long as the world of ranks, are shared by its channels, and are safe to use from several threads.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "device/slab.h"

namespace shoal {

// A memfd of process `pid`, mapped here. Null when it cannot be opened, with errno set.
class PeerMapping {
 public:
  static std::shared_ptr<PeerMapping> open(pid_t pid, int fd, size_t nbytes, bool writable);
  ~PeerMapping();
  PeerMapping(const PeerMapping&) = delete;
  PeerMapping& operator=(const PeerMapping&) = delete;
  std::byte* data() const { return data_; }

 private:
  PeerMapping(std::byte* data, size_t nbytes) : data_(data), nbytes_(nbytes) {}
  std::byte* data_;
  size_t nbytes_;
};

// Where a slab is, as its owner tells it to peers.
struct SlabPlace {
  uint64_t id = 0;
  int32_t fd = -1;
  uint64_t nbytes = 0;
};

// The peers' slabs that this process has mapped, by rank and slab id.
class PeerMemory {
 public:
  explicit PeerMemory(std::vector<pid_t> pids) : pids_(std::move(pids)) {}
  // Maps the slab unless it is mapped already. Null when it cannot be opened, with errno set.
  std::shared_ptr<PeerMapping> find(int rank, const SlabPlace& place);
  void forget(int rank, uint64_t slab_id);
  void forget_all();
  size_t count() const;

 private:
  mutable std::mutex mutex_;
  std::vector<pid_t> pids_;
  std::map<std::pair<int, uint64_t>, std::shared_ptr<PeerMapping>> mappings_;
};

// This process's shareable slabs, found by an address inside them. Holds none of them alive.
class OwnSlabs {
 public:
  struct Found {
    SlabPlace place;
    uint64_t offset = 0;
  };
  void add(const std::shared_ptr<Slab>& slab);
  // The slab that holds all of [data, data + nbytes).
  std::optional<Found> find(const std::byte* data, size_t nbytes);
  // The ids of slabs that died since the last call.
  std::vector<uint64_t> take_dead();

 private:
  struct Entry {
    std::weak_ptr<Slab> slab;
    SlabPlace place;
  };
  void bury();  // moves dead entries to dead_

  std::mutex mutex_;
  std::map<const std::byte*, Entry> slabs_;  // by begin
  std::vector<uint64_t> dead_;
};

}  // namespace shoal
