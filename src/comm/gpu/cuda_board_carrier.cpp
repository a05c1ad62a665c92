// See cuda_board_carrier.h.
#include "comm/gpu/cuda_board_carrier.h"

#include <fmt/format.h>

#include <vector>

#include "comm/host/board_carrier.h"
#include "shoal/error.h"

namespace shoal {

CudaBoardCarrier::CudaBoardCarrier(std::shared_ptr<Board> board, const ComputeStream& compute,
                                   std::shared_ptr<CudaLane> lane)
    : CudaCarrier(about_board(*board, "GPU, threads"), compute, std::move(lane)), board_(std::move(board)) {
  for (Offer& offer : offers_) {
    offer.device = compute.device;
    offer.ready = std::make_shared<cuda::Event>();
    offer.read = std::make_shared<cuda::Event>();
  }
  watch(WatchFrom::given);
}

// See [Note: two meetings of hosts, two kinds of events].
void CudaBoardCarrier::meet(const Ticket& ticket, const void* data,
                            const std::function<void(const std::vector<const std::byte*>&)>& read) {
  Offer& own = offers_[turn_];
  turn_ = 1 - turn_;
  own.data = static_cast<const std::byte*>(data);
  own.ready->record(stream());
  board_->arrive(ticket, reinterpret_cast<const std::byte*>(&own), /*staged=*/false);
  compare_tickets(*board_, ticket);
  std::vector<Offer> offers;
  try {
    for (int peer = 0; peer < size(); ++peer) {
      offers.push_back(*reinterpret_cast<const Offer*>(board_->buffer_of(peer)));
      if (offers.back().device != own.device) {
        throw Error("comm threads",
                    fmt::format("rank {} is on GPU {} and rank {} on GPU {}. Ranks as threads share one "
                                "GPU; use processes for several.",
                                global(), own.device, members().global(peer), offers.back().device));
      }
    }
    std::vector<const std::byte*> sources;
    for (const Offer& offer : offers) {
      offer.ready->hold_back(stream());  // this rank reads a peer's bytes only when they stand there
      sources.push_back(offer.data);
    }
    read(sources);
    own.read->record(stream());
  } catch (...) {
    board_->withdraw();
    throw;
  }
  board_->depart();
  for (const Offer& offer : offers)
    offer.read->hold_back(stream());  // its own bytes change only when all have read them
}

void CudaBoardCarrier::exchange(const Ticket& ticket, const Strips& strips, const Take& take) {
  const int strip = strips.count == 1 ? 0 : rank();
  meet(ticket, strips.data, [&](const std::vector<const std::byte*>& all) {
    std::vector<const void*> sources;
    for (const std::byte* data : all) sources.push_back(data + static_cast<size_t>(strip) * strips.strip_nbytes);
    if (strips.nbytes_at(strip) > 0) take({0, strips.nbytes_at(strip), sources.data()});
  });
}

void CudaBoardCarrier::all_gather(const Ticket& ticket, const Gather& args) {
  meet(ticket, own_on_gpu(args), [&](const std::vector<const std::byte*>& strips) {
    for (int peer = 0; peer < size(); ++peer) {
      const std::byte* from = strips[peer];
      if (args.place(peer) != from) queue().copy(args.place(peer), from, args.nbytes_at(peer));
    }
  });
}

void CudaBoardCarrier::broadcast(const Ticket& ticket, const Broadcast& args) {
  meet(ticket, args.data, [&](const std::vector<const std::byte*>& all) {
    if (rank() != args.root) queue().copy(args.data, all[args.root], args.nbytes);
  });
}

void CudaBoardCarrier::barrier(const Ticket& ticket) {
  meet(ticket, nullptr, [](const std::vector<const std::byte*>&) {});
}

std::unique_ptr<Carrier> CudaBoardCarrier::open(const std::string& name, const Members& members, Lane lane) {
  return std::make_unique<CudaBoardCarrier>(board_->open(name, members), compute(), lane_for(lane));
}

}  // namespace shoal
