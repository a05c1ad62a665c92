#include "checkpoint/file_digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/digest.h"
#include "message_of.h"
#include "temp_folder.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::message_of;
using ::testing::HasSubstr;

TEST(FileDigest, IsThatOfAllItsBytes) {
  const shoal::testing::TempFolder folder;
  for (const size_t nbytes : {size_t{0}, size_t{1}, (size_t{4} << 20) - 1, (size_t{4} << 20) + 3}) {
    std::string bytes(nbytes, 'a');
    if (nbytes > 0) bytes.back() = 'b';
    const FileDigest found = digest_of_file(folder.write("file", bytes));
    EXPECT_EQ(found.nbytes, static_cast<int64_t>(nbytes));
    EXPECT_EQ(found.digest, digest_of(bytes.data(), bytes.size())) << nbytes;
  }
}

TEST(FileDigest, NobodyWaitsForAFifo) {
  const shoal::testing::TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(message_of([&] { digest_of_file(folder / "fifo"); }), HasSubstr("is a FIFO, not a regular file"));
  EXPECT_THAT(message_of([&] { digest_of_file(folder / "none"); }), HasSubstr("cannot open"));
}

}  // namespace
}  // namespace shoal::checkpoint
