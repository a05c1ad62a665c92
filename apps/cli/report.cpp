// `shoal report`: a page of one run or of several, beside each other. The work is in report/page.h.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "report/browser.h"
#include "report/live_server.h"
#include "report/page.h"
#include "report/plain_figure.h"

namespace shoal::cli {

namespace {

struct ReportFlags {
  std::vector<std::string> runs;
  std::string out, png, svg;
  bool json = false, live = false;
  int port = 0;
};

std::atomic<bool> stopped = false;

std::vector<report::RunFolder> read_runs(const std::vector<std::string>& paths) {
  std::vector<report::RunFolder> runs;
  for (const std::string& path : paths) runs.push_back(report::read_run_folder(path));
  return runs;
}

void write_text(const std::string& path, const std::string& flag, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw Error(flag + " " + path, "cannot be written. Give a file in a folder that is there, with space.");
}

// One run's page lies in its folder; several have no folder of their own.
std::string page_path(const ReportFlags& flags) {
  if (!flags.out.empty()) return flags.out;
  if (flags.runs.size() > 1) return "report.html";
  const std::filesystem::path run = flags.runs[0];
  return ((std::filesystem::is_directory(run) ? run : run.parent_path()) / "report.html").string();
}

int serve(const ReportFlags& flags) {
  // What is read anew costs more than it shows when a run is long: so it waits ten times what it took.
  auto made = std::make_shared<std::string>();
  auto again = std::make_shared<std::chrono::steady_clock::time_point>();
  const auto data = [flags, made, again] {
    const auto begin = std::chrono::steady_clock::now();
    if (made->empty() || begin >= *again) {
      *made = report::json_for_script(report::page_data(read_runs(flags.runs)));
      const auto end = std::chrono::steady_clock::now();
      *again = end + 10 * (end - begin);
    }
    return *made;
  };
  report::LiveServer server(flags.port, [flags, data](std::string_view path) -> report::Answer {
    if (path == "/data.json") return {200, "application/json", data()};
    if (path != "/") return {404, "text/plain; charset=utf-8", "There is / and /data.json.\n"};
    const std::vector<report::RunFolder> runs = read_runs(flags.runs);
    return {200, "text/html; charset=utf-8",
            report::page_html(report::page_data(runs), report::plain_figure(runs), {.live = true})};
  });
  std::signal(SIGINT, [](int) { stopped = true; });
  std::signal(SIGTERM, [](int) { stopped = true; });
  fmt::print("http://127.0.0.1:{}/  (Ctrl-C ends it)\n", server.port());
  std::fflush(stdout);
  server.serve(stopped);
  return 0;
}

int run_report(const ReportFlags& flags) {
  const std::vector<report::RunFolder> runs = as_usage([&] { return read_runs(flags.runs); });
  if (flags.live) return as_usage([&] { return serve(flags); });
  if (flags.json) {
    fmt::print("{}\n", json::write(report::summary_data(runs), 2));
    return 0;
  }
  const std::string figure = report::plain_figure(runs);
  if (!flags.svg.empty()) write_text(flags.svg, "--svg", figure);
  if (!flags.png.empty()) {
    const std::string browser = report::find_browser();
    if (browser.empty()) {
      throw Error("--png",
                  "is drawn by Chromium, and none is in PATH. Install it (apt-get install chromium), name one in "
                  "SHOAL_CHROMIUM, or use --svg, which needs none.");
    }
    report::write_png(figure, flags.png, {}, browser);
  }
  if (flags.svg.empty() && flags.png.empty()) {
    const std::string path = page_path(flags);
    write_text(path, "--out", report::page_html(report::page_data(runs), figure));
    fmt::print("{}\n", path);
  }
  return 0;
}

}  // namespace

void add_report(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("report", "Show a run, or several, as one HTML page");
  const auto flags = std::make_shared<ReportFlags>();
  verb->add_option("runs", flags->runs, "Runs' folders (--out of shoal train); of several, curves over each other")
      ->required();
  CLI::Option* out = verb->add_option("--out", flags->out,
                                      "The page; left out: report.html in the run's folder, of several runs here");
  CLI::Option* svg = verb->add_option("--svg", flags->svg, "A figure of loss, norm, speed and learning rate instead");
  CLI::Option* png = verb->add_option("--png", flags->png, "The same as PNG; drawn by Chromium, which has to be there");
  CLI::Option* as_json = verb->add_flag("--json", flags->json, "What the page says, without its curves, as JSON");
  CLI::Option* live =
      verb->add_flag("--live", flags->live, "Serve the page on 127.0.0.1, renewed while the run goes on");
  verb->add_option("--port", flags->port, "Of --live; 0: any that is free")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str()
      ->needs(live);
  live->excludes(out)->excludes(svg)->excludes(png)->excludes(as_json);
  as_json->excludes(out)->excludes(svg)->excludes(png);
  out->excludes(svg)->excludes(png);
  verb->footer(
      "The page asks no network for anything: it may be kept, sent, and opened anywhere.\n"
      "\nExample:\n  shoal report run\n  shoal report run-1-rank run-4-ranks --out both.html");
  verb->callback([flags, &exit_code] { exit_code = run_report(*flags); });
}

}  // namespace shoal::cli
