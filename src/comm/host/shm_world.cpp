// See shm_world.h.
#include "comm/host/shm_world.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "base/text.h"
#include "comm/failure/blame.h"

namespace shoal {

namespace {

constexpr std::string_view kSegmentPrefix = "shm/";  // of keys in the store
constexpr size_t kDeadRing = 64;
constexpr size_t kWaitNotes = 32;  // of boards, a rank
// How long a note may stand still: many looks of a rank that waits, on a busy machine too.
constexpr auto kStill = std::chrono::milliseconds(2000);
constexpr auto kDeathDelay = std::chrono::milliseconds(2000);

template <size_t n>
void copy_text(char (&to)[n], const std::string& text) {
  const size_t count = std::min(text.size(), n - 1);
  std::memcpy(to, text.data(), count);
  to[count] = 0;
}

}  // namespace

// Page := failure, then one RankPage a rank. Zero bytes are a valid beginning.
struct alignas(64) ShmWorld::Page {
  std::atomic<uint32_t> failure_state;  // 0 none, 1 being written, 2 written
  int32_t reporter;
  char at[256];
  char cause[1024];
};

struct alignas(64) ShmWorld::RankPage {
  std::atomic<uint32_t> left;             // it destroyed its world
  std::atomic<uint64_t> dead_count;       // slabs of this rank that have died
  std::atomic<uint64_t> dead[kDeadRing];  // their ids, the last ones
  // Each is written by one board of this rank and read as a hint by the others; nothing else is read by its order.
  std::atomic<uint64_t> waits[kWaitNotes];  // count << 32 | rank waited for + 1; 0: for nobody
};

ShmWorld::RankPage& ShmWorld::rank_page(int rank) const {
  return reinterpret_cast<RankPage*>(segment_.data() + sizeof(Page))[rank];
}

ShmWorld::ShmWorld(const Options& options)
    : options_(options),
      peer_memory_(options.pids),
      wait_notes_taken_(kWaitNotes, false),
      dead_seen_(options.pids.size(), 0) {
  for (const pid_t pid : options_.pids) {
    // -1 when the process is gone already, or the kernel has no pidfds; dead_peer tells the two apart.
    pidfds_.push_back(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    SHOAL_CHECK(pidfds_.back() >= 0 || errno == ESRCH, "pidfd_open: {}", std::strerror(errno));
  }
  segment_ = open_segment("world", sizeof(Page) + sizeof(RankPage) * options_.pids.size(), 0);
}

ShmWorld::~ShmWorld() {
  progress_.reset();
  rank_page(rank()).left.store(1);
  for (const int fd : pidfds_) {
    if (fd >= 0) close(fd);
  }
}

SharedSegment ShmWorld::open_segment(const std::string& name, size_t nbytes, int maker) {
  SharedSegment segment;
  const std::string key = std::string(kSegmentPrefix) + name;
  // The last word says which segment it is: its maker may have closed it, and its fd may be another file by now.
  const uint64_t mark = hash_text(key);
  const size_t marked_nbytes = (nbytes + 7) / 8 * 8 + sizeof(mark);
  if (rank() == maker) {
    segment.own = Slab::create(marked_nbytes, Slab::Backing::shareable, control_ledger_, MemoryKind::staging);
    std::memcpy(segment.own->data() + marked_nbytes - sizeof(mark), &mark, sizeof(mark));
    options_.store->set(key, std::to_string(segment.own->fd()));
    return segment;
  }
  const std::string place = fmt::format("comm rank {}", rank());
  const std::string at = "opening " + name;
  const auto look_around = [&] {
    if (const auto known = failure()) throw error_of(*known, rank(), at);
    const bool left = is_open() && rank_page(maker).left.load() != 0;
    const Failure own{rank(), at, left ? cause_left(maker) : dead_peer()};
    if (own.cause.empty()) return;
    if (is_open()) fail(own);
    throw error_of(failure().value_or(own), rank(), at);
  };
  const auto found = wait_for_segment(key, look_around);
  if (!found) throw Error(place, at + ": " + cause_late({maker}, options_.timeout));
  segment.mapped = PeerMapping::open(options_.pids[maker], std::stoi(*found), marked_nbytes, true);
  if (segment.mapped && std::memcmp(segment.data() + marked_nbytes - sizeof(mark), &mark, sizeof(mark)) != 0) {
    segment.mapped.reset();
    errno = ESTALE;
  }
  if (!segment.mapped) {
    const std::string why = std::strerror(errno);
    look_around();
    throw Error(place, fmt::format("{}: rank {}'s memory cannot be mapped ({}): it left, or the processes may "
                                   "not see each other. Set SHOAL_TRANSPORT=gloo to do without.",
                                   at, maker, why));
  }
  return segment;
}

std::optional<std::string> ShmWorld::wait_for_segment(const std::string& key,
                                                      const std::function<void()>& look_around) {
  const auto deadline = std::chrono::steady_clock::now() + options_.timeout;
  try {
    return wait_for_key(*options_.store, key, deadline, look_around);
  } catch (const StoreSilent& silent) {
    look_around();
    throw Error(fmt::format("comm rank {}", rank()),
                fmt::format("opening {}: {}", key.substr(kSegmentPrefix.size()),
                            cause_store_silent(options_.store_server, silent.limit)));
  } catch (const Error& error) {
    if (error.place() != kStorePlace) throw;
    // The store often ends with a rank's process, and then it is that rank which is to blame. Of a process that ends,
    // the connections are closed a moment before its end is seen.
    const auto until = std::chrono::steady_clock::now() + kDeathDelay;
    while (std::chrono::steady_clock::now() < until) {
      look_around();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    throw;
  }
}

SharedSegment ShmWorld::open_channel(const std::string& name, size_t nbytes, int maker) {
  int index = 0;
  {
    const std::lock_guard lock(mutex_);
    index = channels_opened_[name]++;
  }
  return open_segment(fmt::format("channel/{}/{}", name, index), nbytes, maker);
}

std::optional<Failure> ShmWorld::failure() {
  if (!is_open()) return std::nullopt;
  const auto& page = *reinterpret_cast<const Page*>(segment_.data());
  if (page.failure_state.load(std::memory_order_acquire) != 2) return std::nullopt;
  return Failure{page.reporter, page.at, page.cause};
}

void ShmWorld::fail(const Failure& failure) {
  auto& page = *reinterpret_cast<Page*>(segment_.data());
  uint32_t none = 0;
  if (!page.failure_state.compare_exchange_strong(none, 1)) return;
  page.reporter = failure.reporter;
  copy_text(page.at, failure.at);
  copy_text(page.cause, failure.cause);
  page.failure_state.store(2, std::memory_order_release);
}

std::string ShmWorld::dead_peer() {
  for (size_t peer = 0; peer < pidfds_.size(); ++peer) {
    pollfd waited{pidfds_[peer], POLLIN, 0};
    // A pidfd becomes readable when its process ends, reaped or not.
    const bool gone = pidfds_[peer] < 0 || (poll(&waited, 1, 0) == 1 && (waited.revents & POLLIN) != 0);
    if (gone) return cause_died(static_cast<int>(peer), fmt::format("process {} is gone", options_.pids[peer]));
  }
  return "";
}

ProgressReports* ShmWorld::progress() {
  const std::lock_guard lock(mutex_);
  if (!progress_ && options_.progress_store) {
    ProgressReports::Options options;
    options.rank = rank();
    options.timeout = timeout();
    options.store = options_.progress_store;
    options.store_server = options_.store_server;
    options.other_path = [this](const std::string& at, const std::string& cause) { fail({rank(), at, cause}); };
    progress_ = std::make_unique<ProgressReports>(std::move(options));
  }
  return progress_.get();
}

WaitNote ShmWorld::take_wait_note() {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(wait_notes_taken_.begin(), wait_notes_taken_.end(), false);
  if (found == wait_notes_taken_.end()) return {};
  *found = true;
  return {static_cast<int>(found - wait_notes_taken_.begin())};
}

void ShmWorld::give_back(const WaitNote& note) {
  if (note.slot < 0) return;
  const std::lock_guard lock(mutex_);
  wait_notes_taken_[note.slot] = false;
}

void ShmWorld::note_wait(WaitNote& note, int for_rank) {
  if (note.slot < 0) return;
  const uint64_t text = for_rank < 0 ? 0 : (uint64_t{++note.count} << 32) | static_cast<uint64_t>(for_rank + 1);
  rank_page(rank()).waits[note.slot].store(text, std::memory_order_relaxed);
}

std::vector<int> ShmWorld::to_blame(const std::vector<int>& missing, const std::function<void()>& look) {
  const auto notes_of = [this](int rank) {
    std::vector<uint64_t> notes;
    for (const auto& note : rank_page(rank).waits) notes.push_back(note.load(std::memory_order_relaxed));
    return notes;
  };
  std::map<int, std::vector<uint64_t>> before;
  for (int peer = 0; peer < size(); ++peer) before[peer] = notes_of(peer);
  // Only notes that are renewed count; how long that is watched for is decided by those that stand still.
  const auto waits_for = [&](int rank) {
    std::vector<int> others;
    const std::vector<uint64_t> now = notes_of(rank);
    for (size_t slot = 0; slot < now.size(); ++slot) {
      if (now[slot] != 0 && now[slot] != before[rank][slot])
        others.push_back(static_cast<int>(now[slot] & 0xffffffff) - 1);
    }
    return others;
  };
  const auto stands_still = [&](int rank) {
    for (size_t slot = 0; slot < kWaitNotes; ++slot) {
      if (before[rank][slot] != 0 && before[rank][slot] == notes_of(rank)[slot]) return true;
    }
    return false;
  };
  const auto deadline = std::chrono::steady_clock::now() + kStill;
  for (;;) {
    look();
    const std::vector<int> ends = ends_of_waits(missing, waits_for);
    if (std::none_of(ends.begin(), ends.end(), stands_still) || std::chrono::steady_clock::now() >= deadline) {
      return ends;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::shared_ptr<Slab> ShmWorld::allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) {
  auto slab = Slab::create(nbytes, Slab::Backing::shareable, std::move(ledger), kind);
  own_slabs_.add(slab);
  return slab;
}

void ShmWorld::exchange_dead_slabs() {
  const std::lock_guard lock(mutex_);
  RankPage& own = rank_page(rank());
  for (const uint64_t id : own_slabs_.take_dead()) {
    const uint64_t count = own.dead_count.load(std::memory_order_relaxed);
    own.dead[count % kDeadRing].store(id, std::memory_order_relaxed);
    own.dead_count.store(count + 1, std::memory_order_release);
  }
  for (int peer = 0; peer < size(); ++peer) {
    uint64_t& seen = dead_seen_[peer];
    const RankPage& page = rank_page(peer);
    const uint64_t count = page.dead_count.load(std::memory_order_acquire);
    if (count == seen) continue;
    // More died than the ring remembers, or may while it is read: let go of everything, and map again what is needed.
    if (count - seen > kDeadRing / 2) {
      peer_memory_.forget_all();
    } else {
      for (uint64_t i = seen; i < count; ++i) peer_memory_.forget(peer, page.dead[i % kDeadRing].load());
    }
    seen = count;
  }
}

}  // namespace shoal
