// The report's page: one HTML file that asks nobody for anything. The script, the style and the frame are in page/ and
// compiled in; the data stand in the page as JSON. `shoal report`, and `shoal train` at its end.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "report/run_folder.h"

namespace shoal::report {

struct PageOptions {
  bool live = false;  // the page asks for /data.json again and again
};

// What the page draws: "runs", and of two or more "comparisons" with the first.
json::Value page_data(const std::vector<RunFolder>& runs);
// For programs: the same without the curves, which metrics.jsonl has.
json::Value summary_data(const std::vector<RunFolder>& runs);

// `data` is that of page_data; `plain`: an SVG for who runs no scripts, or "".
std::string page_html(const json::Value& data, const std::string& plain, const PageOptions& options = {});

// JSON that may stand inside <script>: no text of it can end the element.
std::string json_for_script(const json::Value& value);
std::string escaped_html(const std::string& text);

// Reads the runs and writes the page, whole or not at all. Throws shoal::Error.
void write_page(const std::vector<std::string>& runs, const std::string& path);

}  // namespace shoal::report
