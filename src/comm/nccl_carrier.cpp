// See nccl_carrier.h.
#include "comm/nccl_carrier.h"

#include <utility>
#include <vector>

#include "comm/reduction.h"
#include "shoal/error.h"

namespace shoal {

namespace {

NcclType type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return NcclType::f32;
    case DType::bf16: return NcclType::bf16;
    case DType::f16: return NcclType::f16;
  }
  return NcclType::f32;
}

}  // namespace

NcclCarrier::NcclCarrier(std::unique_ptr<Group> host, const ComputeStream& compute)
    : CudaCarrier(compute), host_(std::move(host)), nccl_(NcclLibrary::get()) {
  NcclUniqueId id{};
  if (rank() == 0) check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
  host_
      ->broadcast({.subject = {"share NCCL's id", "all ranks"},
                   .data = id.bytes.data(),
                   .nbytes = id.bytes.size(),
                   .root = 0,
                   .keep = nullptr})
      .wait();
  check(nccl_.comm_init_rank(&comm_, size(), id, rank()), "ncclCommInitRank");
}

NcclCarrier::~NcclCarrier() {
  if (comm_ == nullptr) return;
  if (failed_) {
    nccl_.comm_abort(comm_);  // destroying would wait for peers that do not come
    return;
  }
  try {
    cuda::synchronize(stream());  // a peer may still need this rank for the last collective
    nccl_.comm_destroy(comm_);
  } catch (const Error&) {
    nccl_.comm_abort(comm_);
  }
}

void NcclCarrier::all_gather(const Ticket&, const AllGather& args) {
  check(nccl_.all_gather(shard_on_gpu(args), args.whole, args.shard_nbytes, NcclType::int8, comm_, stream()),
        "ncclAllGather");
}

void NcclCarrier::reduce_scatter(const Ticket&, const ReduceScatter& args) {
  const size_t element = nbytes_of(args.whole_dtype);
  const size_t shard_nbytes = static_cast<size_t>(args.shard_numel) * element;
  const size_t whole_nbytes = shard_nbytes * static_cast<size_t>(size());
  const bool scaled = args.pre != 1.0f;
  std::byte* sum = scratch(shard_nbytes + (scaled ? whole_nbytes : 0));
  const void* sent = args.whole;
  if (scaled) {
    ReduceScatter scale;
    scale.whole_dtype = scale.shard_dtype = args.whole_dtype;
    scale.shard = sum + shard_nbytes;
    scale.shard_numel = args.shard_numel * size();
    scale.post = args.pre;
    sum_slices({args.whole}, scale);
    sent = sum + shard_nbytes;
  }
  check(nccl_.reduce_scatter(sent, sum, static_cast<size_t>(args.shard_numel), type_of(args.whole_dtype), NcclOp::sum,
                             comm_, stream()),
        "ncclReduceScatter");
  ReduceScatter finish = args;
  finish.pre = 1.0f;
  sum_slices({sum}, finish);
}

void NcclCarrier::all_reduce(const Ticket&, const AllReduce& args) {
  check(nccl_.all_reduce(args.data, args.data, static_cast<size_t>(args.numel), type_of(args.dtype), NcclOp::sum, comm_,
                         stream()),
        "ncclAllReduce");
  if (args.post == 1.0f) return;
  sum_slices({args.data}, reduction_of(args));
}

void NcclCarrier::broadcast(const Ticket&, const Broadcast& args) {
  check(nccl_.broadcast(args.data, args.data, args.nbytes, NcclType::int8, args.root, comm_, stream()),
        "ncclBroadcast");
}

void NcclCarrier::barrier(const Ticket& ticket) { host_->barrier({"meet for", ticket.subject}).wait(); }

std::unique_ptr<Carrier> NcclCarrier::channel(const std::string& name) {
  return std::make_unique<NcclCarrier>(host_->channel(name), compute());
}

void NcclCarrier::abort(const std::string& reason) {
  failed_ = true;
  host_->abort(reason);
}

void NcclCarrier::check(int result, const char* call) {
  if (result != 0) failed_ = true;
  nccl_.check(result, call);
}

}  // namespace shoal
