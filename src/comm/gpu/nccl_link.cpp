// See nccl_link.h.
#include "comm/gpu/nccl_link.h"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "shoal/error.h"

namespace shoal {

namespace {

constexpr auto kLookPeriod = std::chrono::milliseconds(20);
// A call that is under way usually returns at once. One that does not waits for a peer, which an abort ends.
constexpr auto kCallPatience = std::chrono::milliseconds(500);

struct Connected {
  int result = 0;
  NcclComm comm = nullptr;
};

}  // namespace

NcclLink::NcclLink(const NcclLibrary& nccl, std::function<int(NcclComm*)> connect,
                   const std::function<void()>& look_around)
    : nccl_(nccl) {
  struct Shared {  // with the thread, which may be left behind
    std::promise<Connected> promise;
    std::mutex mutex;
    bool wanted = true;
  };
  const auto shared = std::make_shared<Shared>();
  auto future = shared->promise.get_future();
  std::thread([shared, connect = std::move(connect), &library = nccl] {
    Connected connected;
    try {
      connected.result = connect(&connected.comm);
    } catch (...) {
      shared->promise.set_exception(std::current_exception());
      return;
    }
    const std::lock_guard lock(shared->mutex);
    if (shared->wanted) {
      shared->promise.set_value(connected);
    } else if (connected.result == 0) {
      library.comm_abort(connected.comm);
    }
  }).detach();
  while (future.wait_for(kLookPeriod) != std::future_status::ready) {
    try {
      look_around();
    } catch (...) {
      const std::lock_guard lock(shared->mutex);
      if (future.wait_for(std::chrono::seconds(0)) == std::future_status::ready) break;
      shared->wanted = false;
      throw;
    }
  }
  const Connected connected = future.get();
  nccl_.check(connected.result, "ncclCommInitRank");
  comm_ = connected.comm;
}

NcclLink::~NcclLink() { abort(); }

void NcclLink::call(const char* name, const std::function<int(NcclComm)>& call) {
  NcclComm comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) throw Error("comm nccl", fmt::format("{}: its communicator was aborted.", name));
    comm = comm_;
    in_call_ = true;
  }
  const int result = call(comm);
  {
    const std::lock_guard lock(mutex_);
    in_call_ = false;
  }
  changed_.notify_all();
  nccl_.check(result, name);
}

std::string NcclLink::trouble() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return "";
  int found = 0;
  constexpr int kInProgress = 7;
  const int asked = nccl_.comm_get_async_error(comm_, &found);
  const int result = asked != 0 ? asked : found;
  if (result == 0 || result == kInProgress) return "";
  return fmt::format("NCCL failed meanwhile: {}. NCCL_DEBUG=WARN in the environment says more.",
                     nccl_.get_error_string(result));
}

void NcclLink::abort() {
  std::unique_lock lock(mutex_);
  if (comm_ == nullptr) return;
  NcclComm comm = std::exchange(comm_, nullptr);
  changed_.wait_for(lock, kCallPatience, [this] { return !in_call_; });
  lock.unlock();
  nccl_.comm_abort(comm);
}

void NcclLink::finish() {
  const std::lock_guard lock(mutex_);
  if (comm_ != nullptr) nccl_.comm_destroy(std::exchange(comm_, nullptr));
}

}  // namespace shoal
