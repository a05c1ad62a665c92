// A Carrier over Gloo's point-to-point transfers. Before the payload every rank sends its ticket to every other, so
// ranks that disagree are found. An exchange sends each strip to its rank, which receives the peers' strips piece by
// piece, the next on its way while one is taken; an all-gather sends and receives straight from and into the strips,
// and between hosts each strip once (see gather_paths.h). (Gloo's own all-gather and reduce-scatter copy, and sum in
// the order of arrival.)
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/group/carrier.h"
#include "comm/group/gather_paths.h"
#include "comm/host/gloo_world.h"

namespace shoal {

class GlooCarrier final : public Carrier {
 public:
  // Blocks until every one of these ranks has opened the same channel.
  GlooCarrier(std::shared_ptr<GlooWorld> world, const Members& members, const std::string& channel_name);
  // The main channel of all ranks.
  explicit GlooCarrier(const std::shared_ptr<GlooWorld>& world)
      : GlooCarrier(world, Members::all(world->size(), world->rank(), world->hosts()), "") {}

  void exchange(const Ticket& ticket, const Strips& strips, const Take& take) override;
  void all_gather(const Ticket& ticket, const Gather& args) override;
  void broadcast(const Ticket& ticket, const Broadcast& args) override;
  void barrier(const Ticket& ticket) override;
  void interrupt() override;

 protected:
  std::unique_ptr<Carrier> open(const std::string& name, const Members& members, Lane lane) override;

 private:
  void carry(const Ticket& ticket, const std::function<void()>& payload);
  void compare_tickets(const Ticket& mine);
  void run(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives);
  void gather_at_once(const Gather& args);
  void gather_by_hosts(const Gather& args);
  void send_strips(const Strips& strips, size_t piece_nbytes, const std::function<void()>& receive);
  void take_in_pieces(const Strips& strips, size_t piece_nbytes, const Take& take);
  void take_whole(const Strips& strips, size_t piece_nbytes, const Take& take);
  std::byte* staging(size_t nbytes);

  std::shared_ptr<GlooWorld> world_;  // shared by the carriers of this rank's channels
  GlooWorld::Channel channel_;
  bool has_paths_ = false;  // strips of a gather go from host to host, and are passed on there
  GatherPaths paths_;
  std::atomic<bool> left_{false};
  std::string at_;
  Deadline deadline_;
  std::shared_ptr<Slab> staging_;
  // Memory of receives outlives a collective that fails: until its link is cut, a peer may still write there.
  std::vector<Ticket> tickets_;         // of all ranks
  std::vector<std::byte> read_by_all_;  // what all ranks read, which is little
};

}  // namespace shoal
