// A sequence of tokens that training and validation samples are cut from. Which source, and which sample comes when, is
// decided elsewhere (train/open_data.h, train/sample_order.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace shoal::train {

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t numel() const = 0;  // tokens in all
  virtual int64_t vocab() const = 0;  // every token should be below it; 0: not said
  // Whether every token is known to be below vocab(). If not, check_tokens (train/open_data.h) looks.
  virtual bool is_checked() const { return true; }
  // Tokens [begin, begin + numel).
  virtual void read(int64_t begin, int64_t numel, int64_t* tokens) const = 0;
  virtual std::string describe() const = 0;
  // What a user should look at before training on it; "" where nothing is odd.
  virtual std::string doubt() const { return ""; }
};

}  // namespace shoal::train
