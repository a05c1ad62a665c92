// See param_slot.h.
#include "shard/param_slot.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "base/digest.h"
#include "shoal/error.h"
#include "shoal/unit.h"

namespace shoal {

namespace {

c10::Storage storage_over(at::DataPtr data, size_t nbytes) {
  return c10::Storage(c10::Storage::use_byte_size_t(), nbytes, std::move(data), /*allocator=*/nullptr,
                      /*resizable=*/false);
}

at::DataPtr no_data(at::Device device) { return at::DataPtr(nullptr, device); }

c10::Storage throwing_storage(at::DataPtr data, size_t nbytes, const std::string& message) {
  c10::Storage storage = storage_over(std::move(data), nbytes);
  storage.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(message);
  return storage;
}

void delete_slab_owner(void* owner) { delete static_cast<std::shared_ptr<Slab>*>(owner); }
void delete_record(void* record) { delete static_cast<ShardRecord*>(record); }

std::string released_message(const std::string& name) {
  return fmt::format(
      "[parameter {}] is released: its data is sharded over the ranks. Use it inside its unit, or gather "
      "it first (Engine::with_gathered; in Python shoal.gathered).",
      name);
}

}  // namespace

namespace {

at::Tensor placeholder_on(at::Device device, at::IntArrayRef shape, DType dtype) {
  at::Tensor tensor = at::empty({0}, at::TensorOptions(to_scalar_type(dtype)).device(device));
  int64_t numel = 1;
  for (const int64_t extent : shape) numel *= extent;
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(throwing_storage(
      no_data(device), static_cast<size_t>(numel) * nbytes_of(dtype),
      "[parameter] is a placeholder without memory: it gets its values when an engine takes it over."));
  return tensor;
}

}  // namespace

at::Tensor make_placeholder(const std::vector<int64_t>& shape, DType dtype, bool trainable) {
  return placeholder_on(at::kCPU, shape, dtype).set_requires_grad(trainable);
}

at::ScalarType to_scalar_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return at::kFloat;
    case DType::bf16: return at::kBFloat16;
    case DType::f16: return at::kHalf;
  }
  return at::kFloat;
}

DType to_dtype(at::ScalarType type, const std::string& name) {
  switch (type) {
    case at::kFloat: return DType::f32;
    case at::kBFloat16: return DType::bf16;
    case at::kHalf: return DType::f16;
    default:
      throw Error("parameter " + name, fmt::format("has dtype {}. Shoal shards fp32, bf16 and fp16 parameters; convert "
                                                   "it, or make it a buffer.",
                                                   c10::toString(type)));
  }
}

ParamSlot::ParamSlot(at::Tensor param, std::string name, DType dtype, at::Device device)
    : param_(std::move(param)),
      name_(std::move(name)),
      scalar_type_(to_scalar_type(dtype)),
      device_(device),
      trainable_(param_.requires_grad()),
      shape_(param_.sizes().vec()) {
  const size_t nbytes = static_cast<size_t>(param_.numel()) * nbytes_of(dtype);
  storage_ = storage_over(no_data(device_), nbytes);
  released_ = throwing_storage(no_data(device_), nbytes, released_message(name_));
  if (param_.scalar_type() != scalar_type_ || param_.device() != device_ || !param_.is_contiguous() ||
      param_.storage_offset() != 0) {
    // A tensor of the wanted dtype, in the wanted place, with plain strides.
    param_.set_data(placeholder_on(device_, param_.sizes(), dtype));
  }
  param_.unsafeGetTensorImpl()->set_storage_keep_dtype(released_);
}

void ParamSlot::attach(std::byte* data, std::shared_ptr<Slab> owner) {
  if (!attached_ && !is_in_form()) throw_replaced();  // what was put in its place would be lost
  data_ = data;
  owned_ = owner != nullptr;
  at::DataPtr pointer(data, device_);
  if (owner) {
    auto* kept = new std::shared_ptr<Slab>(std::move(owner));
    pointer = at::DataPtr(data, kept, &delete_slab_owner, device_);
  }
  storage_.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(pointer));
  param_.unsafeGetTensorImpl()->set_storage_keep_dtype(storage_);
  version_ = version();
  digest_.reset();
  attached_ = true;
}

void ParamSlot::release() {
  at::TensorImpl* impl = param_.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(released_);
  if (param_.sizes() != shape_ || !param_.is_contiguous()) impl->set_sizes_contiguous(shape_);
  if (param_.storage_offset() != 0) impl->set_storage_offset(0);
  if (owned_ && storage_.use_count() > 1) {
    storage_ =
        storage_over(no_data(device_), storage_.nbytes());  // who has an alias keeps the values, and their memory
  } else {
    storage_.unsafeGetStorageImpl()->set_data_ptr_noswap(no_data(device_));
  }
  attached_ = false;
}

bool ParamSlot::was_written() const {
  if (!attached_) return false;
  return !is_in_form() || version() != version_ || (digest_ && digest() != *digest_);
}

void ParamSlot::watch() {
  if (device_.is_cpu()) digest_ = digest();
}

// A parameter made in inference mode counts no versions.
int64_t ParamSlot::version() const { return param_.is_inference() ? 0 : param_._version(); }

uint64_t ParamSlot::digest() const { return digest_of(storage_.data(), storage_.nbytes()); }

bool ParamSlot::is_in_form() const {
  const at::TensorImpl* impl = param_.unsafeGetTensorImpl();
  const c10::StorageImpl* expected = (attached_ ? storage_ : released_).unsafeGetStorageImpl();
  if (attached_ && storage_.data() != data_) return false;
  return impl->unsafe_storage().unsafeGetStorageImpl() == expected && param_.scalar_type() == scalar_type_ &&
         param_.sizes() == shape_ && param_.is_contiguous() && param_.storage_offset() == 0;
}

void ParamSlot::leave(ShardRecord record) {
  const size_t nbytes = storage_.nbytes();
  auto* kept = new ShardRecord(std::move(record));
  kept->name = name_;
  at::DataPtr pointer(nullptr, kept, &delete_record, device_);
  released_ = throwing_storage(std::move(pointer), nbytes, released_message(name_));
  release();
  // Aliases in a graph that outlives the engine will not be attached again.
  storage_.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(released_message(name_));
}

void ParamSlot::check_unchanged() const {
  if (param_.requires_grad() != trainable_) {
    throw Error("parameter " + name_,
                fmt::format("was {} when the engine was built and is {} now. Build another "
                            "engine after freezing or thawing parameters.",
                            trainable_ ? "trained" : "frozen", trainable_ ? "frozen" : "trained"));
  }
  if (!is_in_form()) throw_replaced();
}

void ParamSlot::throw_replaced() const {
  throw Error(
      "parameter " + name_,
      fmt::format("was replaced, moved or cast, or given other strides, after the engine took it over (it is {} of "
                  "shape [{}] on {} now). Change parameters before the engine is built, or in place through "
                  "Engine::with_gathered, and give other processes copies of them.",
                  c10::toString(param_.scalar_type()), fmt::join(param_.sizes(), ", "), param_.device().str()));
}

void leave_empty(const at::Tensor& param, ShardRecord record) {
  if (!record.shape) record.shape = param.sizes().vec();
  auto* kept = new ShardRecord(std::move(record));
  param.unsafeGetTensorImpl()->set_storage_keep_dtype(
      storage_over(at::DataPtr(nullptr, kept, &delete_record, param.device()), 0));
  param.unsafeGetTensorImpl()->set_sizes_contiguous({0});
}

void restore_shape(const at::Tensor& param) {
  const ShardRecord* found = find_shard_record(param);
  if (found == nullptr || !found->shape) return;
  ShardRecord record = *found;
  param.unsafeGetTensorImpl()->set_sizes_contiguous(*record.shape);
  record.shape.reset();
  ParamSlot(param, record.name, record.flat.dtype, param.device()).leave(std::move(record));
}

const std::byte* ShardRecord::fetch() const {
  home->fetch(unit);
  return home->address(unit) + offset;
}

std::byte* ShardRecord::change() const {
  home->change(unit);
  return home->address(unit) + offset;
}

const ShardRecord* find_shard_record(const at::Tensor& param) {
  if (!param.has_storage()) return nullptr;
  const at::DataPtr& data = param.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  if (data.get_deleter() != &delete_record) return nullptr;
  return static_cast<const ShardRecord*>(data.get_context());
}

void put_in_order(const std::byte* by_rank, const ShardRecord& record, std::byte* whole) {
  const size_t element = nbytes_of(record.flat.dtype);
  for (int rank = 0; rank < record.world(); ++rank) {
    const Cut part = record.part(rank);
    const size_t nbytes = static_cast<size_t>(part.numel()) * element;
    if (nbytes == 0) continue;
    std::memcpy(whole + static_cast<size_t>(part.begin) * element, by_rank + static_cast<size_t>(rank) * nbytes,
                nbytes);
  }
}

}  // namespace shoal
