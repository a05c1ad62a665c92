// See nccl_carrier.h.
#include "comm/gpu/nccl_carrier.h"

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "comm/group/reduction.h"
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

NcclCarrier::NcclCarrier(std::unique_ptr<Group> host, const ComputeStream& compute, const std::string& name,
                         std::shared_ptr<CudaLane> lane)
    : CudaHostedCarrier(std::move(host), compute, name, "NCCL", std::move(lane)),
      nccl_(NcclLibrary::get()),
      link_(connect()) {
  Watchdog::Options options;
  options.trouble = [link = link_] { return link->trouble(); };
  options.stop = [link = link_] { link->abort(); };
  watch(WatchFrom::begin, std::move(options));
}

std::shared_ptr<NcclLink> NcclCarrier::connect() {
  NcclUniqueId id{};
  if (rank() == 0) nccl_.check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
  host()
      .broadcast({.subject = {"share NCCL's id", "all ranks"},
                  .data = id.bytes.data(),
                  .nbytes = id.bytes.size(),
                  .root = 0,
                  .keep = nullptr})
      .wait();
  const std::shared_ptr<Fate> fate = this->fate();
  const auto begin = std::chrono::steady_clock::now();
  const std::string at =
      "connecting " + (channel_name().empty() ? "GPUs" : channel_name() + " of GPUs") + " through NCCL";
  const auto look_around = [&] {
    if (!fate) return;
    std::optional<Failure> found = fate->failure();
    if (!found) {
      std::string cause = fate->dead_peer();
      if (cause.empty() && std::chrono::steady_clock::now() - begin >= fate->timeout()) {
        cause = cause_unconnected(fate->timeout());
      }
      if (cause.empty()) return;
      found = Failure{global(), at, cause};
      fate->fail(*found);
    }
    throw error_of(*found, global(), at);
  };
  try {
    return std::make_shared<NcclLink>(
        nccl_,
        [&nccl = nccl_, id, ranks = size(), own = rank(), device = compute().device](NcclComm* comm) {
          cuda::use_device(device);
          return nccl.comm_init_rank(comm, ranks, id, own);
        },
        look_around);
  } catch (const Error& error) {
    tell_others(at, error);
    throw;
  }
}

void NcclCarrier::tell_others(const std::string& at, const Error& error) {
  if (fate()) fate()->fail({global(), at, error.what()});
}

NcclCarrier::~NcclCarrier() {
  try {
    if (!failed_) {
      drain();  // a peer may still need this rank for the last collective
      link_->finish();
    }
  } catch (const Error&) {
  }
  link_->abort();  // where the others do not come: destroying would wait for them
}

void NcclCarrier::call(const Ticket& ticket, const char* name, const std::function<int(NcclComm)>& call) {
  try {
    link_->call(name, call);
  } catch (const Error& error) {
    failed_ = true;
    check();  // why it was aborted says more than that it was
    tell_others(describe(ticket, channel_name()), error);
    throw;
  }
}

void NcclCarrier::all_gather(const Ticket& ticket, const Gather& args) {
  const std::byte* own = own_on_gpu(args);
  call(ticket, "ncclAllGather", [&](NcclComm comm) {
    return nccl_.all_gather(own, args.whole, args.strip_nbytes, NcclType::int8, comm, stream());
  });
}

void NcclCarrier::exchange(const Ticket& ticket, const Strips& strips, const Take& take) {
  const size_t nbytes = strips.strip_nbytes;
  std::byte* received = strips.received != nullptr ? strips.received : scratch(strips.nbytes);
  std::vector<const void*> sources;
  for (int peer = 0; peer < size(); ++peer) {
    const size_t begin = static_cast<size_t>(peer) * nbytes;
    sources.push_back(peer == rank() ? strips.data + begin : received + begin);
  }
  if (nbytes == 0) return;
  call(ticket, "ncclSend and ncclRecv", [&](NcclComm comm) {
    int result = nccl_.group_start();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      const size_t begin = static_cast<size_t>(peer) * nbytes;
      if (result == 0) result = nccl_.send(strips.data + begin, nbytes, NcclType::int8, peer, comm, stream());
      if (result == 0) result = nccl_.receive(received + begin, nbytes, NcclType::int8, peer, comm, stream());
    }
    const int ended = nccl_.group_end();
    return result != 0 ? result : ended;
  });
  take({0, nbytes, sources.data()});
}

std::unique_ptr<Carrier> NcclCarrier::over(std::unique_ptr<Group> host, const std::string& name,
                                           std::shared_ptr<CudaLane> lane) {
  return std::make_unique<NcclCarrier>(std::move(host), compute(), name, std::move(lane));
}

void NcclCarrier::reduce_scatter(const Ticket& ticket, const ReduceScatter& args) {
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
  call(ticket, "ncclReduceScatter", [&](NcclComm comm) {
    return nccl_.reduce_scatter(sent, sum, static_cast<size_t>(args.shard_numel), type_of(args.whole_dtype),
                                NcclOp::sum, comm, stream());
  });
  ReduceScatter finish = args;
  finish.pre = 1.0f;
  sum_slices({sum}, finish);
}

void NcclCarrier::all_reduce(const Ticket& ticket, const AllReduce& args) {
  call(ticket, "ncclAllReduce", [&](NcclComm comm) {
    return nccl_.all_reduce(args.data, args.data, static_cast<size_t>(args.numel), type_of(args.dtype), NcclOp::sum,
                            comm, stream());
  });
  if (args.post == 1.0f) return;
  sum_slices({args.data}, reduction_of(args));
}

void NcclCarrier::broadcast(const Ticket& ticket, const Broadcast& args) {
  call(ticket, "ncclBroadcast", [&](NcclComm comm) {
    return nccl_.broadcast(args.data, args.data, args.nbytes, NcclType::int8, args.root, comm, stream());
  });
}

void NcclCarrier::abort(const std::string& reason) {
  failed_ = true;
  host().abort(reason);  // the watchdog hears of it, and ends what is under way
}

}  // namespace shoal
