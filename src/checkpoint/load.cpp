// See load.h and shoal/checkpoint.h. A rank reads the pieces that hold something it keeps, each one once and whole, so
// that its checksum can be verified, and passes on the parts that it keeps.
#include "checkpoint/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/json.h"
#include "base/text.h"
#include "checkpoint/exchange.h"
#include "checkpoint/file_lengths.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/resolve.h"
#include "checkpoint/run_folder.h"
#include "plan/from_config.h"
#include "shoal/error.h"

namespace shoal {

namespace checkpoint {

namespace {

namespace fs = std::filesystem;

const Subject kSubject{"load", "checkpoint"};

std::string few(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  const std::vector<std::string> first(names.begin(),
                                       names.begin() + static_cast<int64_t>(std::min(kMost, names.size())));
  return join(first, ", ") + (names.size() > kMost ? fmt::format(" and {} more", names.size() - kMost) : "");
}

// For each parameter of the sink its index in the manifest. Throws one error that names every one that does not fit.
// Parameters that the checkpoint leaves out have -1.
std::vector<int> match(const Manifest& manifest, const std::vector<ParamInfo>& params) {
  std::unordered_map<std::string, int> saved;
  for (size_t i = 0; i < manifest.params.size(); ++i) saved.emplace(manifest.params[i].name, static_cast<int>(i));
  std::vector<int> indices;
  std::vector<std::string> missing, extra, misshapen;
  std::unordered_set<std::string> known;
  for (const ParamInfo& param : params) {
    known.insert(param.name);
    known.insert(param.aliases.begin(), param.aliases.end());
    const auto found = saved.find(param.name);
    indices.push_back(found == saved.end() ? -1 : found->second);
    if (found == saved.end()) {
      if (param.trainable || !manifest.leaves_out_frozen()) missing.push_back(param.name);
    } else if (const auto& shape = manifest.params[found->second].shape; shape != param.shape) {
      misshapen.push_back(
          fmt::format("{} ({} there, {} here)", param.name, format_shape(shape), format_shape(param.shape)));
    }
  }
  for (const SavedParam& param : manifest.params) {
    if (known.count(param.name) == 0) extra.push_back(param.name);
  }
  std::vector<std::string> wrong;
  if (!missing.empty()) wrong.push_back("it has no " + few(missing));
  if (!extra.empty()) wrong.push_back("the model has no " + few(extra));
  if (!misshapen.empty()) wrong.push_back("other shapes: " + few(misshapen));
  if (!wrong.empty()) {
    throw Error("checkpoint",
                "it is of another model: " + join(wrong, "; ") + ". Load it into the model that saved it.");
  }
  return indices;
}

// Of a sink what a checkpoint without frozen parameters fills.
StateSink trained_part(const StateSink& whole) {
  StateSink part = whole;
  for (StateRun& run : part.runs) {
    if (!whole.params[run.param].trainable) run.numel = 0;
  }
  return part;
}

// The runs to fill of each parameter of the manifest, by state.
using Wanted = std::map<std::pair<int, StateKind>, std::vector<StateRun>>;

Wanted wanted_of(const Manifest& manifest, const StateSink& sink, const std::vector<int>& indices) {
  Wanted wanted;
  std::map<StateKind, std::vector<std::string>> absent;
  for (const StateRun& run : sink.runs) {
    if (run.numel == 0) continue;
    const int saved = indices[run.param];
    const SavedParam& param = manifest.params[saved];
    if (run.kind != StateKind::weight && !(manifest.has(run.kind) && param.trainable)) {
      std::vector<std::string>& names = absent[run.kind];
      if (names.empty() || names.back() != param.name) names.push_back(param.name);
      continue;
    }
    wanted[{saved, run.kind}].push_back(run);
  }
  if (manifest.weights_only) return wanted;
  for (const auto& [kind, names] : absent) {
    throw Error("checkpoint",
                fmt::format("it has no {} of {}. Use the optimizer and the frozen parameters of the run "
                            "that saved it, or start anew from its weights: shoal checkpoint export, then "
                            "import.",
                            name_of(kind), few(names)));
  }
  return wanted;
}

// Kinds that were saved and have no place in the sink, as its trained weights tell.
std::vector<StateKind> unused_states(const Manifest& manifest, const StateSink& sink) {
  std::set<StateKind> kept;
  for (const StateRun& run : sink.runs) {
    if (run.numel > 0 && sink.params[run.param].trainable) kept.insert(run.kind);
  }
  std::vector<StateKind> unused;
  for (const StateKind kind : manifest.states) {
    if (!kept.empty() && !kept.contains(kind)) unused.push_back(kind);
  }
  return unused;
}

// What the sink keeps in 16 bits and was saved in another dtype; "": nothing.
std::string rounded_states(const Manifest& manifest, const StateSink& sink) {
  std::unordered_map<std::string, DType> narrow;  // weights that are their own masters
  for (const ParamInfo& param : sink.params) {
    if (sink.kept.narrow_masters && param.trainable && param.dtype != DType::f32) narrow[param.name] = param.dtype;
  }
  std::set<std::string> rounded;
  const auto compare = [&](const char* what, DType saved, DType kept) {
    if (saved != kept) rounded.insert(fmt::format("{} from {} to {}", what, name_of(saved), name_of(kept)));
  };
  for (const Piece& piece : manifest.pieces) {
    const auto weight = narrow.find(manifest.params[piece.param].name);
    if (piece.kind == StateKind::weight) {
      if (weight != narrow.end()) compare("weights", piece.dtype, weight->second);
    } else if (sink.kept.moments != DType::f32) {
      compare("moments", piece.dtype, sink.kept.moments);
    }
  }
  return join({rounded.begin(), rounded.end()}, " and ");
}

// Where training starts, moments are zero.
void zero_moments(const StateSink& sink) {
  std::vector<float> zeros;
  for (const StateRun& run : sink.runs) {
    if (run.kind == StateKind::weight) continue;
    for (int64_t at = 0; at < run.numel; at += kPieceNumel) {
      const int64_t numel = std::min(kPieceNumel, run.numel - at);
      zeros.resize(static_cast<size_t>(std::max(numel, static_cast<int64_t>(zeros.size()))), 0.0f);
      sink.write({run.param, run.kind, run.begin + at, numel}, zeros.data());
    }
  }
}

// Files one after the other, from their beginning to their end.
void read_pieces(const Manifest& manifest, const std::string& path, const StateSink& sink, const Wanted& wanted) {
  std::vector<const Piece*> pieces;
  for (const Piece& piece : manifest.pieces) pieces.push_back(&piece);
  std::sort(pieces.begin(), pieces.end(), [](const Piece* a, const Piece* b) {
    return std::pair(a->file, a->offset) < std::pair(b->file, b->offset);
  });
  std::unique_ptr<DurableFile> file;  // opened when something in it is wanted
  int open_index = -1;
  for (const Piece* piece : pieces) {
    const auto runs = wanted.find({piece->param, piece->kind});
    if (runs == wanted.end()) continue;
    std::vector<float> values;
    for (const StateRun& run : runs->second) {
      const int64_t begin = std::max(run.begin, piece->begin);
      const int64_t end = std::min(run.begin + run.numel, piece->begin + piece->numel);
      if (begin >= end) continue;
      if (open_index != piece->file) {
        const std::string& name = manifest.files[piece->file].name;
        file = std::make_unique<DurableFile>(DurableFile::open_read((fs::path(path) / name).string()));
        open_index = piece->file;
      }
      if (values.empty()) values = read_piece(*file, manifest, *piece);
      sink.write({run.param, run.kind, begin, end - begin}, values.data() + (begin - piece->begin));
    }
  }
}

std::vector<uint8_t> random_state_of(const Manifest& manifest, const std::string& path, const Group& world) {
  if (manifest.world != world.size()) return {};
  for (const SavedRandom& random : manifest.randoms) {
    if (random.rank != world.rank()) continue;
    const std::string& name = manifest.files[random.file].name;
    return read_checked(DurableFile::open_read((fs::path(path) / name).string()), random.offset, random.nbytes,
                        random.digest, fmt::format("the random state of rank {}", random.rank));
  }
  return {};
}

}  // namespace

std::string optimizer_in(const std::string& config) {
  if (config.empty()) return "";
  const json::Value root = json::parse(config, "checkpoint config");
  const json::Value* optimizer = root.is_object() ? root.find("optimizer") : nullptr;
  const json::Value* type = optimizer != nullptr && optimizer->is_object() ? optimizer->find("type") : nullptr;
  return type != nullptr && type->is_text() ? type->as_text() : "";
}

Restored load_state(const StateSink& whole, Group& world, const std::string& path) {
  std::string place = "checkpoint load " + path;
  std::string resolved;
  act_together(world, kSubject, place, [&] {
    if (world.rank() == 0) resolved = resolve_checkpoint(path, place);
  });
  resolved = broadcast_text(world, kSubject, resolved);
  place = "checkpoint load " + resolved;

  Restored restored;
  Manifest manifest;
  Wanted wanted;
  StateSink sink = whole;
  // Nothing is written into the sink before every rank knows that the checkpoint fits.
  act_together(world, kSubject, place, [&] {
    manifest = read_manifest(resolved);
    if (world.rank() == 0) check_lengths(resolved, manifest);
    if (manifest.leaves_out_frozen()) sink = trained_part(whole);
    wanted = wanted_of(manifest, sink, match(manifest, sink.params));
  });
  act_together(world, kSubject, place, [&] {
    if (manifest.weights_only) zero_moments(sink);
    read_pieces(manifest, resolved, sink, wanted);
    restored.progress = manifest.progress;
    restored.progress.random_state = random_state_of(manifest, resolved, world);
  });
  restored.loaded = {.path = resolved,
                     .step = manifest.step,
                     .saved_world = manifest.world,
                     .saved_optimizer = optimizer_in(manifest.config),
                     .unused_states = unused_states(manifest, sink),
                     .extra = manifest.extra,
                     .trained_only = manifest.leaves_out_frozen()};
  restored.weights_only = manifest.weights_only;
  if (const std::string rounded = rounded_states(manifest, sink); !rounded.empty() && world.rank() == 0) {
    fmt::print(stderr, "[{}] this run keeps states in 16 bits that were saved in another dtype: rounded {}.\n", place,
               rounded);
  }
  return restored;
}

}  // namespace checkpoint

LoadedCheckpoint load_checkpoint(Engine& engine, Group& world, const std::string& path) {
  checkpoint::StateSink sink;
  sink.params = engine.state().params();
  sink.runs = engine.state().kept();
  sink.write = [&engine](const StateRun& part, const float* values) { engine.state().write(part, values); };
  sink.kept = {moment_dtype(engine.config()), has_narrow_masters(engine.config())};
  checkpoint::Restored restored = checkpoint::load_state(sink, world, path);
  if (restored.weights_only) {
    restored.progress = engine.state().progress();
    restored.progress.random_state.clear();
  }
  engine.state().finish_restore(restored.progress);
  const auto left_out = restored.loaded.extra.find(std::string(checkpoint::kAccumulated));
  if (left_out != restored.loaded.extra.end() && world.rank() == 0) {
    fmt::print(
        stderr,
        "[checkpoint load {}] {} micro-steps of the next step had been accumulated when it was saved and are not "
        "in it: training goes on from step {}.\n",
        restored.loaded.path, left_out->second, restored.loaded.step);
  }
  return restored.loaded;
}

}  // namespace shoal
