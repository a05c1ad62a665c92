# Tests of the Python packages, label "process": each file forks its ranks from one process, and tools/run_tests.sh has one
# that all of these are forks of (python/warm.py). The folder of metadata makes
# importlib.metadata find the distribution `deepspeed`, as an installed one would. Where accelerate or trl is missing, their
# tests say so and are counted as skipped. They run on the CPU, also where there is a GPU; gpu_test has the label "cuda" too.
if(NOT shoal_has_python)
  return()
endif()
set(SHOAL_TEST_PYTHON ${SHOAL_PYTHON} CACHE FILEPATH "The python that runs the tests of the Python packages")
file(READ ${CMAKE_SOURCE_DIR}/python/deepspeed/version.py version_text)
string(REGEX MATCH "__version__ = \"([^\"]*)\"" _ "${version_text}")
set(deepspeed_version ${CMAKE_MATCH_1})
set(metadata ${CMAKE_BINARY_DIR}/python_metadata)
file(WRITE ${metadata}/deepspeed-${deepspeed_version}.dist-info/METADATA
     "Metadata-Version: 2.1\nName: deepspeed\nVersion: ${deepspeed_version}\n")
set(run_python_test ${SHOAL_TEST_PYTHON})
if(SHOAL_TEST_PYTHON STREQUAL SHOAL_PYTHON)  # the one that tools/run_tests.sh has loaded
  list(APPEND run_python_test ${CMAKE_CURRENT_SOURCE_DIR}/python/warm.py run)
endif()
foreach(name module deepspeed_loop hf_trainer hf_saving hf_same_bits trl client_optimizer demand package bad_input launcher
        checkpoint_layout checkpoint_safety checkpoint_trust fuzz faults arguments config estimates engine_surface set_grad defer_update beside
        save_later
        names shared_gpus lone_optimizers narrow narrow_states shapes loop_shapes random_loops own_weights other_optimizer loop_mistakes zero_grad leaf_seed hybrid monitor profiler comms_log clusters restart)
  add_test(NAME python_${name}_test COMMAND ${run_python_test} ${CMAKE_CURRENT_SOURCE_DIR}/python/${name}_test.py)
  set_tests_properties(python_${name}_test PROPERTIES LABELS process TIMEOUT 1800 SKIP_RETURN_CODE 77
    ENVIRONMENT "PYTHONPATH=${CMAKE_SOURCE_DIR}/python:${metadata};OMP_NUM_THREADS=1;CUDA_VISIBLE_DEVICES=")
endforeach()
add_test(NAME python_train_log_test
  COMMAND ${SHOAL_TEST_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/python/train_log_test.py $<TARGET_FILE:shoal_cli>)
set_tests_properties(python_train_log_test PROPERTIES LABELS process TIMEOUT 900 SKIP_RETURN_CODE 77
  ENVIRONMENT "OMP_NUM_THREADS=1;CUDA_VISIBLE_DEVICES=")
# The command's page, in a Chromium where there is one.
add_test(NAME python_report_test COMMAND ${SHOAL_TEST_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/python/report_test.py)
set_tests_properties(python_report_test PROPERTIES LABELS process TIMEOUT 900 SKIP_RETURN_CODE 77
  ENVIRONMENT "SHOAL_COMMAND=$<TARGET_FILE:shoal_cli>;CUDA_VISIBLE_DEVICES=")
# Processes of the command: some that are killed (`make kill-test` kills more), and one that computes other bits.
foreach(name kill audit)
  add_test(NAME python_${name}_test COMMAND ${SHOAL_TEST_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/python/${name}_test.py)
endforeach()
set_tests_properties(python_kill_test python_audit_test PROPERTIES LABELS process TIMEOUT 1800 SKIP_RETURN_CODE 77
  ENVIRONMENT "SHOAL_COMMAND=$<TARGET_FILE:shoal_cli>;OMP_NUM_THREADS=1;CUDA_VISIBLE_DEVICES=")
list(APPEND grids python_hf_trainer_test python_hf_saving_test python_checkpoint_layout_test python_module_test
  python_shapes_test python_random_loops_test python_report_test python_hybrid_test python_restart_test)
add_test(NAME python_gpu_test COMMAND ${SHOAL_TEST_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/python/gpu_test.py)
add_test(NAME python_nccl_test COMMAND ${SHOAL_TEST_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/python/nccl_test.py)
set_tests_properties(python_nccl_test PROPERTIES LABELS "process;cuda;nccl" RESOURCE_LOCK gpu TIMEOUT 900 SKIP_RETURN_CODE 77
  ENVIRONMENT "PYTHONPATH=${CMAKE_SOURCE_DIR}/python:${metadata};OMP_NUM_THREADS=1")
set_tests_properties(python_gpu_test PROPERTIES LABELS "process;cuda" RESOURCE_LOCK gpu TIMEOUT 900 SKIP_RETURN_CODE 77
  ENVIRONMENT "PYTHONPATH=${CMAKE_SOURCE_DIR}/python:${metadata};OMP_NUM_THREADS=1")
