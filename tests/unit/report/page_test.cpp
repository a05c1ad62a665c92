#include "report/page.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal::report {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Not;
using testing::TempFolder;

std::string metrics(int steps) {
  std::string lines;
  for (int step = 1; step <= steps; ++step) {
    lines += "{\"step\": " + std::to_string(step) + ", \"loss\": 2.5, \"step_ms\": 10}\n";
  }
  return lines;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Page, NoTextOfAUserEndsTheScriptOrMakesAnElement) {
  const TempFolder folder;
  const std::string name = "<!--<script> & \"x\" '";
  folder.write(name + "/metrics.jsonl", metrics(2));
  folder.write(name + "/run.json",
               R"({"model": "</script><script>alert(1)</script>", "data": "/*script*/ <!--data-->"})");
  folder.write("plain/metrics.jsonl", metrics(2));
  const auto page_of = [&](const std::string& run) {
    const std::vector<RunFolder> runs = {read_run_folder(folder / run)};
    return page_html(page_data(runs), "");
  };
  const std::string page = page_of(name), plain = page_of("plain");
  for (const char* part : {"<script", "</script", "<!--"}) EXPECT_EQ(count(page, part), count(plain, part)) << part;
  EXPECT_THAT(page, HasSubstr("<title>&lt;!--&lt;script&gt; &amp; &quot;x&quot; &#39; · Shoal</title>"));
  EXPECT_THAT(page, HasSubstr("\\u003c/script\\u003e\\u003cscript\\u003ealert(1)"));
}

TEST(Page, AsksNobodyForAnything) {
  const TempFolder folder;
  folder.write("run/metrics.jsonl", metrics(1));
  const std::vector<RunFolder> runs = {read_run_folder(folder / "run")};
  const std::string page = page_html(page_data(runs), "");
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* part : {"http://", "https://", " src=", "@import", "url("}) EXPECT_THAT(page, Not(HasSubstr(part)));
  EXPECT_THAT(page, HasSubstr("const LIVE = false;"));
  EXPECT_THAT(page_html(page_data(runs), "", {.live = true}), HasSubstr("const LIVE = true;"));
  for (const char* mark : {"/*style*/", "/*script*/", "<!--data-->", "<!--title-->", "<!--plain-->"})
    EXPECT_THAT(page, Not(HasSubstr(mark)));
}

TEST(Page, OfALongRunHoldsNoMoreThanIsDrawn) {
  const TempFolder folder;
  folder.write("run/metrics.jsonl", metrics(45'000));
  const json::Value data = page_data({read_run_folder(folder / "run")});
  const json::Value& series = *data.find("runs")->as_array()[0].find("series");
  EXPECT_EQ(series.find("steps_a_point")->as_integer(), 5);
  EXPECT_EQ(series.find("step")->as_text().size(), 9000u * 8 / 3 * 4);
  EXPECT_NE(series.find("loss")->find("most"), nullptr);
}

TEST(Page, ComparesOtherRunsWithTheFirst) {
  const TempFolder folder;
  folder.write("a/metrics.jsonl", metrics(5));
  folder.write("b/metrics.jsonl", metrics(3) + "{\"step\": 4, \"loss\": 2.25, \"step_ms\": 1}\n");
  folder.write("c/metrics.jsonl", "");
  const json::Value data =
      summary_data({read_run_folder(folder / "a"), read_run_folder(folder / "b"), read_run_folder(folder / "c")});
  const json::Array& compared = data.find("comparisons")->as_array();
  ASSERT_EQ(compared.size(), 2u);
  EXPECT_EQ(compared[0].find("equal_until")->as_integer(), 3);
  EXPECT_EQ(compared[0].find("steps")->as_integer(), 4);
  EXPECT_THAT(compared[1].find("why_not")->as_text(), HasSubstr("has no line of a step"));
  EXPECT_EQ(data.find("runs")->as_array()[0].find("series"), nullptr);
}

TEST(Page, SaysHowARunStands) {
  const TempFolder folder;
  const auto state = [&](const std::string& events) {
    folder.write("run/metrics.jsonl", "");
    folder.write("run/events.jsonl", events);
    return page_data({read_run_folder(folder / "run")}).find("runs")->as_array()[0].find("state")->as_text();
  };
  const std::string start = "{\"event\": \"start\", \"step\": 0, \"time\": 1}\n";
  EXPECT_EQ(state(""), "");
  EXPECT_EQ(state(start), "under way");
  EXPECT_EQ(state(start + "{\"event\": \"end\", \"step\": 2, \"time\": 2}\n"), "done");
  EXPECT_EQ(state(start + "{\"event\": \"failed\", \"step\": 2, \"time\": 2}\n"), "failed");
}

TEST(Page, IsWrittenWholeOrNotAtAll) {
  const TempFolder folder;
  folder.write("run/metrics.jsonl", metrics(1));
  write_page({folder / "run"}, folder / "page.html");
  EXPECT_THAT(folder.read("page.html"), ::testing::EndsWith("</html>\n"));
  EXPECT_THAT(message_of([&] { write_page({folder / "run"}, folder / "none/page.html"); }),
              HasSubstr("cannot be written"));
  EXPECT_FALSE(std::filesystem::exists(folder / "page.html.whole"));
}

}  // namespace
}  // namespace shoal::report
