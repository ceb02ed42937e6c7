# Compiler settings of the project and the two functions that define its targets.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

find_program(MINISGL_CCACHE ccache)
if(MINISGL_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MINISGL_CCACHE})
endif()

add_library(minisgl_options INTERFACE)
# -Wno-restrict: g++ 12 warns of its own string concatenation (GCC bug 105651).
# -ffp-contract=off: a fused multiply-add happens only where the code asks for one. The numerics contract (docs/numerics.md)
# promises the same bits for every batch, so the compiler must not choose.
target_compile_options(minisgl_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>;-ffp-contract=off;$<$<BOOL:${MINISGL_WERROR}>:-Werror>>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra;$<$<BOOL:${MINISGL_WERROR}>:-Werror=all-warnings>>")
target_include_directories(minisgl_options INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
if(MINISGL_CUDA)
  # MINISGL_CUDA is for the few places of C++ code that choose a device; everything else of CUDA lives in files of its own.
  target_compile_definitions(minisgl_options INTERFACE MINISGL_CUDA)
  target_link_libraries(minisgl_options INTERFACE CUDA::cudart_static)
  add_custom_target(cuda)
endif()
if(MINISGL_SANITIZE)
  target_compile_options(minisgl_options INTERFACE -fsanitize=${MINISGL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(minisgl_options INTERFACE -fsanitize=${MINISGL_SANITIZE})
endif()

# minisgl_library(<folder> SOURCES <files> [CUDA_SOURCES <files>] [DEPS <targets>] [PRIVATE_DEPS <targets>])
# The static library minisgl_<folder> of src/<folder>. Headers are included as "<folder>/<file>.h". DEPS names what its headers include,
# PRIVATE_DEPS what only its sources do; tests/scripts/test_dependencies.sh compares them with the includes. CUDA_SOURCES are part of it in a build
# with MINISGL_CUDA only; the target `cuda` builds every folder that has some.
function(minisgl_library folder)
  cmake_parse_arguments(ARG "" "" "SOURCES;CUDA_SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(minisgl_${folder} STATIC ${ARG_SOURCES})
  target_link_libraries(minisgl_${folder} PUBLIC minisgl_options ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  if(MINISGL_CUDA AND ARG_CUDA_SOURCES)
    target_sources(minisgl_${folder} PRIVATE ${ARG_CUDA_SOURCES})
    add_dependencies(cuda minisgl_${folder})
  endif()
endfunction()

# minisgl_test(<folder> SOURCES <files> DEPS <targets>)
# The GoogleTest program test_<folder>, registered with ctest case by case. Cases of suites named Long*, with parameters or
# without, carry the label `long`: they run only in scripts/test.sh --long.
function(minisgl_test folder)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(test_${folder} ${ARG_SOURCES})
  target_link_libraries(test_${folder} PRIVATE minisgl_options ${ARG_DEPS} GTest::gtest GTest::gtest_main)
  # Tests need little speed of their own, and compile twice as fast without the optimiser's later passes.
  target_compile_options(test_${folder} PRIVATE $<$<CONFIG:Release>:-O1>)
  target_include_directories(test_${folder} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(test_${folder} PRIVATE MINISGL_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
                                                    MINISGL_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(test_${folder} TEST_PREFIX ${folder}/ TEST_FILTER "-Long*:*/Long*" DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
  gtest_discover_tests(test_${folder} TEST_PREFIX ${folder}/ TEST_FILTER "Long*:*/Long*" TEST_LIST test_${folder}_long DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 3600 LABELS long)
endfunction()
