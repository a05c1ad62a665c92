// See cuda_staged_carrier.h.
#include "comm/gpu/cuda_staged_carrier.h"

#include <utility>
#include <vector>

namespace shoal {

CudaStagedCarrier::CudaStagedCarrier(std::unique_ptr<Group> host, const ComputeStream& compute, const std::string& name,
                                     std::shared_ptr<CudaLane> lane)
    : CudaHostedCarrier(std::move(host), compute, name, "", std::move(lane)) {}

std::unique_ptr<Carrier> CudaStagedCarrier::over(std::unique_ptr<Group> host, const std::string& name,
                                                 std::shared_ptr<CudaLane> lane) {
  return std::make_unique<CudaStagedCarrier>(std::move(host), compute(), name, std::move(lane));
}

std::byte* CudaStagedCarrier::host_memory(std::shared_ptr<Slab>& slab, size_t nbytes) {
  if (!slab || slab->nbytes() < nbytes) slab = host().allocate(nbytes, ledger(), MemoryKind::staging);
  return slab->data();
}

void CudaStagedCarrier::exchange(const Ticket& ticket, const Strips& strips, const Take& take) {
  Exchange on_host;
  on_host.subject = {ticket.subject, ""};
  on_host.slice_nbytes = strips.strip_nbytes;
  on_host.piece_nbytes = ticket.piece_nbytes;
  std::byte* sent = host_memory(sent_, strips.nbytes);
  queue().download(sent, strips.data, strips.nbytes);
  on_host.slices = sent;
  on_host.received = host_memory(received_, strips.nbytes);
  host().exchange(on_host).wait();
  std::byte* received = strips.received != nullptr ? strips.received : scratch(strips.nbytes);
  queue().upload(received, on_host.received, strips.nbytes);
  std::vector<const void*> sources;
  for (int peer = 0; peer < size(); ++peer) {
    sources.push_back(received + static_cast<size_t>(peer) * strips.strip_nbytes);
  }
  if (strips.strip_nbytes > 0) take({0, strips.strip_nbytes, sources.data()});
}

void CudaStagedCarrier::all_gather(const Ticket& ticket, const Gather& args) {
  AllGather on_host;
  on_host.subject = {ticket.subject, ""};
  on_host.shard_nbytes = args.strip_nbytes;
  std::byte* shard = host_memory(sent_, args.strip_nbytes);
  queue().download(shard, args.own, args.strip_nbytes);
  on_host.shard = shard;
  on_host.whole = host_memory(received_, args.whole_nbytes);
  host().all_gather(on_host).wait();
  queue().upload(args.whole, on_host.whole, args.whole_nbytes);
}

void CudaStagedCarrier::reduce_scatter(const Ticket&, const ReduceScatter& args) {
  const size_t whole_nbytes =
      static_cast<size_t>(args.shard_numel) * static_cast<size_t>(size()) * nbytes_of(args.whole_dtype);
  const size_t shard_nbytes = static_cast<size_t>(args.shard_numel) * nbytes_of(args.shard_dtype);
  ReduceScatter on_host = args;
  std::byte* whole = host_memory(sent_, whole_nbytes);
  queue().download(whole, args.whole, whole_nbytes);
  on_host.whole = whole;
  on_host.shard = host_memory(received_, shard_nbytes);
  const auto bring = [&](void* to, const void* from, size_t nbytes) { queue().download(to, from, nbytes); };
  // Without groups all of the shard is written. With them it may be left as it is, and is then sent back so.
  if (args.carry != 0 || args.groups.size > 0) bring(on_host.shard, args.shard, shard_nbytes);
  const size_t open_nbytes = args.groups.open != nullptr ? static_cast<size_t>(args.shard_numel) * sizeof(float) : 0;
  if (open_nbytes > 0) {
    on_host.groups.open = reinterpret_cast<float*>(host_memory(open_, open_nbytes));
    bring(on_host.groups.open, args.groups.open, open_nbytes);
  }
  host().reduce_scatter(on_host).wait();
  queue().upload(args.shard, on_host.shard, shard_nbytes);
  if (open_nbytes > 0) queue().upload(args.groups.open, on_host.groups.open, open_nbytes);
}

void CudaStagedCarrier::all_reduce(const Ticket&, const AllReduce& args) {
  const size_t nbytes = static_cast<size_t>(args.numel) * nbytes_of(args.dtype);
  AllReduce on_host = args;
  on_host.data = host_memory(sent_, nbytes);
  queue().download(on_host.data, args.data, nbytes);
  host().all_reduce(on_host).wait();
  queue().upload(args.data, on_host.data, nbytes);
}

void CudaStagedCarrier::broadcast(const Ticket&, const Broadcast& args) {
  Broadcast on_host = args;
  on_host.data = host_memory(sent_, args.nbytes);
  if (rank() == args.root) queue().download(on_host.data, args.data, args.nbytes);
  host().broadcast(on_host).wait();
  if (rank() != args.root) queue().upload(args.data, on_host.data, args.nbytes);
}

}  // namespace shoal
