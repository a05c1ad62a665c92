// Token files: what `shoal tokenize` writes and `--data tokens:PATH` reads, memory-mapped. The format is in
// docs/formats/tokens.md.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "train/token_source.h"

namespace shoal::train {

// Opens a file with the header, or one without it that has a sidecar PATH.json. Throws shoal::Error when neither fits
// the file. Tokens are not looked at yet.
std::unique_ptr<TokenSource> open_token_file(const std::string& path);

// Writes a token file under a temporary name; finish() gives it its own. Without finish() nothing is left behind.
class TokenFileWriter {
 public:
  // Tokens take 2 bytes where the vocabulary allows, else 4.
  TokenFileWriter(const std::string& path, int64_t vocab);
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  // Throws shoal::Error at a token outside the vocabulary.
  void append(std::span<const int64_t> tokens);
  void finish();

 private:
  void write(const void* bytes, size_t nbytes);

  std::string path_, temporary_path_;
  int64_t vocab_ = 0;
  int64_t numel_ = 0;
  std::FILE* file_ = nullptr;
};

}  // namespace shoal::train
