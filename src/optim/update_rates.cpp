// See update_rates.h.
#include "optim/update_rates.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "kernels/segment.h"
#include "optim/group_steps.h"
#include "plan/from_config.h"
#include "plan/memory.h"

namespace shoal {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Updates of zeros, in memory of its own, over and over.
class Updates {
 public:
  Updates(Queue& host, const MeasuredUpdate& update, const std::shared_ptr<Ledger>& ledger)
      : host_(host), numel_(update.numel) {
    const auto numel = static_cast<size_t>(update.numel);
    const size_t element = nbytes_of(update.dtype), grad = nbytes_of(update.grad_dtype);
    const size_t master = master_nbytes(update.dtype, update.narrow_masters);
    const size_t moment = nbytes_of(update.moment_dtype);
    const int moments = moments_of(update.optimizer);
    memory_ = host.allocate(numel * (element + grad + master + static_cast<size_t>(moments) * moment), ledger,
                            MemoryKind::staging);
    host.zero(memory_->data(), memory_->nbytes());
    kernels::Segment segment;
    segment.numel = update.numel;
    std::byte* at = memory_->data();
    const auto take = [&](size_t nbytes) { return std::exchange(at, at + nbytes); };
    segment.state_dtype = update.moment_dtype;
    if (moments > 0) segment.first = take(numel * moment);
    if (moments > 1) segment.second = take(numel * moment);
    segment.master_kind = kernels::master_of(update.dtype, update.narrow_masters);
    if (master > 0) segment.master = take(numel * master);
    segment.weight = take(numel * element);
    segment.weight_dtype = update.dtype;
    segment.grad = take(numel * grad);
    segment.grad_dtype = update.grad_dtype;
    list_ = host.make_update_list({segment}, {0});
    StepNumbers numbers;
    numbers.lrs = numbers.weight_decays = {0};
    steps_ = group_steps(update.optimizer, numbers);
  }

  void run_once() { host_.update(*list_, in_host_memory(steps_)); }
  int64_t numel() const { return numel_; }

 private:
  Queue& host_;
  int64_t numel_;
  std::shared_ptr<Slab> memory_;
  std::unique_ptr<UpdateList> list_;
  GroupSteps steps_;
};

}  // namespace

UpdateRates measure_update_rates(Queue& queue, std::span<std::byte> there, Queue& host, const MeasuredUpdate& update,
                                 const std::shared_ptr<Ledger>& ledger) {
  constexpr int kLeastUpdates = 4, kLeastCopies = 32;
  constexpr size_t kCopyNbytes = size_t{16} << 20;
  const size_t nbytes = std::min(kCopyNbytes, there.size() / 2);
  const std::shared_ptr<Slab> here = queue.allocate_host(2 * nbytes, ledger, MemoryKind::staging);
  const std::unique_ptr<CopyStreams> streams = queue.make_copy_streams(2);
  Updates updates(host, update, ledger);

  std::atomic<int> done = -1;  // the first is no measurement: its threads are made
  double host_seconds = 0;
  std::exception_ptr error;
  std::jthread thread([&](const std::stop_token& stop) {
    try {
      updates.run_once();
      done = 0;
      const Clock::time_point begin = Clock::now();
      while (!stop.stop_requested() || done == 0) {
        updates.run_once();
        ++done;
      }
      host_seconds = seconds_since(begin);
    } catch (...) {
      error = std::current_exception();
      done = kLeastUpdates;  // nobody waits for more
    }
  });
  while (done < 0) std::this_thread::yield();

  const Clock::time_point begin = Clock::now();
  int copies = 0;
  for (; copies < kLeastCopies || done < kLeastUpdates; ++copies) {
    streams->copy_in(0, there.data(), here->data(), nbytes, -1);
    streams->copy_out(1, here->data() + nbytes, there.data() + nbytes, nbytes);
    if (copies % 2 == 1) continue;  // two are on their way
    streams->wait_in(0);
    streams->wait_out(1);
  }
  streams->wait_in(0);
  streams->wait_out(1);
  const double bus_seconds = seconds_since(begin);
  thread.request_stop();
  thread.join();
  if (error) std::rethrow_exception(error);
  return {.bus_nbytes = static_cast<double>(nbytes) * copies / bus_seconds,
          .host_numel = static_cast<double>(updates.numel()) * done / host_seconds};
}

}  // namespace shoal
