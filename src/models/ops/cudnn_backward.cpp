// See cudnn_backward.h. The only file that sees cuDNN's frontend: headers alone, compiled with hidden symbols, since
// torch's library exports some of another version. libcudnn is the one that torch has loaded.
#include "models/ops/cudnn_backward.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <cudnn_frontend.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/cuda.h"
#include "models/ops/attention_pieces.h"
#include "models/ops/launch.h"
#include "shoal/error.h"

void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace shoal::models::ops {

namespace {

namespace fe = cudnn_frontend;
using at::Tensor;

// The tensors of a call.
enum Place : size_t { kGrad, kQ, kK, kV, kOut, kSums, kQGrad, kKGrad, kVGrad, kPlaces };
using Tensors = std::array<Tensor, kPlaces>;

bool is_of_kv(size_t place) { return place == kK || place == kV || place == kKGrad || place == kVGrad; }

int64_t id_of(size_t place) { return static_cast<int64_t>(place) + 1; }  // in a graph

struct Layout {
  std::vector<int64_t> dims, strides;
};

Layout layout_of(const Tensors& tensors, size_t place) {
  const Tensor& x = tensors[place];
  if (place != kSums) return {x.sizes().vec(), x.strides().vec()};
  const int64_t heads = x.size(1), time = x.size(2);
  return {{x.size(0), heads, time, 1}, {heads * time, time, 1, 1}};  // cuDNN takes no other strides of these
}

std::vector<int64_t> key_of(const Tensors& tensors, float scale) {
  std::vector<int64_t> key = {std::bit_cast<int32_t>(scale), static_cast<int64_t>(tensors[kQ].scalar_type())};
  for (size_t place = 0; place < kPlaces; ++place) {
    const Layout layout = layout_of(tensors, place);
    key.insert(key.end(), layout.dims.begin(), layout.dims.end());
    key.insert(key.end(), layout.strides.begin(), layout.strides.end());
  }
  return key;
}

struct Plan {
  fe::graph::Graph graph;
  int64_t workspace_nbytes = 0;
};

void describe(fe::graph::Graph& graph, const Tensors& tensors, float scale) {
  const auto type = tensors[kQ].scalar_type() == at::kBFloat16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
  graph.set_io_data_type(type)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto input = [&](Place place) {
    const Layout layout = layout_of(tensors, place);
    return graph.tensor(fe::graph::Tensor_attributes()
                            .set_name(fmt::format("{}", static_cast<int>(place)))
                            .set_uid(id_of(place))
                            .set_dim(layout.dims)
                            .set_stride(layout.strides)
                            .set_data_type(place == kSums ? fe::DataType_t::FLOAT : type));
  };
  const auto options = fe::graph::SDPA_backward_attributes()
                           .set_name("backward")
                           .set_attn_scale(scale)
                           .set_causal_mask(true)
                           .set_deterministic_algorithm(true);
  const auto grads =
      graph.sdpa_backward(input(kQ), input(kK), input(kV), input(kOut), input(kGrad), input(kSums), options);
  for (size_t i = 0; i < grads.size(); ++i) {
    const Layout layout = layout_of(tensors, kQGrad + i);
    grads[i]->set_output(true).set_uid(id_of(kQGrad + i)).set_dim(layout.dims).set_stride(layout.strides);
  }
}

// Null, and why, where cuDNN has no plan, or one with a larger workspace than the memory plan counts.
std::unique_ptr<Plan> build(cudnnHandle_t handle, int compute, const Tensors& tensors, float scale, size_t planned,
                            std::string* why) try {
  auto plan = std::make_unique<Plan>();
  fe::graph::Graph& graph = plan->graph;
  graph.set_sm_version(compute);
  describe(graph, tensors, scale);
  fe::error_t error = graph.validate();
  if (error.is_good()) error = graph.build_operation_graph(handle);
  if (error.is_good()) error = graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK});
  if (error.is_good()) error = graph.check_support();
  if (error.is_good()) error = graph.build_plans();
  if (error.is_good()) error = graph.get_workspace_size(plan->workspace_nbytes);
  if (error.is_bad()) {
    *why = error.get_message();
    return nullptr;
  }
  constexpr size_t kSpare = size_t{16} << 20;  // for alignment
  if (static_cast<size_t>(plan->workspace_nbytes) > planned + kSpare) {
    *why = fmt::format("its workspace would be {} bytes, not {}", plan->workspace_nbytes, planned);
    return nullptr;
  }
  return plan;
} catch (const std::exception& error) {  // the frontend throws where a library lacks a function
  *why = error.what();
  return nullptr;
}

// What a GPU has of cuDNN: a handle, and a plan for each layout of tensors that came. They are few, since
// attention_pieces.h takes few lengths.
struct OnGpu {
  cudnnHandle_t handle = nullptr;  // null: not taken there
  int compute = 0;
  std::map<std::vector<int64_t>, std::unique_ptr<Plan>> plans;  // null: FlashAttention's, in every step

  explicit OnGpu(int device) {
    const cuda::DeviceFacts facts = cuda::facts_of(device);
    constexpr int kHopper = 9;
    if (facts.major != kHopper) return;
    if (fe::cudnn_dlhandle == nullptr) fe::cudnn_dlhandle = ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_NOLOAD);
    if (fe::cudnn_dlhandle == nullptr) return;  // a torch without it
    compute = 10 * facts.major + facts.minor;
    if (fe::detail::create_handle(&handle) != CUDNN_STATUS_SUCCESS) {
      throw Error("cuDNN", "no handle can be made for attention's backward. Is the GPU's memory full?");
    }
  }

  Plan* plan_for(const Tensors& tensors, double scale, size_t planned) {
    const auto [place, is_new] = plans.try_emplace(key_of(tensors, static_cast<float>(scale)));
    if (is_new) {
      std::string why;
      place->second = build(handle, compute, tensors, static_cast<float>(scale), planned, &why);
      if (place->second == nullptr) {
        const Tensor& q = tensors[kQ];
        fmt::print(stderr, "shoal: FlashAttention's backward instead of cuDNN's, of {} x {} heads, {} x {}: {}\n",
                   q.size(0), q.size(1), q.size(2), q.size(3), why);
      }
    }
    return place->second.get();
  }
};

// Of the process, for all threads: cuDNN's own caches are too. Never given back, since a driver that is on its way out
// takes no calls.
struct Shared {
  std::mutex mutex;  // held while a call is made, not while it runs
  std::map<int, OnGpu> gpus;
};
Shared& shared() {
  static Shared& only = *new Shared;
  return only;
}

// cuDNN reads 16 bytes at once.
bool has_strides_for_cudnn(const Tensor& x) {
  constexpr int64_t kElements = 8;
  for (int64_t dim = 0; dim < 3; ++dim) {
    if (x.stride(dim) <= 0 || x.stride(dim) % kElements != 0) return false;
  }
  return x.stride(3) == 1 && x.storage_offset() % kElements == 0;
}

// Like what projections give: heads of a token side by side.
Tensor gradient_of(const Tensor& x) {
  return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}

Tensors part_of(const Tensors& whole, int64_t row, int64_t rows, int64_t head, int64_t heads, int64_t group) {
  Tensors part;
  for (size_t place = 0; place < kPlaces; ++place) {
    const int64_t each = is_of_kv(place) ? 1 : group;
    part[place] = whole[place].narrow(0, row, rows).narrow(1, head * each, heads * each);
  }
  return part;
}

struct Call {
  Plan* plan;
  Tensors tensors;
};

void make(const Call& call, cudnnHandle_t handle, const Tensor& workspace) {
  std::unordered_map<int64_t, void*> pointers;
  for (size_t place = 0; place < kPlaces; ++place) {
    pointers[id_of(place)] = call.tensors[place].data_ptr();
  }
  fe::error_t error = call.plan->graph.execute(handle, pointers, workspace.data_ptr());
  if (error.is_bad()) {
    throw Error("cuDNN",
                fmt::format("attention's backward failed: {}. Train without --deterministic.", error.get_message()));
  }
}

}  // namespace

bool has_cudnn_backward() { return true; }

std::optional<AttentionGrads> cudnn_backward(const AttentionBackward& of) {
  const AttentionShape shape = {of.q.size(0), of.q.size(1), of.k.size(1), of.q.size(2), of.q.size(3)};
  const AttentionPiece piece = piece_of(shape);
  if (piece.is_none()) return std::nullopt;
  for (const Tensor& x : {of.q, of.k, of.v, of.out}) {
    if (!has_strides_for_cudnn(x)) return std::nullopt;
  }
  const at::DeviceGuard guard(of.q.device());
  Shared& all = shared();
  const std::lock_guard lock(all.mutex);
  const int index = of.q.device().index();
  OnGpu& gpu = all.gpus.try_emplace(index, index).first->second;
  if (gpu.handle == nullptr) return std::nullopt;

  const AttentionGrads grads = {gradient_of(of.q), gradient_of(of.k), gradient_of(of.v)};
  const Tensors whole = {has_strides_for_cudnn(of.grad) ? of.grad : of.grad.contiguous(),
                         of.q,
                         of.k,
                         of.v,
                         of.out,
                         of.sums,
                         grads.q,
                         grads.k,
                         grads.v};
  std::vector<Call> calls;
  int64_t workspace_nbytes = 0;
  for (int64_t row = 0; row < shape.batch; row += piece.batch) {
    for (int64_t head = 0; head < shape.kv_heads; head += piece.kv_heads) {
      Tensors part = part_of(whole, row, std::min(piece.batch, shape.batch - row), head,
                             std::min(piece.kv_heads, shape.kv_heads - head), shape.heads / shape.kv_heads);
      Plan* plan = gpu.plan_for(part, of.scale, piece_workspace_nbytes(shape));
      if (plan == nullptr) return std::nullopt;
      workspace_nbytes = std::max(workspace_nbytes, plan->workspace_nbytes);
      calls.push_back({plan, std::move(part)});
    }
  }
  const Tensor workspace = at::empty({workspace_nbytes}, of.q.options().dtype(at::kByte));
  if (fe::detail::set_stream(gpu.handle, static_cast<cudaStream_t>(stream_of(of.q))) != CUDNN_STATUS_SUCCESS) {
    throw Error("cuDNN", "attention's backward cannot be queued on this stream. Train without --deterministic.");
  }
  for (const Call& call : calls) make(call, gpu.handle, workspace);
  return grads;
}

}  // namespace shoal::models::ops
