// Samples: the rows of `sequence` tokens that a run trains on and evaluates with, cut from a source, and in which order
// training takes them. Three kinds: windows over one run of tokens, rows of whole documents (train/packed_samples.h),
// and several of these mixed (train/mixed_samples.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/sample_order.h"
#include "train/token_source.h"

namespace shoal::train {

enum class Packing : uint8_t {
  automatic,  // conversations are packed, other tokens are not
  on,         // whole documents, several in a row
  off,        // conversations: one in a row, the rest of it empty
};

// "auto", "on", "off".
std::string name_of(Packing packing);

struct CutOptions {
  int64_t sequence = 256;   // tokens a sample trains on; it reads one more, the last target
  double validation = 0.0;  // share of the samples kept for validation: the last ones
  uint64_t seed = 0;        // of the order
  Packing packing = Packing::automatic;
};

inline constexpr int64_t kNotLearned = -100;  // as a target: counts for nothing

// A sample of a batch: places for what the model reads, and for what it is to predict.
struct Row {
  int64_t* tokens = nullptr;   // [sequence]
  int64_t* targets = nullptr;  // [sequence]
};

class Samples {
 public:
  virtual ~Samples() = default;
  virtual int64_t train() const = 0;       // samples [0, train()) are for training
  virtual int64_t validation() const = 0;  // and as many behind them for validation
  // The sample at a position of the endless row that training takes, counted from its start: a function of the seed and
  // the position alone.
  virtual int64_t at(int64_t position) const = 0;
  // Fills a row. Gives the lengths of the documents in it, empty places being a document too.
  virtual std::vector<int64_t> read(int64_t sample, Row row) const = 0;
  // Targets of a sample that are learned, 1 or more.
  virtual int64_t learned(int64_t sample) const = 0;
  // Whether rows hold documents that do not see each other, and targets that do not count. Otherwise read() gives one
  // document, and learned() the sequence.
  virtual bool has_documents() const = 0;
  // What there is too little of, for a message: "9 tokens make".
  virtual std::string made_of() const = 0;
};

// Samples that do not overlap, of one run of tokens. The source outlives them.
std::unique_ptr<Samples> cut_windows(const TokenSource& source, const CutOptions& cut);

// As many of `samples` as are kept for validation.
int64_t validation_of(int64_t samples, double share);

}  // namespace shoal::train
