// See file_digest.h.
#include "checkpoint/file_digest.h"

#include <algorithm>
#include <vector>

#include "base/digest.h"
#include "checkpoint/durable_file.h"

namespace shoal::checkpoint {

FileDigest digest_of_file(const std::string& path) {
  constexpr int64_t kPiece = int64_t{4} << 20;
  const DurableFile file = DurableFile::open_read(path);
  FileDigest found{file.nbytes(), 0};
  std::vector<char> bytes(static_cast<size_t>(std::min(kPiece, found.nbytes)));
  DigestStream stream;
  for (int64_t at = 0; at < found.nbytes; at += kPiece) {
    const auto count = static_cast<size_t>(std::min(kPiece, found.nbytes - at));
    file.read_at(at, bytes.data(), count);
    stream.add(bytes.data(), count);
  }
  found.digest = stream.value();
  return found;
}

}  // namespace shoal::checkpoint
