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
    : queue_(queue), device_(device), ledger_(std::move(ledger)), copy_streams_(queue.make_copy_streams(0)) {
  copy_streams_->log_stalls_as("host: activations");
}

HostInputs::~HostInputs() {
  try {
    for (int slot = 0; slot < static_cast<int>(slots_.size()); ++slot) {
      copy_streams_->wait_out(slot);
      copy_streams_->wait_in(slot);
    }
  } catch (...) {  // a GPU that failed has said so where its bytes were needed
  }
  for (Offloaded* offloaded : alive_) {
    offloaded->home_ = nullptr;
    offloaded->items_.clear();
  }
}

HostInputs::Offloaded::~Offloaded() {
  if (home_ == nullptr) return;
  try {
    home_->forget(*this);
  } catch (...) {  // as above
  }
}

std::shared_ptr<HostInputs::Offloaded> HostInputs::send(const std::vector<at::Tensor>& inputs) {
  while (leaving_.size() >= kOnDevice) let_go(*leaving_.front());
  const std::shared_ptr<Offloaded> offloaded(new Offloaded(this));
  alive_.push_back(offloaded.get());
  leaving_.push_back(offloaded.get());
  for (const at::Tensor& input : inputs) {
    Item& item = offloaded->items_.emplace_back();
    if (!input.defined()) continue;
    item.on_device = input.detach();
    if (!travels(input, device_)) continue;
    item.sizes = input.sizes().vec();
    item.strides = input.strides().vec();
    item.options = input.options();
    item.slot = take_slot(input.nbytes());
    // The copy waits for the work that makes the input, and with it for what the slot held before: the queue was held
    // until that had come, or had gone.
    copy_streams_->mark_used(item.slot);
    copy_streams_->copy_out(item.slot, host(item.slot), static_cast<const std::byte*>(input.const_data_ptr()),
                            input.nbytes());
  }
  return offloaded;
}

std::vector<at::Tensor> HostInputs::bring(Offloaded& offloaded) {
  SHOAL_CHECK(offloaded.home_ == this, "inputs that another engine sent");
  order(offloaded);
  const bool leaving = std::find(leaving_.begin(), leaving_.end(), &offloaded) != leaving_.end();
  std::vector<at::Tensor> inputs;
  for (Item& item : offloaded.items_) {
    // The queue waits until the bytes are there.
    if (item.arriving) copy_streams_->hold_queue(item.slot);
    item.arriving = false;
    inputs.push_back(item.on_device.defined() ? item.on_device.detach() : at::Tensor());
    if (item.slot >= 0 && !leaving) item.on_device.reset();  // the region's now
  }
  const auto here = std::find(alive_.begin(), alive_.end(), &offloaded);
  if (here != alive_.begin()) order(**std::prev(here));
  return inputs;
}

// Orders what is on the host alone.
void HostInputs::order(Offloaded& offloaded) {
  std::vector<Item*> ordered;
  for (Item& item : offloaded.items_) {
    if (item.slot < 0 || item.on_device.defined()) continue;
    item.on_device = at::empty_strided(item.sizes, item.strides, item.options);
    ordered.push_back(&item);
  }
  if (ordered.empty()) return;
  // The copies wait for the queue: it may still use the memory for what it was given before.
  copy_streams_->follow_queue();
  for (Item* item : ordered) {
    copy_streams_->copy_in(item->slot, static_cast<std::byte*>(item->on_device.mutable_data_ptr()), host(item->slot),
                           item->on_device.nbytes(), /*after=*/item->slot);
    item->arriving = true;
  }
}

// What comes into the memory of its tensors comes after their copies to the host.
void HostInputs::let_go(Offloaded& offloaded) {
  std::erase(leaving_, &offloaded);
  for (Item& item : offloaded.items_) {
    if (item.slot < 0) continue;
    copy_streams_->hold_queue_out(item.slot);
    item.on_device.reset();
  }
}

void HostInputs::forget(Offloaded& offloaded) {
  alive_.remove(&offloaded);
  if (std::find(leaving_.begin(), leaving_.end(), &offloaded) != leaving_.end()) let_go(offloaded);
  for (Item& item : offloaded.items_) {
    if (item.slot < 0) continue;
    if (item.arriving) copy_streams_->hold_queue(item.slot);  // before its memory is used for something else
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
    copy_streams_->wait_out(any);
    copy_streams_->wait_in(any);
    Slot& slot = slots_[static_cast<size_t>(any)];
    slot.memory = nullptr;  // the host may not have both
    slot.memory = queue_.allocate_host(nbytes, ledger_, MemoryKind::host_inputs);
    best = any;
  }
  if (best < 0) {
    best = static_cast<int>(slots_.size());
    copy_streams_->make_room(best + 1);
    slots_.push_back({queue_.allocate_host(nbytes, ledger_, MemoryKind::host_inputs)});
  }
  slots_[static_cast<size_t>(best)].taken = true;
  return best;
}

}  // namespace shoal
