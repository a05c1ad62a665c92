// See points.h.
#include "forecast/points.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/json.h"
#include "base/quantity.h"
#include "plan/from_config.h"
#include "shoal/error.h"

namespace shoal::forecast {

namespace {

// A value of a point, or else of its source.
class PointReader {
 public:
  PointReader(const json::Value& source, const json::Value& point, std::string_view origin)
      : source_(source), point_(point), origin_(origin) {}

  const json::Value* find(const char* key) const {
    const json::Value* found = point_.find(key);
    return found != nullptr ? found : source_.find(key);
  }
  double number(const char* key, double otherwise) const {
    const json::Value* found = find(key);
    if (found == nullptr) return otherwise;
    if (!found->is_number()) wrong(key);
    return found->as_number();
  }
  int64_t count(const char* key, int64_t otherwise) const {
    const json::Value* found = find(key);
    if (found == nullptr) return otherwise;
    if (!found->is_integer()) wrong(key);
    return found->as_integer();
  }
  std::string text(const char* key, const char* otherwise) const {
    const json::Value* found = find(key);
    if (found == nullptr) return otherwise;
    if (!found->is_text()) wrong(key);
    return found->as_text();
  }
  bool flag(const char* key) const {
    const json::Value* found = find(key);
    return found != nullptr && found->is_boolean() && found->as_boolean();
  }
  [[noreturn]] void wrong(const char* key) const {
    throw Error(fmt::format("{} line {}", origin_, point_.mark.line),
                fmt::format("{} is missing, or of another kind.", key));
  }

 private:
  const json::Value& source_;
  const json::Value& point_;
  std::string_view origin_;
};

DecoderShape shape_of(const json::Value& model, std::string_view origin) {
  const json::Value none = json::Object{};
  const PointReader reader(none, model, origin);
  DecoderShape shape;
  shape.hidden = reader.count("hidden", 0);
  shape.layers = reader.count("layers", 0);
  shape.heads = reader.count("heads", 1);
  const int64_t dim = shape.heads > 0 ? shape.hidden / shape.heads : 0;
  shape.q_width = shape.heads * dim;
  shape.kv_width = reader.count("kv_heads", shape.heads) * dim;
  shape.ffn = reader.count("ffn", 0);
  shape.gated = model.find("gated") == nullptr || reader.flag("gated");
  shape.vocab = reader.count("vocab", 0);
  shape.tied = reader.flag("tied");
  return shape;
}

Kernels kernels_named(const PointReader& reader) {
  const std::string name = reader.text("kernels", "");
  if (name == "fused") return Kernels::fused;
  if (name == "compiled") return Kernels::compiled;
  if (name == "eager") return Kernels::eager;
  reader.wrong("kernels");
}

Point read_point(const json::Value& source, const json::Value& value, const json::Value& models,
                 std::string_view origin) {
  const PointReader reader(source, value, origin);
  Point point;
  point.source = reader.text("name", "");
  point.fits = reader.text("use", "fit") == "fit";
  const std::string model = reader.text("model", "");
  if (models.find(model) == nullptr) reader.wrong("model");
  point.shape = shape_of(*models.find(model), origin);
  const std::string gpu = reader.text("gpu", "");
  if (find_cluster(gpu) == nullptr) reader.wrong("gpu");
  point.cluster = *find_cluster(gpu);
  point.cluster.gpus_per_host = static_cast<int>(reader.count("gpus_per_host", point.cluster.gpus_per_host));
  point.world = static_cast<int>(reader.count("gpus", 0));
  if (point.world < 1) reader.wrong("gpus");
  point.cluster.hosts = (point.world + point.cluster.gpus_per_host - 1) / point.cluster.gpus_per_host;
  const double between = reader.number("between", 0);
  if (between > 0) point.cluster.between = between_link(fmt::format("{:g}", between), "between");
  point.cluster.gpu.watts = reader.number("watts", point.cluster.gpu.watts);
  point.cluster.gpu.memory_bandwidth =
      reader.number("memory_gbytes_per_second", point.cluster.gpu.memory_bandwidth / 1e9) * 1e9;
  point.work.batch = reader.count("batch", 1);
  point.work.time = reader.count("time", 0);
  if (point.work.time < 1) reader.wrong("time");
  point.work.dtype = gpu == "V100" ? DType::f16 : DType::bf16;
  point.work.fp8 = reader.flag("fp8");
  point.work.kernels = kernels_named(reader);
  point.work.full_recompute = reader.number("full", 0);
  point.work.selective_recompute = reader.number("selective", 0);
  point.accumulation = reader.count("accumulation", 1);
  point.shard = static_cast<int>(reader.count("shard", 0));
  point.engine = reader.text("engine", "");
  point.reduce_wire = reader.number("reduce_wire", 1);
  point.autocast = reader.flag("autocast");
  if (const json::Value* offload = reader.find("offload")) {
    const json::Value none = json::Object{};
    const PointReader of(none, *offload, origin);
    point.host_states = of.number("states", 0);
    point.host_weights = of.number("weights", 0);
    point.host_updates = of.text("update", "") == "host";
    if (const std::string ring = of.text("ring", ""); !ring.empty())
      point.ring = static_cast<double>(parse_nbytes(ring, origin));
  }
  point.name = fmt::format(
      "{}, {} x {}{}, {}{} x {}{}{}{}", model, point.world, gpu,
      point.cluster.hosts > 1 ? ", " + point.cluster.between.name : "",
      point.accumulation > 1 ? fmt::format("{} x ", point.accumulation) : "", point.work.batch, point.work.time,
      point.work.full_recompute > 0 ? fmt::format(", recompute {:g}", point.work.full_recompute) : "",
      point.work.fp8 ? ", fp8" : "", point.engine == "zero++" ? ", ZeRO++" : "");
  if (point.work.kernels == Kernels::compiled && reader.find("kernels") == value.find("kernels"))
    point.name += ", compiled";
  if (point.host_states > 0) {
    point.name +=
        fmt::format(", {:g} of states{} on the host{}", point.host_states, point.host_weights > 0 ? " and weights" : "",
                    point.host_updates ? ", which updates" : "");
  }

  const double tokens = static_cast<double>(point.work.tokens() * point.accumulation);
  if (const double rate = reader.number("tokens", 0); rate > 0) {
    point.seconds = tokens / rate;
  } else if (const double tflops = reader.number("tflops", 0); tflops > 0) {
    const double counted = reader.text("flops", "model") == "with recompute" ? 4.0 / 3 : 1;
    point.seconds = tokens * model_flops_a_token(point.shape, point.work.time) * counted / (tflops * 1e12);
  } else {
    point.seconds = reader.number("seconds", 0);
  }
  if (point.seconds <= 0) reader.wrong("seconds, tokens or tflops");
  return point;
}

// How the engines of the points gather and reduce.
void set_manner(StepQuestion& question, const Point& point) {
  question.manner.reduce_wire = point.reduce_wire;
  if (point.engine == "shoal") return;
  // FSDP and DeepSpeed have one communicator for both, and NCCL adds in a ring.
  question.manner.two_channels = false;
  question.manner.exchanges = false;
  if (point.autocast) question.manner.gather_wire = 2;
  if (point.engine == "fsdp") {
    question.limits = {.one_ahead = true};  // the next unit, whatever its size
    return;
  }
  // DeepSpeed gathers ahead within stage3_prefetch_bucket_size, which no block of these models is within.
  question.limits = {.prefetch_numel = 50'000'000};
  if (point.engine == "zero++") {
    question.manner.gather_wire = 0.5;
    question.manner.reduce_wire = 0.25;
    question.manner.backward_from = Over::shard;
  }
}

// What FSDP copies of each parameter: out of the gather for each use, and into the reduction. With autocast each weight
// is read in fp32 and written in bf16 too, and its gradient the other way.
void add_copies(StepQuestion& question, const Point& point, const Calibration& calibration) {
  if (point.engine != "fsdp" || point.world == 1) return;
  const double forward = point.autocast ? 4 + 6 : 4, backward = point.autocast ? 10 + 12 : 10;
  for (size_t unit = 0; unit < question.units.size(); ++unit) {
    double numel = 0;
    for (const FlatLayout& flat : question.layout.units[unit].flats) numel += static_cast<double>(flat.numel);
    question.units[unit].forward += moving_seconds(forward * numel, point.cluster.gpu, calibration);
    question.units[unit].backward += moving_seconds(backward * numel, point.cluster.gpu, calibration);
  }
}

}  // namespace

std::vector<Point> read_points(std::string_view text, std::string_view origin) {
  const json::Value root = json::parse(text, origin);
  const json::Value* models = root.find("models");
  const json::Value* sources = root.find("sources");
  if (models == nullptr || sources == nullptr || !sources->is_array()) {
    throw Error(origin, "has no \"models\" and \"sources\". Give bench/step_times.json.");
  }
  std::vector<Point> points;
  for (const json::Value& source : sources->as_array()) {
    const json::Value* of = source.find("points");
    if (of == nullptr || !of->is_array()) throw Error(origin, "a source has no points.");
    for (const json::Value& point : of->as_array()) points.push_back(read_point(source, point, *models, origin));
  }
  return points;
}

StepTime forecast_of(const Point& point, const Calibration& calibration) {
  Config config;
  config.precision = point.work.dtype == DType::f16 ? Precision::fp16 : Precision::bf16;
  config.zero.stage = 3;
  config.batch.accumulation_steps = point.accumulation;
  config.zero.offload_optimizer.tier = point.host_states > 0 ? Tier::host : Tier::device;
  config.zero.offload_optimizer.ratio = point.host_states;
  config.zero.offload_param.tier = point.host_weights > 0 ? Tier::host : Tier::device;
  config.zero.offload_param.ratio = point.host_weights;
  if (point.host_updates) config.shoal.offload_update = OffloadUpdate::host;

  StepQuestion question;
  LayoutOptions options = layout_options(config, point.world);
  // The second copy of ZeRO++'s weights is cut over the ranks of a host.
  const int shard = point.engine == "zero++" ? std::min(point.world, point.cluster.gpus_per_host) : point.shard;
  if (shard > 0) options.mesh = Mesh({{std::string(kReplica), point.world / shard}, {std::string(kShard), shard}});
  question.layout = lay_out(units_of(point.shape, point.work.dtype), options);
  question.gradients = gradient_options(config);
  if (point.shard > 0) question.gradients.stage = Stage(3, {Over::shard, Over::shard, Over::shard});
  question.limits = gather_limits(config, question.layout);
  set_manner(question, point);
  question.units = unit_seconds(point.shape, point.work, point.cluster.gpu, calibration);
  add_copies(question, point, calibration);
  question.cluster = point.cluster;
  question.calibration = calibration;
  if (point.host_states > 0) {
    question.cluster.gpus_per_host = point.world;
    question.offload = offload_work(question.layout, config, question.cluster, calibration, point.ring);
  }
  return step_time(question);
}

}  // namespace shoal::forecast
