// Inputs of recomputed regions that wait for backward in host memory. recompute.h sends them and brings them back; the
// engine of a rank with a GPU makes one where the config asks for it.
//
// [Note: inputs on their way]
// An input is copied to the host beside its own region's forward. Its tensor goes when the second region after it
// begins: the queue is held there until the copy is through, and what torch's allocator puts into that memory is work
// of the same queue, given later. So nobody waits on the host, and however far the host runs ahead of the GPU, the
// device holds two inputs and the one in the making. In backward, when a region's input is taken, that of the region
// before it is ordered, beside the region's work. It comes into memory of torch's allocator, which the queue may still
// use for what it was given before: the copy begins after that. The last inputs of a forward are still on the device,
// and are taken as they are.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "device/copy_streams.h"
#include "device/queue.h"
#include "device/slab.h"

namespace shoal {

class HostInputs {
 public:
  // Regions whose inputs are on the device at one time.
  static constexpr size_t kOnDevice = 2;

  // Of tensors on `device`, which the queue works on, from the calling thread's torch stream. The queue outlives this.
  HostInputs(Queue& queue, at::Device device, std::shared_ptr<Ledger> ledger);
  // Waits for what is on its way. Trips may outlive it; they are over then.
  ~HostInputs();
  HostInputs(const HostInputs&) = delete;
  HostInputs& operator=(const HostInputs&) = delete;

  // The inputs of one region. Gives its memory back when it dies.
  class Offloaded;
  // Those that need a gradient travel, if their elements fill their memory; the others stay as they are. The work that
  // makes them is given to the queue already.
  std::shared_ptr<Offloaded> send(const std::vector<at::Tensor>& inputs);
  // The inputs, without a graph, for work that the queue is given later. May be called again.
  std::vector<at::Tensor> bring(Offloaded& offloaded);

 private:
  struct Item {
    at::Tensor on_device;   // undefined: on the host alone
    int slot = -1;          // in host memory; -1: does not travel
    bool arriving = false;  // ordered into on_device, and the queue is not held for it yet
    std::vector<int64_t> sizes, strides;
    at::TensorOptions options;
  };
  struct Slot {
    std::shared_ptr<Slab> memory;  // null: could not be had
    bool taken = false;
    size_t nbytes() const { return memory ? memory->nbytes() : 0; }
  };

  int take_slot(size_t nbytes);
  void order(Offloaded& offloaded);
  void let_go(Offloaded& offloaded);
  void forget(Offloaded& offloaded);
  std::byte* host(int slot) const { return slots_[static_cast<size_t>(slot)].memory->data(); }

  Queue& queue_;
  at::Device device_;
  std::shared_ptr<Ledger> ledger_;
  std::vector<Slot> slots_;                    // the number of a slot is its chunk's on the copy streams
  std::list<Offloaded*> alive_;                // alive, in the order of sending
  std::deque<Offloaded*> leaving_;             // of them, those whose tensors are still on the device, the oldest first
  std::unique_ptr<CopyStreams> copy_streams_;  // last: its copies end before the memory goes
};

class HostInputs::Offloaded {
 public:
  ~Offloaded();
  Offloaded(const Offloaded&) = delete;
  Offloaded& operator=(const Offloaded&) = delete;

 private:
  friend class HostInputs;
  explicit Offloaded(HostInputs* home) : home_(home) {}

  HostInputs* home_;  // null: it is gone
  std::vector<Item> items_;
};

}  // namespace shoal
