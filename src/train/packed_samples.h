// Rows of whole documents: several in a row where they fit, none cut unless it is longer than a row. Attention and
// positions follow the documents (models/documents.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/packing.h"
#include "train/samples.h"
#include "train/token_source.h"

namespace shoal::train {

// What became of the documents of a source, for the user.
struct PackingFacts {
  bool packed = true;  // several in a row
  bool conversations = false;
  int64_t documents = 0;
  int64_t too_short = 0;        // of one token, which predicts nothing
  int64_t longer = 0;           // than a row: of conversations the begin is kept, other documents are cut into several
  int64_t lost_tokens = 0;      // behind the begin of such conversations
  int64_t nothing_learned = 0;  // left out: no token of them is learned, or none of what was kept
  int64_t rows = 0;
  int64_t places = 0;   // of all rows that hold a token
  int64_t learned = 0;  // targets that count
};

std::string describe(const PackingFacts& facts, int64_t sequence);

class PackedSamples final : public Samples {
 public:
  // The last documents are for validation, packed apart. The source outlives it. Throws shoal::Error when the source
  // does not know where its documents end.
  PackedSamples(const TokenSource& source, const CutOptions& cut);

  int64_t train() const override { return train_.rows(); }
  int64_t validation() const override { return validation_.rows(); }
  int64_t at(int64_t position) const override { return SampleOrder(cut_.seed, train()).at(position); }
  std::vector<int64_t> read(int64_t sample, Row row) const override;
  int64_t learned(int64_t sample) const override;
  bool has_documents() const override { return true; }
  std::string made_of() const override;

  const PackingFacts& facts() const { return facts_; }

 private:
  struct Span {
    const DocumentPart* begin;
    const DocumentPart* end;
  };
  std::vector<DocumentPart> pieces_of(int64_t first, int64_t last);
  void add_document(int64_t begin, int64_t numel, std::vector<DocumentPart>& pieces);
  Span pieces_in(int64_t sample) const;

  const TokenSource& source_;
  CutOptions cut_;
  PackingFacts facts_;
  PackedRows train_, validation_;
};

}  // namespace shoal::train
