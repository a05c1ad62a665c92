// What processes of one host share as one world of ranks: who they are and whether they live, the failure that ends
// them all, and their memory. One a process and world; the boards of its channels share it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/failure/fate.h"
#include "comm/failure/progress_reports.h"
#include "comm/host/peer_memory.h"
#include "comm/rendezvous/key_store.h"

namespace shoal {

// A control segment: made by one rank, mapped by the others, zero at the start.
struct SharedSegment {
  std::shared_ptr<Slab> own;            // on the rank that made it
  std::shared_ptr<PeerMapping> mapped;  // elsewhere
  std::byte* data() const { return own ? own->data() : mapped->data(); }
};

// Where a board of this rank notes for whom it waits; see ShmWorld::to_blame.
struct WaitNote {
  int slot = -1;  // none is left: what this board waits for is not known to others
  uint32_t count = 0;
};

class ShmWorld final : public Fate {
 public:
  struct Options {
    int rank = 0;
    Timeout timeout = kDefaultTimeout;
    std::vector<pid_t> pids;  // by rank
    std::shared_ptr<KeyStore> store;
    std::string store_server = "rank 0";            // who serves it, for messages
    std::vector<int> hosts = {};                    // as Members has them; only SHOAL_HOSTS gives several
    std::shared_ptr<KeyStore> progress_store = {};  // the same, that answers or fails within seconds; null: not told
  };
  explicit ShmWorld(const Options& options);
  ~ShmWorld() override;
  ShmWorld(const ShmWorld&) = delete;
  ShmWorld& operator=(const ShmWorld&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return static_cast<int>(options_.pids.size()); }
  Timeout timeout() const override { return options_.timeout; }
  const std::vector<int>& hosts() const { return options_.hosts; }

  // The segment of that name, the same on every rank that opens it. Blocks until rank `maker` has made it.
  SharedSegment open_segment(const std::string& name, size_t nbytes, int maker);
  // The segment of the next channel of that name.
  SharedSegment open_channel(const std::string& name, size_t nbytes, int maker);

  // The failure that the first rank wrote down, if any.
  std::optional<Failure> failure() override;
  void fail(const Failure& failure) override;
  // The first rank whose process is gone, said as a cause; empty when all live.
  std::string dead_peer() override;
  ProgressReports* progress() override;

  // Boards note for whom they wait while they look around, and note it anew at each look. A rank whose notes stand
  // still does not wait: it hangs. So who is late can be told from who holds it up, see blame.h. `look` is called now
  // and then while the others' notes are watched, and renews the caller's own.
  WaitNote take_wait_note();
  void give_back(const WaitNote& note);
  void note_wait(WaitNote& note, int for_rank);  // -1: for nobody
  std::vector<int> to_blame(const std::vector<int>& missing, const std::function<void()>& look);

  std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind);
  OwnSlabs& own_slabs() { return own_slabs_; }
  PeerMemory& peer_memory() { return peer_memory_; }
  // Tells peers which own slabs have died, and unmaps those that peers have said are dead.
  void exchange_dead_slabs();

 private:
  struct Page;
  struct RankPage;
  bool is_open() const { return segment_.own || segment_.mapped; }  // false until the ranks have met
  std::optional<std::string> wait_for_segment(const std::string& key, const std::function<void()>& look_around);
  RankPage& rank_page(int rank) const;

  Options options_;
  std::vector<int> pidfds_;
  std::shared_ptr<Ledger> control_ledger_ = std::make_shared<Ledger>();  // pages of control, not of the model
  OwnSlabs own_slabs_;
  PeerMemory peer_memory_;
  SharedSegment segment_;
  std::mutex mutex_;  // of what follows
  std::map<std::string, int> channels_opened_;
  std::vector<bool> wait_notes_taken_;
  std::vector<uint64_t> dead_seen_;            // by rank: how many dead slabs of it have been unmapped
  std::unique_ptr<ProgressReports> progress_;  // once it is asked for; ends first
};

}  // namespace shoal
