// One communicator of NCCL: collectives are called by one thread, and any other may abort it meanwhile. After that
// every call throws, and no stream waits for it.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "comm/gpu/nccl_library.h"

namespace shoal {

class NcclLink {
 public:
  // `connect` makes the communicator and blocks until all ranks are connected; NCCL knows no timeout there, so it runs
  // on a thread that is left behind when `look_around`, called meanwhile, throws.
  NcclLink(const NcclLibrary& nccl, std::function<int(NcclComm*)> connect, const std::function<void()>& look_around);
  ~NcclLink();  // aborts what finish() has not ended
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // Throws what NCCL says, or that the communicator is gone.
  void call(const char* name, const std::function<int(NcclComm)>& call);
  // What NCCL found wrong since, in its words; empty: nothing, or the communicator is gone.
  std::string trouble();
  // Ends every collective, also those on a stream, as they are. The second time it does nothing.
  void abort();
  // All collectives are over.
  void finish();

 private:
  const NcclLibrary& nccl_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  NcclComm comm_ = nullptr;  // null when it is gone
  bool in_call_ = false;
};

}  // namespace shoal
