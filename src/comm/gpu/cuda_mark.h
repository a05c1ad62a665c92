// The marks of one collective on a GPU's stream: an event before it and one behind it, which the watchdog asks for. The
// event before comes from a pool, and goes back there when nobody watches any more.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/failure/watch.h"
#include "device/cuda.h"

namespace shoal {

class EventPool {
 public:
  std::unique_ptr<cuda::Event> take();  // in a thread whose GPU is the pool's
  void put_back(std::unique_ptr<cuda::Event> event);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<cuda::Event>> free_;
};

class CudaMark final : public Watch::Probe {
 public:
  // Here the collective begins.
  CudaMark(std::shared_ptr<EventPool> pool, cuda::StreamHandle stream);
  ~CudaMark() override;

  // Here it ends: a point already recorded behind it on the same stream.
  void end(std::shared_ptr<cuda::Event> over);
  // It was never given to the stream.
  void drop();

  bool started() override { return begin_->reached(); }
  bool finished() override;

 private:
  enum class State { open, ended, dropped };
  std::shared_ptr<EventPool> pool_;  // shared by the marks of a carrier and with it
  std::unique_ptr<cuda::Event> begin_;
  std::shared_ptr<cuda::Event> over_;  // shared with the handle; written before the state says so
  std::atomic<State> state_{State::open};
};

}  // namespace shoal
