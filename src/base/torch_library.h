// Where torch's libraries lie, found through the one that is loaded. No torch header is needed for it.
#pragma once

#include <string>

namespace shoal {

// The folder of libtorch_cpu.so; "" when it is not loaded.
std::string torch_library_folder();

// Loads libtorch_cuda.so from that folder, so that torch can compute on GPUs; programs that stay on the CPU are spared
// the half second. Throws shoal::Error when the wheel has none.
void load_torch_cuda();

}  // namespace shoal
