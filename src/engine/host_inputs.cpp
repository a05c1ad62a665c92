// See host_inputs.h.
#include "engine/host_inputs.h"

#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "base/check.h"

namespace shoal {

namespace {

bool travels(const at::Tensor& tensor, at::Device device) {
  return tensor.defined() && tensor.requires_grad() && tensor.device() == device && tensor.numel() > 0 &&
         tensor.is_non_overlapping_and_dense();
}

}  // namespace

HostInputs::HostInputs(Queue& queue, at::Device device, std::shared_ptr<Ledger> ledger)
    : queue_(queue), device_(device), ledger_(std::move(ledger)), wires_(queue.make_wires(0)) {
  wires_->log_holds_as("host: activations");
}

HostInputs::~HostInputs() {
  try {
    for (int slot = 0; slot < static_cast<int>(slots_.size()); ++slot) {
      wires_->wait_out(slot);
      wires_->wait_in(slot);
    }
  } catch (...) {  // a GPU that failed has said so where its bytes were needed
  }
  for (Trip* trip : trips_) {
    trip->home_ = nullptr;
    trip->items_.clear();
  }
}

HostInputs::Trip::~Trip() {
  if (home_ == nullptr) return;
  try {
    home_->forget(*this);
  } catch (...) {  // as above
  }
}

std::shared_ptr<HostInputs::Trip> HostInputs::send(const std::vector<at::Tensor>& inputs) {
  while (leaving_.size() >= kOnDevice) let_go(*leaving_.front());
  const std::shared_ptr<Trip> trip(new Trip(this));
  trips_.push_back(trip.get());
  leaving_.push_back(trip.get());
  for (const at::Tensor& input : inputs) {
    Item& item = trip->items_.emplace_back();
    if (!input.defined()) continue;
    item.on_device = input.detach();
    if (!travels(input, device_)) continue;
    item.sizes = input.sizes().vec();
    item.strides = input.strides().vec();
    item.options = input.options();
    item.slot = take_slot(input.nbytes());
    // The copy waits for the work that makes the input, and with it for what the slot held before: the queue was held
    // until that had come, or had gone.
    wires_->mark_used(item.slot);
    wires_->copy_out(item.slot, host(item.slot), static_cast<const std::byte*>(input.const_data_ptr()), input.nbytes());
  }
  return trip;
}

std::vector<at::Tensor> HostInputs::bring(Trip& trip) {
  SHOAL_CHECK(trip.home_ == this, "a trip of another home");
  order(trip);
  const bool leaving = std::find(leaving_.begin(), leaving_.end(), &trip) != leaving_.end();
  std::vector<at::Tensor> inputs;
  for (Item& item : trip.items_) {
    // The queue waits until the bytes are there.
    if (item.arriving) wires_->hold_queue(item.slot);
    item.arriving = false;
    inputs.push_back(item.on_device.defined() ? item.on_device.detach() : at::Tensor());
    if (item.slot >= 0 && !leaving) item.on_device.reset();  // the region's now
  }
  const auto here = std::find(trips_.begin(), trips_.end(), &trip);
  if (here != trips_.begin()) order(**std::prev(here));
  return inputs;
}

// Orders what is on the host alone.
void HostInputs::order(Trip& trip) {
  std::vector<Item*> ordered;
  for (Item& item : trip.items_) {
    if (item.slot < 0 || item.on_device.defined()) continue;
    item.on_device = at::empty_strided(item.sizes, item.strides, item.options);
    ordered.push_back(&item);
  }
  if (ordered.empty()) return;
  // The copies wait for the queue: it may still use the memory for what it was given before.
  wires_->follow_queue();
  for (Item* item : ordered) {
    wires_->copy_in(item->slot, static_cast<std::byte*>(item->on_device.mutable_data_ptr()), host(item->slot),
                    item->on_device.nbytes(), /*after=*/item->slot);
    item->arriving = true;
  }
}

// What comes into the memory of its tensors comes after their copies to the host.
void HostInputs::let_go(Trip& trip) {
  std::erase(leaving_, &trip);
  for (Item& item : trip.items_) {
    if (item.slot < 0) continue;
    wires_->hold_queue_out(item.slot);
    item.on_device.reset();
  }
}

void HostInputs::forget(Trip& trip) {
  trips_.remove(&trip);
  if (std::find(leaving_.begin(), leaving_.end(), &trip) != leaving_.end()) let_go(trip);
  for (Item& item : trip.items_) {
    if (item.slot < 0) continue;
    if (item.arriving) wires_->hold_queue(item.slot);  // before its memory is used for something else
    slots_[static_cast<size_t>(item.slot)].taken = false;
  }
}

// The smallest free one that is large enough; else a free one is made larger, so that batches of many lengths do not
// pile up slots; else a new one.
int HostInputs::take_slot(size_t nbytes) {
  int best = -1, any = -1;
  for (int i = 0; i < static_cast<int>(slots_.size()); ++i) {
    const Slot& slot = slots_[static_cast<size_t>(i)];
    if (slot.taken) continue;
    any = i;
    if (slot.nbytes() < nbytes) continue;
    if (best < 0 || slot.nbytes() < slots_[static_cast<size_t>(best)].nbytes()) best = i;
  }
  if (best < 0 && any >= 0) {
    wires_->wait_out(any);
    wires_->wait_in(any);
    Slot& slot = slots_[static_cast<size_t>(any)];
    slot.memory = nullptr;  // the host may not have both
    slot.memory = queue_.allocate_host(nbytes, ledger_, MemoryKind::host_inputs);
    best = any;
  }
  if (best < 0) {
    best = static_cast<int>(slots_.size());
    wires_->make_room(best + 1);
    slots_.push_back({queue_.allocate_host(nbytes, ledger_, MemoryKind::host_inputs)});
  }
  slots_[static_cast<size_t>(best)].taken = true;
  return best;
}

}  // namespace shoal
