// In which order units' gradients are reduced. Pure. All ranks reduce every unit that has gradients, once a pass, in
// one agreed order; a unit that becomes ready early waits for those before it, a unit that this rank does not use in
// this pass counts as ready (it reduces zeros).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shoal {

class ReduceOrder {
 public:
  // has_gradients[u]: whether unit u takes part at all. The first order is the reverse of the declared one.
  explicit ReduceOrder(std::vector<bool> has_gradients);

  // The unit was entered in this pass's forward: its gradients will come.
  void expect(int unit);
  // All gradients of the unit are in. Returns the units to reduce now, in order.
  std::vector<int> ready(int unit);
  // Backward is over: the rest, in order. The next pass begins.
  std::vector<int> finish();

  // The order in which units became ready in the last finished pass, those that did not at the end.
  const std::vector<int>& readiness() const { return last_readiness_; }
  // Makes `order` (a permutation of the units with gradients) the agreed one. Between passes only.
  void adopt(std::vector<int> order);
  const std::vector<int>& order() const { return order_; }

 private:
  std::vector<int> advance(bool to_the_end);

  std::vector<int> order_;
  size_t next_ = 0;  // entries before this are reduced
  std::vector<uint8_t> expected_;
  std::vector<uint8_t> ready_;
  std::vector<int> readiness_;  // of the open pass
  std::vector<int> last_readiness_;
};

}  // namespace shoal
