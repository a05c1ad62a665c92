#include "base/lfs_pointer.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "message_of.h"

namespace shoal {
namespace {

using testing::message_of;

constexpr const char* kPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 4976698672\n";

TEST(LfsPointer, IsRefusedWithTheSizeOfTheFileThatItStandsFor) {
  EXPECT_EQ(message_of([] { refuse_lfs_pointer(kPointer, "file x"); }),
            "[file x] is a pointer of Git LFS and not the file itself, which has 4.635 GiB. Fetch it: run `git lfs "
            "pull` in its folder.");
  EXPECT_EQ(message_of([] { refuse_lfs_pointer("version https://git-lfs.github.com/spec/v1\nsize ", "x"); }),
            "[x] is a pointer of Git LFS and not the file itself. Fetch it: run `git lfs pull` in its folder.");
}

TEST(LfsPointer, OtherFilesAreNone) {
  for (const char* bytes : {"", "version", "version https://example.org\n", "{\"version\": 1}"}) {
    EXPECT_FALSE(is_lfs_pointer(bytes)) << bytes;
    EXPECT_NO_THROW(refuse_lfs_pointer(bytes, "x"));
  }
}

TEST(LfsPointer, IsRefusedAsJson) {
  EXPECT_EQ(message_of([] { json::parse(kPointer, "llama/config.json"); }).substr(0, 46),
            "[llama/config.json] is a pointer of Git LFS an");
}

}  // namespace
}  // namespace shoal
