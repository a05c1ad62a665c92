// What carriers for memory of a GPU have in common: a stream of their own, and the marks between it and the stream on
// which the rank computes. No collective waits for the GPU: it is given to the stream, and events keep the order.
#pragma once

#include <memory>
#include <string>

#include "comm/carrier.h"
#include "device/cuda.h"
#include "device/queue.h"

namespace shoal {

class CudaCarrier : public Carrier {
 public:
  explicit CudaCarrier(const ComputeStream& compute);

  std::shared_ptr<const void> mark() final;
  void come_after(const std::shared_ptr<const void>& mark) final;
  Joining joining() final;
  void* stream() const final { return stream_.handle(); }
  std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) final;
  std::shared_ptr<Ledger> ledger() const final { return ledger_; }

 protected:
  const ComputeStream& compute() const { return compute_; }
  Queue& queue() { return *queue_; }
  // This rank's shard in GPU memory: one that lies in host memory comes to its slice of the whole first.
  const void* shard_on_gpu(const AllGather& args);
  // Memory of the GPU that is the carrier's own, at least this large; the same memory grows from call to call.
  std::byte* scratch(size_t nbytes);
  // shard = round(post * sum of the ranks' slices), the sources in GPU memory of this process.
  void sum_slices(const std::vector<const void*>& sources, const ReduceScatter& args);

 private:
  ComputeStream compute_;
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  cuda::Stream stream_;
  std::unique_ptr<Queue> queue_;  // on that stream
  std::shared_ptr<Slab> scratch_;
};

}  // namespace shoal
