// See cuda_staged_carrier.h.
#include "comm/cuda_staged_carrier.h"

#include <utility>

namespace shoal {

CudaStagedCarrier::CudaStagedCarrier(std::unique_ptr<Group> host, const ComputeStream& compute)
    : CudaCarrier(compute), host_(std::move(host)) {}

std::byte* CudaStagedCarrier::host_memory(std::shared_ptr<Slab>& slab, size_t nbytes) {
  if (!slab || slab->nbytes() < nbytes) slab = host_->allocate(nbytes, ledger(), MemoryKind::staging);
  return slab->data();
}

void CudaStagedCarrier::all_gather(const Ticket&, const AllGather& args) {
  AllGather on_host = args;
  std::byte* shard = host_memory(sent_, args.shard_nbytes);
  queue().download(shard, args.shard, args.shard_nbytes);
  on_host.shard = shard;
  on_host.whole = host_memory(received_, args.shard_nbytes * static_cast<size_t>(size()));
  host_->all_gather(on_host).wait();
  queue().upload(args.whole, on_host.whole, args.shard_nbytes * static_cast<size_t>(size()));
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
  if (args.accumulate) queue().download(on_host.shard, args.shard, shard_nbytes);
  host_->reduce_scatter(on_host).wait();
  queue().upload(args.shard, on_host.shard, shard_nbytes);
}

void CudaStagedCarrier::all_reduce(const Ticket&, const AllReduce& args) {
  const size_t nbytes = static_cast<size_t>(args.numel) * nbytes_of(args.dtype);
  AllReduce on_host = args;
  on_host.data = host_memory(sent_, nbytes);
  queue().download(on_host.data, args.data, nbytes);
  host_->all_reduce(on_host).wait();
  queue().upload(args.data, on_host.data, nbytes);
}

void CudaStagedCarrier::broadcast(const Ticket&, const Broadcast& args) {
  Broadcast on_host = args;
  on_host.data = host_memory(sent_, args.nbytes);
  if (rank() == args.root) queue().download(on_host.data, args.data, args.nbytes);
  host_->broadcast(on_host).wait();
  if (rank() != args.root) queue().upload(args.data, on_host.data, args.nbytes);
}

void CudaStagedCarrier::barrier(const Ticket& ticket) { host_->barrier({"meet for", ticket.subject}).wait(); }

std::unique_ptr<Carrier> CudaStagedCarrier::channel(const std::string& name) {
  return std::make_unique<CudaStagedCarrier>(host_->channel(name), compute());
}

}  // namespace shoal
