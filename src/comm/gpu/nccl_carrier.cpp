// See nccl_carrier.h.
#include "comm/gpu/nccl_carrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "comm/group/reduction.h"
#include "plan/exchange_pieces.h"
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
                         Reduce reduce, std::shared_ptr<CudaLane> lane)
    : CudaHostedCarrier(std::move(host), compute, name, "NCCL", std::move(lane)),
      reduce_(reduce),
      nccl_(NcclLibrary::get()),
      link_(connect()) {
  Watchdog::Options options;
  if (ProgressReports* reports = fate() && size() > 1 ? fate()->progress() : nullptr) {
    progress_ = reports->open(link_number_, channel_name(), members().ranks());
    options.looked = [link = progress_](uint64_t sequence, bool begun) { link->set_under_way(sequence, begun); };
    // The fate is the world, which lives on for as long as somebody has it.
    options.blame = [fate = fate(), reports, link = progress_](uint64_t sequence) {
      return reports->cause(*link, sequence);
    };
  }
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
  link_number_ = hash_text({id.bytes.data(), id.bytes.size()});
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
    if (fate && fate->failure()) throw;  // that is what it says
    give_up(at, error);
  }
}

void NcclCarrier::give_up(const std::string& at, const Error& error) {
  if (!fate()) throw error;
  Failure failure{global(), at, error.what()};
  if (const auto behind = what_lies_behind(*fate(), failure)) failure = *behind;
  fate()->fail(failure);
  throw error_of(failure, global(), at);
}

void NcclCarrier::issued(const Ticket& ticket) {
  if (!progress_) return;
  const std::string what = fmt::format("{} {} {} {} {} {} {}", ticket.subject_hash, static_cast<int>(ticket.kind),
                                       ticket.nbytes, ticket.piece_nbytes, static_cast<int>(ticket.in_dtype),
                                       static_cast<int>(ticket.out_dtype), ticket.root);
  progress_->issue({ticket.sequence, hash_text(what), ticket.subject});
}

NcclCarrier::~NcclCarrier() {
  if (progress_) progress_->leave();
  try {
    if (!failed_) {
      drain();  // a peer may still need this rank for the last collective
      link_->finish();
    }
  } catch (const std::exception&) {
  }
  link_->abort();  // where the others do not come: destroying would wait for them
}

void NcclCarrier::call(const Ticket& ticket, const char* name, const std::function<int(NcclComm)>& call) {
  try {
    link_->call(name, call);
  } catch (const Error& error) {
    failed_ = true;
    check();  // why it was aborted says more than that it was
    give_up(describe(ticket, channel_name()), error);
  }
}

void NcclCarrier::send_and_receive(const Ticket& ticket, const std::function<Mail(int)>& mail_of, void* stream) {
  call(ticket, "ncclSend and ncclRecv", [&](NcclComm comm) {
    int result = nccl_.group_start();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      const Mail mail = mail_of(peer);
      if (result == 0 && mail.sent_nbytes > 0) {
        result = nccl_.send(mail.sent, mail.sent_nbytes, NcclType::int8, peer, comm, stream);
      }
      if (result == 0 && mail.received_nbytes > 0) {
        result = nccl_.receive(mail.received, mail.received_nbytes, NcclType::int8, peer, comm, stream);
      }
    }
    const int ended = nccl_.group_end();
    return result != 0 ? result : ended;
  });
}

void NcclCarrier::all_gather(const Ticket& ticket, const Gather& args) {
  const std::byte* own = own_on_gpu(args);
  if (args.whole_nbytes == args.strip_nbytes * static_cast<size_t>(size())) {
    call(ticket, "ncclAllGather", [&](NcclComm comm) {
      return nccl_.all_gather(own, args.whole, args.strip_nbytes, NcclType::int8, comm, stream());
    });
    return;
  }
  // The last strips are short.
  const size_t own_nbytes = args.nbytes_at(rank());
  if (own != args.place(rank())) copy(args.place(rank()), own, own_nbytes);
  send_and_receive(
      ticket,
      [&](int peer) {
        return Mail{own, own_nbytes, args.place(peer), args.nbytes_at(peer)};
      },
      stream());
}

void NcclCarrier::read_all(const Ticket& ticket, const Strips& strips, const Take& take) {
  std::byte* received = grown(received_, strips.nbytes * static_cast<size_t>(size()));
  call(ticket, "ncclAllGather", [&](NcclComm comm) {
    return nccl_.all_gather(strips.data, received, strips.nbytes, NcclType::int8, comm, stream());
  });
  std::vector<const void*> sources;
  for (int peer = 0; peer < size(); ++peer) sources.push_back(received + static_cast<size_t>(peer) * strips.nbytes);
  take({0, strips.nbytes, sources.data()});
}

// See [Note: one piece travels while the one before it is added].
void NcclCarrier::exchange(const Ticket& ticket, const Strips& strips, const Take& take) {
  if (strips.nbytes == 0) return;
  if (size() == 1) {
    const void* own = strips.data;
    return take({0, strips.nbytes, &own});
  }
  if (strips.count == 1) return read_all(ticket, strips, take);
  const bool in_place = strips.received != nullptr;  // whoever wants all strips has the memory for them
  const ExchangePieces cut = cut_exchange(strips.strip_nbytes, size(), ticket.piece_nbytes);
  const size_t piece_nbytes = in_place ? strips.strip_nbytes : cut.piece_nbytes;
  std::byte* const buffers = in_place ? nullptr : grown(received_, cut.nbytes());
  const bool in_turn = !in_place && cut.count > 1;
  if (in_turn && !wire_) wire_ = std::make_unique<cuda::Stream>(cuda::Stream::Priority::high);
  void* const wire = in_turn ? wire_->handle() : stream();
  if (in_turn) {
    begin_.record(stream());
    begin_.hold_back(wire);  // the wire sends and overwrites nothing before the channel has come here
  }
  std::vector<const void*> sources(static_cast<size_t>(size()));
  size_t turn = 0;
  for (size_t begin = 0, piece = 0; begin < strips.strip_nbytes; begin += piece_nbytes, ++piece, turn = 1 - turn) {
    const auto nbytes_in = [&](int strip) {  // of this piece
      const size_t nbytes = strips.nbytes_at(strip);
      return nbytes <= begin ? 0 : std::min(piece_nbytes, nbytes - begin);
    };
    const auto place_of = [&](int peer) {
      if (in_place) return strips.received + static_cast<size_t>(peer) * strips.strip_nbytes;
      const auto slot = static_cast<size_t>(peer < rank() ? peer : peer - 1);
      return buffers + turn * cut.buffer_nbytes + slot * piece_nbytes;
    };
    const size_t own_nbytes = nbytes_in(rank());
    if (in_turn && piece >= 2) taken_[turn].hold_back(wire);  // the wire waits for what lay there to be taken
    send_and_receive(
        ticket,
        [&](int peer) {
          const std::byte* sent = strips.data + static_cast<size_t>(peer) * strips.strip_nbytes + begin;
          return Mail{sent, nbytes_in(peer), place_of(peer), own_nbytes};
        },
        wire);
    if (in_turn) {
      arrived_[turn].record(wire);
      arrived_[turn].hold_back(stream());  // the channel waits for the piece to arrive
    }
    const std::byte* own = strips.data + static_cast<size_t>(rank()) * strips.strip_nbytes + begin;
    for (int peer = 0; peer < size(); ++peer) {
      sources[static_cast<size_t>(peer)] = peer == rank() ? own : place_of(peer);
    }
    if (own_nbytes > 0) take({begin, own_nbytes, sources.data()});
    if (in_turn) taken_[turn].record(stream());
  }
}

std::unique_ptr<Carrier> NcclCarrier::over(std::unique_ptr<Group> host, const std::string& name,
                                           std::shared_ptr<CudaLane> lane) {
  return std::make_unique<NcclCarrier>(std::move(host), compute(), name, reduce_, std::move(lane));
}

void NcclCarrier::reduce_scatter(const Ticket& ticket, const ReduceScatter& args) {
  SHOAL_CHECK(args.groups.size == 0, "NCCL adds all ranks at once");
  std::byte* sum = scratch(static_cast<size_t>(args.shard_numel) * nbytes_of(args.whole_dtype));
  call(ticket, "ncclReduceScatter", [&](NcclComm comm) {
    return nccl_.reduce_scatter(args.whole, sum, static_cast<size_t>(args.shard_numel), type_of(args.whole_dtype),
                                NcclOp::sum, comm, stream());
  });
  sum_slices({sum}, args);
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
