// Collectives of GPUs through NCCL: one communicator a channel, made through the hosts. NCCL moves bytes, and the sum
// above it is the ordered one of reduction.h. With Reduce::nccl a reduction is NCCL's own sum in the dtype on the wire:
// the same call at every stage, so stages agree, but its order is NCCL's.
//
// [Note: one piece travels while the one before it is added]
// An exchange of more than one piece (plan/exchange_pieces.h) goes through two buffers. Sends and receives are on a
// stream of their own, the wire's; what `take` does with a piece is on the channel's. The channel's stream waits for
// each piece to arrive; the wire's waits, before it writes a buffer again, until the piece that lay there was taken.
// The last piece arrives behind all sends, so what comes later on the channel's stream may overwrite what was sent.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "comm/failure/progress_reports.h"
#include "comm/gpu/cuda_hosted_carrier.h"
#include "comm/gpu/nccl_link.h"

namespace shoal {

class NcclCarrier final : public CudaHostedCarrier {
 public:
  // Every rank makes one, over a host channel of its own. `name` is for messages.
  NcclCarrier(std::unique_ptr<Group> host, const ComputeStream& compute, const std::string& name = "",
              Reduce reduce = Reduce::exact, std::shared_ptr<CudaLane> lane = nullptr);
  ~NcclCarrier() override;

  void exchange(const Ticket& ticket, const Strips& strips, const Take& take) override;
  void all_gather(const Ticket& ticket, const Gather& args) override;
  void broadcast(const Ticket& ticket, const Broadcast& args) override;
  void abort(const std::string& reason) override;
  OwnSums* own_sums() override { return reduce_ == Reduce::nccl ? this : nullptr; }
  bool receives() const override { return reduce_ == Reduce::exact && size() > 1; }
  // Up to here every rank receives all of every other's elements.
  size_t most_nbytes_summed_alone() const override { return size_t{256} << 10; }

 protected:
  std::unique_ptr<Carrier> over(std::unique_ptr<Group> host, const std::string& name,
                                std::shared_ptr<CudaLane> lane) override;
  void issued(const Ticket& ticket) override;

 private:
  void reduce_scatter(const Ticket& ticket, const ReduceScatter& args) override;
  void all_reduce(const Ticket& ticket, const AllReduce& args) override;
  std::shared_ptr<NcclLink> connect();
  // What a rank sends to and receives from each of the others, where there is anything, all together.
  struct Mail {
    const std::byte* sent = nullptr;
    size_t sent_nbytes = 0;
    std::byte* received = nullptr;
    size_t received_nbytes = 0;
  };
  void send_and_receive(const Ticket& ticket, const std::function<Mail(int peer)>& mail_of, void* stream);
  // The one strip that each rank brings for all.
  void read_all(const Ticket& ticket, const Strips& strips, const Take& take);
  void call(const Ticket& ticket, const char* name, const std::function<int(NcclComm)>& call);
  // Throws what lies behind an error that NCCL told this rank alone, and tells it to the others.
  [[noreturn]] void give_up(const std::string& at, const Error& error);

  const Reduce reduce_;
  const NcclLibrary& nccl_;
  uint64_t link_number_ = 0;                         // the same on every rank; NCCL's id says it
  std::shared_ptr<NcclLink> link_;                   // shared with the watchdog, which aborts it
  std::atomic<bool> failed_{false};                  // abort() comes from other threads
  std::shared_ptr<ProgressReports::Link> progress_;  // shared with the reports and the watchdog; null: none are made
  // See [Note: one piece travels while the one before it is added].
  std::shared_ptr<Slab> received_;
  std::unique_ptr<cuda::Stream> wire_;  // once it is needed
  std::array<cuda::Event, 2> arrived_, taken_;
  cuda::Event begin_;
};

}  // namespace shoal
