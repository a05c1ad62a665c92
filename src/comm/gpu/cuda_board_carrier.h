// Collectives between ranks that are threads of this process and share one GPU.
//
// [Note: two meetings of hosts, two kinds of events]
// The threads meet at the board as they do for host memory, and it is there that ranks which disagree, die or come late
// are found. A rank brings its pointer and two events: `ready`, behind which its bytes stand, and `read`, which it
// records when it has given its reading of the others' bytes to its stream. Between the meetings each rank's stream is
// held back by the others' `ready`, after the second by the others' `read`: then its own bytes may change again. An
// event may be recorded anew only when nobody still means its last point, so there are two of each, used in turn: a
// rank that comes to use one again has met the others in between.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include "comm/gpu/cuda_carrier.h"
#include "comm/host/board.h"

namespace shoal {

class CudaBoardCarrier final : public CudaCarrier {
 public:
  CudaBoardCarrier(std::shared_ptr<Board> board, const ComputeStream& compute,
                   std::shared_ptr<CudaLane> lane = nullptr);

  void exchange(const Ticket& ticket, const Strips& strips, const Take& take) override;
  void all_gather(const Ticket& ticket, const Gather& args) override;
  void broadcast(const Ticket& ticket, const Broadcast& args) override;
  void barrier(const Ticket& ticket) override;
  void interrupt() override { board_->leave(); }

 protected:
  std::unique_ptr<Carrier> open(const std::string& name, const Members& members, Lane lane) override;

 private:
  struct Offer {
    const std::byte* data = nullptr;
    int device = 0;
    std::shared_ptr<cuda::Event> ready, read;  // shared: a peer may still mean them when this rank is gone
  };
  // Calls `read` with every rank's data, in the order of ranks; what it gives to the stream is ordered as the note
  // says.
  void meet(const Ticket& ticket, const void* data,
            const std::function<void(const std::vector<const std::byte*>&)>& read);

  const std::shared_ptr<Board> board_;  // nobody else's
  std::array<Offer, 2> offers_;
  size_t turn_ = 0;
};

}  // namespace shoal
