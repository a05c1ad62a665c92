// From a request to a model, for every family alike: read the config, declare the parameters, note what others must
// know. A family names it in its Family as &open_decoder<Model>.
//
// Model derives from Decoder, is made by Model(DecoderParts, Config, Weights), and has
//   Config, with vocab, hidden, layers, max_positions and positions_by
//   static Config read_config(const HfConfig&)
//   static FileNames file_names(const Config&)
//   static Weights declare(const Config&, ParameterList&)       every parameter, unit by unit
//   static forecast::DecoderShape shape_of(const Config&)                 how wide it is
//   static std::string export_config(const HfConfig&, const Config&)      the config.json to export
#pragma once

#include <memory>
#include <utility>

#include "models/decoder.h"
#include "models/family.h"

namespace shoal::models {

template <typename Model>
std::unique_ptr<LanguageModel> open_decoder(const OpenRequest& request) {
  const auto config = Model::read_config(request.config);
  ParameterList list(request.weights, Model::file_names(config), request.lora);
  auto weights = Model::declare(config, list);
  DecoderParts parts;
  parts.units = list.finish(request.name);
  parts.info.name = request.name;
  parts.info.origin = request.config.origin();
  if (request.weights.file) parts.info.weights_from = request.weights.path;
  parts.info.vocab = config.vocab;
  parts.info.hidden = config.hidden;
  parts.info.layers = config.layers;
  parts.info.max_positions = config.max_positions;
  parts.info.positions_by = config.positions_by;
  parts.info.numel = list.numel();
  parts.info.lora = list.lora();
  parts.info.byte_tokens = request.byte_tokens;
  parts.info.shape = Model::shape_of(config);
  if (parts.info.lora) parts.info.shape.adapter_numel = parts.info.lora->numel;
  parts.recompute = request.recompute;
  parts.config_json = Model::export_config(request.config, config);
  return std::make_unique<Model>(std::move(parts), config, std::move(weights));
}

}  // namespace shoal::models
