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

  // Documents, one after the other without a gap: document i is tokens [document_begin(i), document_begin(i + 1)), and
  // the last ends at numel(). 0: where documents end is not known.
  virtual int64_t documents() const { return 0; }
  virtual int64_t document_begin(int64_t document) const { return document == 0 ? 0 : numel(); }
  // Whether some tokens are not to be learned: those of a user's turn, say.
  virtual bool has_mask() const { return false; }
  // How many of the tokens [begin, begin + numel) are to be learned; which: a 1 for each that is.
  virtual int64_t count_learned(int64_t /*begin*/, int64_t numel) const { return numel; }
  virtual void read_learned(int64_t /*begin*/, int64_t numel, uint8_t* learned) const {
    for (int64_t i = 0; i < numel; ++i) learned[i] = 1;
  }

  // What a user should look at before training on it; "" where nothing is odd.
  virtual std::string doubt() const { return ""; }
};

}  // namespace shoal::train
