// The data of a run, from what stands after --data to samples: sources opened and checked against the model, documents
// packed, several sources mixed. prepare.cpp makes it; what is wrong with the data comes out there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/chat_file.h"
#include "train/open_data.h"
#include "train/samples.h"
#include "train/token_source.h"

namespace shoal::train {

struct DataSource {
  std::unique_ptr<TokenSource> tokens;
  double weight = 1;
};

struct RunData {
  std::vector<DataSource> sources;   // one or more
  std::unique_ptr<Samples> samples;  // of all of them
  std::vector<std::string> said;     // what became of documents, and doubts, for the user
  std::string fingerprint;           // the same data under another path has the same

  std::string describe() const;
  int64_t numel() const;
};

RunData open_run_data(const std::string& data, const Vocabulary& vocabulary, const CutOptions& cut,
                      const TokenizerPlace& place);

// See open_data.h: of every source.
void check_tokens(const RunData& data, const Vocabulary& vocabulary, const ReaderPart& part = {});

}  // namespace shoal::train
