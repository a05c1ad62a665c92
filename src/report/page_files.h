// The parts of the page, from src/report/page/, as text: the build makes a source of them (page_files.cpp.in).
#pragma once

namespace shoal::report {

extern const char* const kPageFrame;   // frame.html
extern const char* const kPageStyle;   // style.css
extern const char* const kPageCharts;  // charts.js
extern const char* const kPageScript;  // page.js

}  // namespace shoal::report
