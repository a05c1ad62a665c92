#include "train/event_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::string read_all(const std::string& path) {
  std::ostringstream all;
  all << std::ifstream(path, std::ios::binary).rdbuf();
  return all.str();
}

// The bytes that the package tensorboard 2.21 writes for the same events.
TEST(EventRecord, IsWhatTensorboardWrites) {
  EXPECT_EQ(hex(event_record(version_event(1.5))),
            "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
  EXPECT_EQ(
      hex(event_record(scalar_event(1700000000.25, 128, "Train/Samples/lr", 0.1f))),
      "2700000000000000bbe1b1460900001040fc54d9411080012a190a170a10547261696e2f53616d706c65732f6c7215cdcccc3daffe5c"
      "99");
  EXPECT_EQ(hex(event_record(scalar_event(2, 0, "a", std::nanf("")))),
            "1500000000000000d6ab6b2b0900000000000000402a0a0a080a0161150000c07fd052971b");
  EXPECT_EQ(hex(event_record(restart_event(2, 300))),
            "100000000000000095fbfe1809000000000000004010ac023a0208011292da01");
}

TEST(EventRecord, TakesLongNamesAndTheLargestStep) {
  const std::string event = scalar_event(1, INT64_MAX, std::string(200, 'x'), 1);
  // 9 of the time, 1 + 9 of the step, then a summary of 211 bytes whose lengths take two bytes each.
  EXPECT_EQ(event.size(), 9u + 10u + 3u + 3u + 3u + 200u + 5u);
}

TEST(EventFile, BeginsWithTheVersionAndHoldsWhatWasAdded) {
  const TempFolder folder;
  EventFile file(folder / "a/b");
  const size_t begin = std::filesystem::file_size(file.path());
  EXPECT_EQ(begin, 40u);
  EXPECT_THAT(read_all(file.path()), HasSubstr("brain.Event:2"));
  file.add("lr", 3, 0.5);
  EXPECT_EQ(std::filesystem::file_size(file.path()), begin + 16 + 9 + 2 + 2 + 2 + 4 + 5) << "there at once";
  file.restart_at(1);
  EXPECT_THAT(read_all(file.path()), HasSubstr(std::string("\x10\x01\x3a\x02\x08\x01", 6)));
}

TEST(EventFile, TwoInOneFolderAndSecondAreTwoFiles) {
  const TempFolder folder;
  const EventFile one(folder.path()), two(folder.path());
  EXPECT_NE(one.path(), two.path());
}

TEST(EventFile, SaysWhyAFolderCannotBeWritten) {
  const TempFolder folder;
  folder.write("file", "x");
  const std::string message = message_of([&] { EventFile(folder / "file/logs"); });
  EXPECT_THAT(message, HasSubstr("[log tensorboard] "));
  EXPECT_THAT(message, HasSubstr("Give another folder."));
}

}  // namespace
}  // namespace shoal::train
