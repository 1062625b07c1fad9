# SPDX-License-Identifier: Apache-2.0
# One target per folder, one way to make it.

# What every target of ours compiles with. Never -ffast-math on the host: -inf and NaN are part of the contract.
add_library(winnow_build_flags INTERFACE)
target_compile_options(winnow_build_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers>)
target_include_directories(winnow_build_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
if(WINNOW_SANITIZE)
  target_compile_options(winnow_build_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${WINNOW_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1>)
  target_link_options(winnow_build_flags INTERFACE -fsanitize=${WINNOW_SANITIZE})
endif()

# winnow_library(formats SOURCES a.cpp b.cpp DEPENDS winnow::core)  ->  winnow::formats
function(winnow_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(winnow_${name} STATIC ${ARG_SOURCES})
  add_library(winnow::${name} ALIAS winnow_${name})
  target_link_libraries(winnow_${name} PUBLIC winnow_build_flags ${ARG_DEPENDS})
endfunction()

# winnow_test(formats_test SOURCES gguf_test.cpp DEPENDS winnow::formats): a GoogleTest program, one CTest
# test. Working directory is the source tree, so that tests name cases/ and models/ by relative paths.
function(winnow_test name)
  if(NOT WINNOW_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE winnow_build_flags GTest::gtest_main ${ARG_DEPENDS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=0 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  # Test programs share the machine with one another: waiting threads must not spin on a CPU that another one needs.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT OMP_WAIT_POLICY=passive)
endfunction()
