// See cuda_board_carrier.h.
#include "comm/cuda_board_carrier.h"

#include <fmt/format.h>

#include <vector>

#include "comm/board_carrier.h"
#include "comm/reduction.h"
#include "shoal/error.h"

namespace shoal {

CudaBoardCarrier::CudaBoardCarrier(std::unique_ptr<Board> board, const ComputeStream& compute)
    : CudaCarrier(compute), board_(std::move(board)) {
  for (Offer& offer : offers_) {
    offer.device = compute.device;
    offer.ready = std::make_shared<cuda::Event>();
    offer.read = std::make_shared<cuda::Event>();
  }
  watch(WatchFrom::given, board_->fate());
}

// See [Note: two meetings of hosts, two kinds of events].
void CudaBoardCarrier::exchange(const Ticket& ticket, const void* data,
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
                                rank(), own.device, peer, offers.back().device));
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

void CudaBoardCarrier::all_gather(const Ticket& ticket, const AllGather& args) {
  exchange(ticket, shard_on_gpu(args), [&](const std::vector<const std::byte*>& shards) {
    auto* whole = static_cast<std::byte*>(args.whole);
    for (size_t peer = 0; peer < shards.size(); ++peer) {
      std::byte* to = whole + peer * args.shard_nbytes;
      if (to != shards[peer]) queue().copy(to, shards[peer], args.shard_nbytes);
    }
  });
}

void CudaBoardCarrier::reduce_scatter(const Ticket& ticket, const ReduceScatter& args) {
  const size_t strip = static_cast<size_t>(args.shard_numel) * nbytes_of(args.whole_dtype);
  exchange(ticket, args.whole, [&](const std::vector<const std::byte*>& wholes) {
    std::vector<const void*> slices;
    for (const std::byte* whole : wholes) slices.push_back(whole + static_cast<size_t>(rank()) * strip);
    sum_slices(slices, args);
  });
}

void CudaBoardCarrier::all_reduce(const Ticket& ticket, const AllReduce& args) {
  // Every rank sums everything, apart from the memory that its peers still read, and takes the result over afterwards.
  const size_t nbytes = static_cast<size_t>(args.numel) * nbytes_of(args.dtype);
  std::byte* sum = scratch(nbytes);
  exchange(ticket, args.data, [&](const std::vector<const std::byte*>& all) {
    ReduceScatter reduce = reduction_of(args);
    reduce.shard = sum;
    sum_slices({all.begin(), all.end()}, reduce);
  });
  queue().copy(args.data, sum, nbytes);
}

void CudaBoardCarrier::broadcast(const Ticket& ticket, const Broadcast& args) {
  exchange(ticket, args.data, [&](const std::vector<const std::byte*>& all) {
    if (rank() != args.root) queue().copy(args.data, all[static_cast<size_t>(args.root)], args.nbytes);
  });
}

void CudaBoardCarrier::barrier(const Ticket& ticket) {
  exchange(ticket, nullptr, [](const std::vector<const std::byte*>&) {});
}

std::unique_ptr<Carrier> CudaBoardCarrier::channel(const std::string& name) {
  return std::make_unique<CudaBoardCarrier>(board_->channel(name), compute());
}

void CudaBoardCarrier::abort(const std::string& reason) { board_->fail({rank(), "", cause_aborted(rank(), reason)}); }

}  // namespace shoal
