# Tests against Hugging Face's transformers, label "process": a Python program builds small models and compares what
# model_probe, or the command itself, does with them.
add_executable(model_probe hf/model_probe.cpp)
target_link_libraries(model_probe PRIVATE shoal torchwheel::runtime)
add_test(NAME model_parity_test
  COMMAND ${SHOAL_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/hf/model_parity_test.py $<TARGET_FILE:model_probe>)
add_test(NAME families_test
  COMMAND ${SHOAL_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/hf/families_test.py $<TARGET_FILE:model_probe> $<TARGET_FILE:shoal_cli>)
add_test(NAME finetune_test
  COMMAND ${SHOAL_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/hf/finetune_test.py $<TARGET_FILE:shoal_cli> $<TARGET_FILE:model_probe>)
add_test(NAME chat_test COMMAND ${SHOAL_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/hf/chat_test.py $<TARGET_FILE:shoal_cli>)
add_test(NAME lora_test
  COMMAND ${SHOAL_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/hf/lora_test.py $<TARGET_FILE:shoal_cli> $<TARGET_FILE:model_probe>)
set_tests_properties(model_parity_test families_test finetune_test chat_test lora_test PROPERTIES LABELS process TIMEOUT 900 ENVIRONMENT "OMP_NUM_THREADS=1")
