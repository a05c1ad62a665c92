// The picture itself is looked at in tests/python/report_test.py, where there is a Chromium.
#include "report/browser.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal::report {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;

// For a while, and as before afterwards.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name), had_(std::getenv(name) != nullptr) {
    if (had_) before_ = std::getenv(name);
    ::setenv(name, value.c_str(), 1);
  }
  ~Setting() { had_ ? ::setenv(name_, before_.c_str(), 1) : ::unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  bool had_;
  std::string before_;
};

std::string program(const TempFolder& folder, const std::string& name, const std::string& script) {
  const std::string path = folder.write(name, "#!/bin/sh\n" + script);
  ::chmod(path.c_str(), 0755);
  return path;
}

TEST(Browser, IsTheOneThatIsNamedOrTheFirstInThePath) {
  const TempFolder folder;
  const Setting path("PATH", folder / "none" + ":" + folder.path());
  {
    const Setting named("SHOAL_CHROMIUM", "");
    EXPECT_EQ(find_browser(), "");
    const std::string chrome = program(folder, "google-chrome", ""), chromium = program(folder, "chromium", "");
    EXPECT_EQ(find_browser(), chromium);
  }
  const Setting named("SHOAL_CHROMIUM", "/somewhere/chromium");
  EXPECT_EQ(find_browser(), "/somewhere/chromium");
}

TEST(Browser, DrawsIntoTheFileThatWasAskedFor) {
  const TempFolder folder;
  const std::string browser = program(
      folder, "chromium", "for word; do case $word in --screenshot=*) echo picture > \"${word#*=}\";; esac; done\n");
  write_png("<svg/>", folder / "a.png", {}, browser);
  EXPECT_EQ(folder.read("a.png"), "picture\n");
  EXPECT_THAT(message_of([&] { write_png("<svg/>", folder / "none/a.png", {}, browser); }),
              HasSubstr("cannot be written"));
}

TEST(Browser, OneThatDrawsNothingIsSaid) {
  const TempFolder folder;
  const std::string browser = program(folder, "chromium", "exit 3\n");
  EXPECT_THAT(message_of([&] { write_png("<svg/>", folder / "a.png", {}, browser); }),
              HasSubstr("made no picture (it ended with 3). Is it a Chromium? Else use --svg."));
  EXPECT_THAT(message_of([&] { write_png("<svg/>", folder / "a.png", {}, folder / "none"); }),
              HasSubstr("it ended with 127"));
}

}  // namespace
}  // namespace shoal::report
