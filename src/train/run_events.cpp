// See run_events.h.
#include "train/run_events.h"

#include <chrono>
#include <utility>

#include "base/unix_time.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

json::Value object_of(const MemoryPlan& plan) {
  json::Value object = json::Object{};
  const auto set = [&](const char* kind, size_t nbytes) { object.set(kind, static_cast<int64_t>(nbytes)); };
  set("weights", plan.weights);
  set("second_weights", plan.second_weights);
  set("gradients", plan.gradients);
  set("states", plan.states);
  set("gather_arena", plan.gather_arena);
  set("reduce_slots", plan.reduce_slots);
  set("state_ring", plan.state_ring);
  set("host_weights", plan.host_weights);
  set("host_gradients", plan.host_gradients);
  set("host_states", plan.host_states);
  set("disk_buffers", plan.disk_buffers);
  set("save_pictures", plan.save_pictures);
  set("disk_weights", plan.disk_weights);
  set("disk_states", plan.disk_states);
  return object;
}

}  // namespace

std::string event_line(const std::string& event, int64_t step, const EventFacts& more) {
  json::Value line = json::Object{};
  line.set("event", event);
  line.set("step", step);
  line.set("time", unix_seconds());
  for (const auto& [key, value] : more) line.set(key, value);
  return json::write(line);
}

EventFacts memory_members(const MemoryReport& memory) {
  return {{"planned", object_of(memory.planned)}, {"held", object_of(memory.held)}};
}

EventFacts start_members(const Config& config, const RunRanks& ranks, const std::string& checkpoint) {
  EventFacts members = {{"ranks", ranks.count}, {"threads", ranks.threads}, {"transport", ranks.transport}};
  if (!checkpoint.empty()) members.emplace_back("checkpoint", checkpoint);
  json::Array notices;
  for (const std::string& notice : config.notices) notices.emplace_back(notice);
  members.emplace_back("notices", std::move(notices));
  return members;
}

RunEvents::RunEvents(const std::string& folder, int64_t step)
    : events_(std::make_unique<MetricsFile>(folder + "/events.jsonl", MetricsFile::kEveryStep)),
      ranks_(std::make_unique<MetricsFile>(folder + "/ranks.jsonl", step)) {}

// What a page shows is no reason to end a run; the metrics, written to the same disk, say that it is full.
void RunEvents::append(MetricsFile& file, const std::string& line) {
  try {
    file.append(line);
  } catch (const Error&) {
  }
}

void RunEvents::add(const std::string& event, int64_t step, const EventFacts& more) {
  if (events_ != nullptr) append(*events_, event_line(event, step, more));
}

void RunEvents::add_ranks(int64_t step, const std::vector<RankTimes>& ranks) {
  if (ranks_ == nullptr) return;
  step_ = step;
  now_ = ranks;
  if (before_.empty()) before_.resize(ranks.size());
  ++steps_;
  if (step % kRanksEvery == 0) flush_ranks();
}

void RunEvents::flush_ranks() {
  if (steps_ == 0) return;
  json::Value line = json::Object{};
  line.set("step", step_);
  line.set("steps", steps_);
  const auto set = [&](const char* name, double RankTimes::*part) {
    json::Array values;
    for (size_t rank = 0; rank < now_.size(); ++rank) {
      values.emplace_back((now_[rank].*part - before_[rank].*part) * 1e3 / static_cast<double>(steps_));
    }
    line.set(name, std::move(values));
  };
  set("wait_comm_ms", &RankTimes::comm);
  set("wait_host_ms", &RankTimes::host);
  set("wait_disk_ms", &RankTimes::disk);
  set("data_ms", &RankTimes::data);
  append(*ranks_, json::write(line));
  before_ = now_;
  steps_ = 0;
}

}  // namespace shoal::train
