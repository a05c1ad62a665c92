// See peer_memory.h.
#include "comm/host/peer_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <string>

namespace shoal {

std::shared_ptr<PeerMapping> PeerMapping::open(pid_t pid, int fd, size_t nbytes, bool writable) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, fd);
  const int opened = ::open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
  if (opened < 0) return nullptr;
  struct stat found;
  void* data = MAP_FAILED;
  if (fstat(opened, &found) == 0 && static_cast<size_t>(found.st_size) < nbytes) {
    errno = ESTALE;  // another file by now: touching what it lacks would kill this process
  } else {
    data = mmap(nullptr, nbytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, opened, 0);
  }
  const int open_errno = errno;
  close(opened);
  errno = open_errno;
  if (data == MAP_FAILED) return nullptr;
  return std::shared_ptr<PeerMapping>(new PeerMapping(static_cast<std::byte*>(data), nbytes));
}

PeerMapping::~PeerMapping() { munmap(data_, nbytes_); }

std::shared_ptr<PeerMapping> PeerMemory::find(int rank, const SlabPlace& place) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<PeerMapping>& mapping = mappings_[{rank, place.id}];
  if (!mapping) mapping = PeerMapping::open(pids_.at(static_cast<size_t>(rank)), place.fd, place.nbytes, false);
  if (mapping) return mapping;
  const int open_errno = errno;
  mappings_.erase({rank, place.id});
  errno = open_errno;
  return nullptr;
}

void PeerMemory::forget(int rank, uint64_t slab_id) {
  const std::lock_guard lock(mutex_);
  mappings_.erase({rank, slab_id});
}

void PeerMemory::forget_all() {
  const std::lock_guard lock(mutex_);
  mappings_.clear();
}

size_t PeerMemory::count() const {
  const std::lock_guard lock(mutex_);
  return mappings_.size();
}

void OwnSlabs::bury() {
  for (auto it = slabs_.begin(); it != slabs_.end();) {
    if (it->second.slab.expired()) {
      dead_.push_back(it->second.place.id);
      it = slabs_.erase(it);
    } else {
      ++it;
    }
  }
}

void OwnSlabs::add(const std::shared_ptr<Slab>& slab) {
  if (slab->nbytes() == 0) return;
  const std::lock_guard lock(mutex_);
  bury();  // a dead entry inside this slab's range would hide it
  slabs_[slab->data()] = {slab, {slab->id(), slab->fd(), slab->nbytes()}};
}

std::optional<OwnSlabs::Found> OwnSlabs::find(const std::byte* data, size_t nbytes) {
  const std::lock_guard lock(mutex_);
  auto after = slabs_.upper_bound(data);
  if (after == slabs_.begin()) return std::nullopt;
  const auto& [begin, entry] = *std::prev(after);
  const auto offset = static_cast<uint64_t>(data - begin);
  if (offset + nbytes > entry.place.nbytes || entry.slab.expired()) return std::nullopt;
  return Found{entry.place, offset};
}

std::vector<uint64_t> OwnSlabs::take_dead() {
  const std::lock_guard lock(mutex_);
  bury();
  return std::exchange(dead_, {});
}

}  // namespace shoal
