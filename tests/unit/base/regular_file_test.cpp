#include "base/regular_file.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal {
namespace {

using testing::message_of;
using testing::TempFolder;

TEST(RegularFile, IsReadWhole) {
  const TempFolder folder;
  const std::string text(200000, 'x');
  EXPECT_EQ(read_regular(folder.write("a", text), "here", "Give one."), text);
  EXPECT_EQ(read_regular(folder.write("b", ""), "here", "Give one."), "");
}

TEST(RegularFile, NothingElseIsOpenedAndNobodyWaits) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  const int listening = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (folder / "socket").c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(open_regular(folder / "fifo").kind, "a FIFO");
  EXPECT_EQ(open_regular(folder / "socket").kind, "a socket");
  EXPECT_EQ(open_regular("/dev/zero").kind, "a device");
  EXPECT_EQ(open_regular(folder.path()).kind, "a folder");
  EXPECT_EQ(open_regular(folder / "none").error_number, ENOENT);
  EXPECT_EQ(message_of([&] { read_regular(folder / "fifo", "here", "Give a file."); }),
            "[here] the file cannot be read: it is a FIFO. Give a file.");
  EXPECT_EQ(message_of([&] { read_regular(folder / "none", "here", "Give a file."); }),
            "[here] the file cannot be read: No such file or directory. Give a file.");
  ::close(listening);
}

}  // namespace
}  // namespace shoal
