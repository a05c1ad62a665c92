// See forecast_text.h.
#include "forecast/forecast_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace shoal::forecast {

namespace {

// Three digits that count.
std::string seconds_text(double seconds) {
  if (seconds >= 100) return fmt::format("{:.0f} s", seconds);
  if (seconds >= 10) return fmt::format("{:.1f} s", seconds);
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  return fmt::format("{:.1f} ms", seconds * 1e3);
}

std::string per_second(double count) { return format_count(static_cast<int64_t>(std::llround(count))); }

json::Value figure(double value) { return value; }

json::Object time_members(const Forecast& forecast) {
  const StepTime& time = forecast.time;
  return {{"seconds", figure(time.seconds), {}},
          {"compute", figure(time.compute), {}},
          {"exposed_gathers", figure(time.gathers), {}},
          {"exposed_reductions", figure(time.reductions), {}},
          {"update", figure(time.update), {}},
          {"offload", figure(time.offload), {}},
          {"gathers_in_all", figure(time.gather_busy), {}},
          {"reductions_in_all", figure(time.reduction_busy), {}},
          {"host_network_bytes", figure(time.host_nbytes), {}},
          {"tokens_per_second", figure(forecast.rate.tokens), {}},
          {"tokens_per_second_per_gpu", figure(forecast.rate.tokens_a_gpu), {}},
          {"model_tflops_per_gpu", figure(forecast.rate.model_flops / 1e12), {}},
          {"mfu", figure(forecast.rate.mfu), {}}};
}

json::Object cluster_members(const Cluster& cluster) {
  return {{"gpu", cluster.gpu.name, {}},
          {"hosts", cluster.hosts, {}},
          {"gpus_per_host", cluster.gpus_per_host, {}},
          {"inside", cluster.inside.name, {}},
          {"between", cluster.between.name, {}}};
}

}  // namespace

std::string time_text(const TimeReport& report) {
  const StepTime& time = report.forecast.time;
  std::string text =
      fmt::format("{}, stage {}, {} ranks\n{}\n{}{} x {} tokens a rank{}{}\n\n", report.subject, report.stage,
                  report.world, describe(report.cluster),
                  report.forecast.micro_steps > 1 ? fmt::format("{} micro-steps of ", report.forecast.micro_steps) : "",
                  report.work.batch, report.work.time,
                  report.recompute.empty() || report.recompute == "none" ? "" : ", recompute " + report.recompute,
                  report.sharding.kind == Sharding::Kind::world ? "" : ", " + name_of(report.sharding));
  const auto line = [&](const char* name, double seconds, const std::string& more) {
    const double share = time.seconds > 0 ? seconds / time.seconds * 100 : 0;
    text +=
        fmt::format("{:<22}{:>10}{:>8.1f} %{}\n", name, seconds_text(seconds), share, more.empty() ? "" : "   " + more);
  };
  line("step", time.seconds, "");
  line("compute", time.compute, "");
  line("exposed gathers", time.gathers, time.gather_busy > 0 ? seconds_text(time.gather_busy) + " alone" : "");
  line("exposed reductions", time.reductions,
       time.reduction_busy > 0 ? seconds_text(time.reduction_busy) + " alone" : "");
  line("update", time.update, "");
  line("offload", time.offload, "");
  text += fmt::format("\n{} tokens/s, {} tokens/s a GPU, {:.0f} model TFLOP/s a GPU, MFU {:.1f} %\n",
                      per_second(report.forecast.rate.tokens), per_second(report.forecast.rate.tokens_a_gpu),
                      report.forecast.rate.model_flops / 1e12, report.forecast.rate.mfu * 100);
  if (time.host_nbytes > 0) {
    text += fmt::format("{} leave a host over the network in a step.\n",
                        format_nbytes(static_cast<uint64_t>(time.host_nbytes)));
  }
  return text + "How far to trust this: docs/scaling.md.\n";
}

json::Value time_json(const TimeReport& report) {
  json::Object root = {{"subject", report.subject, {}},
                       {"cluster", cluster_members(report.cluster), {}},
                       {"world", report.world, {}},
                       {"stage", report.stage, {}},
                       {"sharding", name_of(report.sharding), {}},
                       {"micro_batch", report.work.batch, {}},
                       {"sequence", report.work.time, {}},
                       {"micro_steps", report.forecast.micro_steps, {}},
                       {"recompute", report.recompute, {}}};
  for (json::Member& member : time_members(report.forecast)) root.push_back(std::move(member));
  return root;
}

std::string search_text(const SearchReport& report) {
  const SearchAnswer& answer = report.answer;
  std::string text = fmt::format("{}, {} ranks, samples of {} tokens\n{}\n\n", report.subject, report.world,
                                 report.work.time, describe(report.cluster));
  if (answer.candidates.empty()) {
    return text + fmt::format(
                      "Nothing fits, of {} settings that were tried. The least takes {} of a GPU's {} and {} of a "
                      "host's {}. Take more hosts, or more memory.\n",
                      answer.tried, format_nbytes(answer.least_device), format_nbytes(report.cluster.gpu.memory),
                      format_nbytes(answer.least_host), format_nbytes(report.cluster.host.memory));
  }
  text += fmt::format("{:>3}  {:<6}{:<15}{:<8}{:<7}{:>7}{:>7}  {:<10}{:>10}{:>12}{:>8}{:>11}  {}\n", "", "stage",
                      "cut over", "reduce", "ahead", "batch", "steps", "recompute", "step", "tokens/s", "MFU", "GPU",
                      "offload");
  const size_t shown = std::min(report.shown, answer.candidates.size());
  for (size_t each = 0; each < shown; ++each) {
    const Candidate& of = answer.candidates[each];
    text += fmt::format("{:>3}  {:<6}{:<15}{:<8}{:<7}{:>7}{:>7}  {:<10}{:>10}{:>12}{:>6.1f} %{:>11}  {}\n", each + 1,
                        of.stage, name_of(of.sharding), of.ring_reduce ? "nccl" : "exact",
                        of.block_ahead ? "block" : "config", of.batch, of.accumulation, name_of(of.recomputes),
                        seconds_text(of.forecast.time.seconds), per_second(of.tokens()), of.forecast.rate.mfu * 100,
                        format_nbytes(of.device_nbytes), of.offload.empty() ? "none" : of.offload);
  }
  text += fmt::format("\n{} settings fit.{} As settings, the best first:\n", answer.candidates.size(),
                      answer.candidates.size() > shown ? fmt::format(" The {} fastest are shown.", shown) : "");
  for (size_t each = 0; each < std::min<size_t>(3, shown); ++each) {
    const Candidate& of = answer.candidates[each];
    text += fmt::format("\n{}. {}{}\n", each + 1, of.settings, of.flags.empty() ? "" : "\n   and " + of.flags);
  }
  const bool ring =
      std::any_of(answer.candidates.begin(), answer.candidates.begin() + static_cast<std::ptrdiff_t>(shown),
                  [](const Candidate& of) { return of.ring_reduce; });
  if (ring)
    text += "\nreduce nccl: NCCL adds gradients, and bits may differ from run to run; exact: docs/exactness.md.\n";
  const bool ahead =
      std::any_of(answer.candidates.begin(), answer.candidates.begin() + static_cast<std::ptrdiff_t>(shown),
                  [](const Candidate& of) { return of.block_ahead; });
  if (ahead)
    text +=
        "\nahead block: a prefetch bucket that a block fits into; the config's is smaller, and no block comes early.\n";
  return text + "How far to trust this: docs/scaling.md.\n";
}

json::Value search_json(const SearchReport& report) {
  json::Array candidates;
  for (const Candidate& of : report.answer.candidates) {
    json::Object one = {{"stage", of.stage, {}},
                        {"sharding", name_of(of.sharding), {}},
                        {"reduce", of.ring_reduce ? "nccl" : "exact", {}},
                        {"gathered_ahead", of.block_ahead ? "block" : "config", {}},
                        {"micro_batch", of.batch, {}},
                        {"accumulation", of.accumulation, {}},
                        {"recompute", name_of(of.recomputes), {}},
                        {"offloaded", of.offload, {}},
                        {"device_bytes", static_cast<int64_t>(of.device_nbytes), {}},
                        {"host_bytes", static_cast<int64_t>(of.host_nbytes), {}},
                        {"settings", json::parse(of.settings, "settings"), {}},
                        {"flags", of.flags, {}}};
    for (json::Member& member : time_members(of.forecast)) one.push_back(std::move(member));
    candidates.emplace_back(std::move(one));
  }
  return json::Object{{"subject", report.subject, {}},
                      {"cluster", cluster_members(report.cluster), {}},
                      {"world", report.world, {}},
                      {"sequence", report.work.time, {}},
                      {"tried", report.answer.tried, {}},
                      {"least_device_bytes", static_cast<int64_t>(report.answer.least_device), {}},
                      {"least_host_bytes", static_cast<int64_t>(report.answer.least_host), {}},
                      {"candidates", std::move(candidates), {}}};
}

}  // namespace shoal::forecast
