// What the page says in numbers: medians, where a median step went, each rank's share, memory, the status of every
// config key. Each is a JSON value, as the page's script and `shoal report --json` have it. Pure but for the run's
// files.
#pragma once

#include "base/json.h"
#include "report/run_folder.h"

namespace shoal::report {

// Steps, tokens, last loss, best evaluation, median time and speed, MFU, share of overlap, seconds of steps and saves.
json::Value summary_of(const RunFolder& run);
// Of the middle fifth of steps by their time: [{"name", "ms"}], which add up to a step; empty where nothing was timed.
json::Value step_parts(const RunFolder& run);
// By rank: what it waited a step, and what it worked meanwhile; the slow one is waited for, so it waits least.
json::Value ranks_of(const RunFolder& run);
// Planned and held by kind and tier, of the last line that says so; null where none does.
json::Value memory_of(const RunFolder& run);
// Every key that Shoal knows, with its value, its default and its status, as docs/config.md has it.
json::Value config_keys(const RunFolder& run);
// Skipped steps, losses that are not finite, outliers: [{"kind", "step", ...}] and how many were left out.
json::Value marks_of(const RunFolder& run);

}  // namespace shoal::report
