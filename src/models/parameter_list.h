// A model declares its parameters here, unit by unit; the list makes them, without memory, and finds out where their
// first values come from. With a file it holds the two against each other: what is missing, what is too much, what has
// another shape, all in one error.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/stored_pieces.h"
#include "models/adapters.h"
#include "models/lora.h"
#include "models/value_sources.h"

namespace shoal::models {

struct WeightsOrigin {
  std::shared_ptr<const SafetensorsReader> file = nullptr;  // null: random
  std::string path = {};                                    // of the file or folder, for messages
  uint64_t seed = 0;                                        // without a file
};

// What a family knows about the names in its files.
struct FileNames {
  std::string base_prefix;                    // that a file of the bare model leaves out: "model."
  std::vector<std::string> ignored_suffixes;  // tables in old files that are no parameters
};

// What a matrix says of itself where it may have adapters.
struct AdaptedMatrix {
  int64_t out = 0, in = 0;
  bool makes_qv = false;    // queries or values are among what it makes
  bool transposed = false;  // it lies [in, out]
};

class ParameterList {
 public:
  // With `lora` everything that a family adds is frozen, and its adapters are trained.
  ParameterList(WeightsOrigin origin, FileNames names, const std::optional<LoraSpec>& lora = std::nullopt);

  void begin_unit(const std::string& name);
  // A parameter of the unit begun last, fp32.
  at::Tensor add(const std::string& name, const std::vector<int64_t>& shape, const Init& init);
  // One that files have whole, by its name, or in pieces, which together are all of it. `pieces` is asked only with a
  // file that does not have it whole.
  at::Tensor add_pieced(const std::string& name, const std::vector<int64_t>& shape, const Init& init,
                        const std::function<std::vector<StoredPiece>()>& pieces);
  // The same tensor once more, by another name. A file may hold it, or not.
  void add_tied(const std::string& name, const at::Tensor& tensor);

  // The adapter beside a matrix of the unit begun last, if LoRA gives it one; no file holds it. `module` is the name of
  // the matrix without ".weight".
  Adapter adapt(const std::string& module, const AdaptedMatrix& matrix);
  // Adapters beside this one are not made here: finish() throws where LoRA asks for them.
  void refuse_adapter(const std::string& module);

  // After the last parameter. Throws when the file does not fit, or `model` has not the matrices that LoRA asks for.
  std::vector<Unit> finish(const std::string& model = "the model");
  int64_t numel() const { return numel_; }  // tied ones once, adapters too
  // What became of LoRA, after finish().
  const std::optional<LoraInfo>& lora() const { return made_; }

 private:
  // The name under which the file holds a parameter, or "".
  std::string name_in_file(const std::string& name) const;
  bool is_ignored(const std::string& name) const;
  at::Tensor add(Parameter param, const std::vector<int64_t>& shape, bool trained);
  // One that no file holds, trained.
  at::Tensor add_made(const std::string& name, const std::vector<int64_t>& shape, const Init& init);
  // The values of a tensor that the file has; notes where it is of another shape.
  std::shared_ptr<const ValueSource> file_values(const std::string& in_file, const std::vector<int64_t>& shape);
  // null: the file lacks some, which are noted.
  std::shared_ptr<const ValueSource> pieced_values(const std::vector<StoredPiece>& pieces);

  WeightsOrigin origin_;
  FileNames names_;
  std::optional<LoraTargets> targets_;  // with LoRA
  std::optional<LoraInfo> made_;
  std::vector<Unit> units_;
  int64_t numel_ = 0;
  std::set<std::string> used_;  // names in the file
  std::vector<std::string> missing_;
  std::vector<std::string> misfits_;  // sentences about shapes and dtypes
};

}  // namespace shoal::models
