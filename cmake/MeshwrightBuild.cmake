# How the tree is built: warning flags, one-line declarations of modules and tests.
#
#   mw_module(base SOURCES err.c units.c DEPENDS PkgConfig::JANSSON)
#     a static library mw_base; include paths are relative to the root.
#   mw_test(test_units SOURCES test_units.c DEPENDS mw_base LABELS unit [RANKS 2])
#     a cmocka program registered with ctest; RANKS runs it under mpirun.

option(MW_WERROR "Treat warnings as errors" OFF)
set(MW_SANITIZE "" CACHE STRING "Sanitizers, for example address,undefined")
option(MW_COVERAGE "Instrument for gcov" OFF)

set(MW_WARNINGS
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wdouble-promotion
    -Wformat=2 -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla
    -Wcast-align -Wnull-dereference -Wswitch-enum -Wwrite-strings)

add_library(mw_flags INTERFACE)
target_include_directories(mw_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(mw_flags INTERFACE _POSIX_C_SOURCE=200809L)
# Flags are for C alone: generator expressions keep them away from nvcc.
target_compile_options(mw_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:${MW_WARNINGS};-ffp-contract=off;-fno-common>)
if(MW_WERROR)
    target_compile_options(mw_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-Werror>)
endif()
if(MW_SANITIZE)
    target_compile_options(mw_flags INTERFACE
        $<$<COMPILE_LANGUAGE:C>:-fsanitize=${MW_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
    target_link_options(mw_flags INTERFACE -fsanitize=${MW_SANITIZE})
endif()
if(MW_COVERAGE)
    target_compile_options(mw_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:--coverage;-O0>)
    target_link_options(mw_flags INTERFACE --coverage)
endif()

function(mw_module name)
    cmake_parse_arguments(A "" "" "SOURCES;DEPENDS" ${ARGN})
    add_library(mw_${name} STATIC ${A_SOURCES})
    target_link_libraries(mw_${name} PUBLIC mw_flags ${A_DEPENDS})
    set_target_properties(mw_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

# Open MPI as root, quietly, with more ranks than cores (docs/dependencies.md).
set(MW_MPI_ENV
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_btl_vader_single_copy_mechanism=none
    OMPI_MCA_rmaps_base_oversubscribe=1 OPENBLAS_NUM_THREADS=1)

function(mw_test name)
    cmake_parse_arguments(A "" "RANKS;TIMEOUT" "SOURCES;DEPENDS;LABELS;ARGS" ${ARGN})
    add_executable(${name} ${A_SOURCES})
    target_link_libraries(${name} PRIVATE mw_flags ${A_DEPENDS} PkgConfig::CMOCKA)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    if(A_RANKS)
        add_test(NAME ${name} COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe
                 ${MPIEXEC_NUMPROC_FLAG} ${A_RANKS} $<TARGET_FILE:${name}> ${A_ARGS})
        set_tests_properties(${name} PROPERTIES RUN_SERIAL ON
            ENVIRONMENT "${MW_MPI_ENV};ASAN_OPTIONS=detect_leaks=0")
    else()
        add_test(NAME ${name} COMMAND ${name} ${A_ARGS})
    endif()
    if(NOT A_LABELS)
        set(A_LABELS unit)
    endif()
    if(NOT A_TIMEOUT)
        set(A_TIMEOUT 300)
    endif()
    set_tests_properties(${name} PROPERTIES LABELS "${A_LABELS}"
        SKIP_RETURN_CODE 77 TIMEOUT ${A_TIMEOUT})
endfunction()

# A script test: runs the file with the path of the built command in MESHWRIGHT.
function(mw_script_test name script)
    cmake_parse_arguments(A "SERIAL" "TIMEOUT" "LABELS;ARGS" ${ARGN})
    add_test(NAME ${name} COMMAND ${script} ${A_ARGS}
             WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77
        ENVIRONMENT "MESHWRIGHT=$<TARGET_FILE:meshwright>;MW_SOURCE=${PROJECT_SOURCE_DIR};${MW_MPI_ENV}")
    if(A_SERIAL)
        set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    endif()
    if(NOT A_LABELS)
        set(A_LABELS cli)
    endif()
    if(NOT A_TIMEOUT)
        set(A_TIMEOUT 300)
    endif()
    set_tests_properties(${name} PROPERTIES LABELS "${A_LABELS}" TIMEOUT ${A_TIMEOUT})
endfunction()
