// Sends and receives between all pairs of ranks of one group over Gloo, for one channel. Knows which peer a
// failure belongs to, which Gloo's own messages do not say. exchange() is called by one thread, close() by any.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/failure/wait_reports.h"
#include "comm/host/gloo_factory.h"
#include "comm/rendezvous/c10d_store.h"

namespace shoal {

struct Transfer {
  int peer = 0;  // its number in the group
  void* data = nullptr;
  size_t nbytes = 0;
  int tag = 0;
};

// A transfer that will not complete.
struct LinkBroken : std::runtime_error {
  enum class How { closed, late, interrupted };
  LinkBroken(How how, int peer, const std::string& text) : std::runtime_error(text), how(how), peer(peer) {}
  How how;
  int peer;  // its number in the world
};

class GlooLink {
 public:
  // Connects all ranks with each other through the store's part under `id`; throws what c10d throws.
  // `ranks`: the numbers in the world of the ranks that it connects, by which LinkBroken names them; empty: the same.
  static std::shared_ptr<GlooLink> connect(const C10dStore& store, const std::string& id, const GlooOptions& options,
                                           std::vector<int> ranks = {});
  ~GlooLink();

  // Transfers under way. Those of one peer and tag match in the order in which they were posted.
  class Posted {
   public:
    Posted();
    Posted(Posted&&) noexcept;
    Posted& operator=(Posted&&) noexcept;
    ~Posted();
    // Throws LinkBroken, and then the link is of no more use.
    void wait(Deadline deadline);

   private:
    friend class GlooLink;
    struct Items;
    std::unique_ptr<Items> items_;
  };
  Posted post_receives(const std::vector<Transfer>& transfers) { return post(transfers, false); }
  Posted post_sends(const std::vector<Transfer>& transfers) { return post(transfers, true); }

  // Brackets of a collective: close() in between wakes it, and the connections are cut when it ends.
  void begin();
  void end() noexcept;

  // For whom a collective waits now, and the how many-eth it is; from any thread.
  std::optional<WaitReports::Wait> awaited() const;

  // Whether the connection with the peer has ended; asks by a byte that nobody receives. From any thread.
  bool is_closed(int peer);

  // Cuts the connections, so that peers notice; wakes a collective in flight.
  void close() noexcept;

 private:
  struct State;
  explicit GlooLink(std::unique_ptr<State> state);
  Posted post(const std::vector<Transfer>& transfers, bool send);

  std::unique_ptr<State> state_;
};

}  // namespace shoal
