// See cuda_mark.h.
#include "comm/gpu/cuda_mark.h"

#include <utility>

namespace shoal {

std::unique_ptr<cuda::Event> EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<cuda::Event> event = std::move(free_.back());
      free_.pop_back();
      return event;
    }
  }
  return std::make_unique<cuda::Event>();
}

void EventPool::put_back(std::unique_ptr<cuda::Event> event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(event));
}

CudaMark::CudaMark(std::shared_ptr<EventPool> pool, cuda::StreamHandle stream)
    : pool_(std::move(pool)), begin_(pool_->take()) {
  begin_->record(stream);
}

CudaMark::~CudaMark() { pool_->put_back(std::move(begin_)); }

void CudaMark::end(std::shared_ptr<cuda::Event> over) {
  over_ = std::move(over);
  state_.store(State::ended, std::memory_order_release);
}

void CudaMark::drop() { state_.store(State::dropped, std::memory_order_release); }

bool CudaMark::finished() {
  switch (state_.load(std::memory_order_acquire)) {
    case State::open: return false;
    case State::ended: return over_->reached();
    case State::dropped: return true;
  }
  return true;
}

}  // namespace shoal
