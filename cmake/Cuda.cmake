# CUDA is optional. Three things are looked for, each with its own variable:
#
#   MW_HAVE_CUDA_HEADERS  cuda_runtime_api.h, cublasLt.h and nccl.h: the host
#                         code of exec/cuda compiles, and its tests run on the
#                         stand-in of tests/shim, without driver or GPU
#   MW_HAVE_CUDA          nvcc (12 or newer), the libraries and NCCL too: the
#                         module mw_cuda.so is built
#   MW_HAVE_CXX           a C++17 compiler: tests run the kernels in a thread
#                         emulator
#
# MW_CUDA=OFF builds no module (the stand-in tests stay); ON makes a missing
# piece an error; AUTO builds what can be built.
include(CheckLanguage)

set(MW_CUDA AUTO CACHE STRING "The CUDA module: AUTO, ON or OFF")
set(MW_CUDA_ARCHITECTURES "80-real;90-real;100-real;100-virtual" CACHE STRING
    "Architectures of the CUDA kernels (A100, H100/H200, B200 and newer)")
set(mw_cuda_roots $ENV{CUDA_PATH} $ENV{CUDA_HOME} /usr/local/cuda)

find_path(MW_CUDA_INCLUDE_DIR cuda_runtime_api.h
    HINTS ${mw_cuda_roots} PATH_SUFFIXES include targets/x86_64-linux/include)
find_path(MW_CUBLASLT_INCLUDE_DIR cublasLt.h HINTS ${MW_CUDA_INCLUDE_DIR})
find_path(MW_NCCL_INCLUDE_DIR nccl.h
    HINTS ${MW_CUDA_INCLUDE_DIR} $ENV{NCCL_HOME} PATH_SUFFIXES include)
mark_as_advanced(MW_CUDA_INCLUDE_DIR MW_CUBLASLT_INCLUDE_DIR MW_NCCL_INCLUDE_DIR)
if(MW_CUDA_INCLUDE_DIR AND MW_CUBLASLT_INCLUDE_DIR AND MW_NCCL_INCLUDE_DIR)
    set(MW_HAVE_CUDA_HEADERS ON)
endif()

# Sets MW_CUDA_LACKS to what is missing, or enables the language.
macro(mw_find_cuda)
    find_program(MW_NVCC nvcc HINTS ${mw_cuda_roots} PATH_SUFFIXES bin)
    mark_as_advanced(MW_NVCC)
    if(MW_NVCC AND NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
        set(ENV{CUDACXX} ${MW_NVCC})
    endif()
    check_language(CUDA)
    if(NOT CMAKE_CUDA_COMPILER)
        set(MW_CUDA_LACKS "no working nvcc (PATH, CUDACXX, CUDA_PATH, /usr/local/cuda/bin)")
    else()
        set(CMAKE_CUDA_ARCHITECTURES ${MW_CUDA_ARCHITECTURES})
        enable_language(CUDA)
        find_package(CUDAToolkit 12)
        find_library(MW_NCCL_LIBRARY nccl
            HINTS ${CUDAToolkit_LIBRARY_DIR} ${MW_CUDA_INCLUDE_DIR}/.. $ENV{NCCL_HOME}
            PATH_SUFFIXES lib lib64)
        mark_as_advanced(MW_NCCL_LIBRARY)
        if(NOT CUDAToolkit_FOUND)
            set(MW_CUDA_LACKS "no CUDA toolkit 12 or newer")
        elseif(NOT TARGET CUDA::cublasLt)
            set(MW_CUDA_LACKS "no cublasLt")
        elseif(NOT MW_HAVE_CUDA_HEADERS OR NOT MW_NCCL_LIBRARY)
            set(MW_CUDA_LACKS "no NCCL (NCCL_HOME)")
        else()
            set(MW_HAVE_CUDA ON)
        endif()
    endif()
endmacro()

if(NOT MW_CUDA STREQUAL "OFF")
    mw_find_cuda()
    if(MW_CUDA_LACKS AND MW_CUDA STREQUAL "ON")
        message(FATAL_ERROR "MW_CUDA=ON, but ${MW_CUDA_LACKS}; "
            "install it or configure with -DMW_CUDA=OFF")
    elseif(MW_CUDA_LACKS)
        message(STATUS "CUDA module: not built, ${MW_CUDA_LACKS}")
    else()
        message(STATUS "CUDA module: ${MW_CUDA_ARCHITECTURES}")
    endif()
endif()

if(BUILD_TESTING)
    check_language(CXX)
    if(CMAKE_CXX_COMPILER)
        enable_language(CXX)
        set(MW_HAVE_CXX ON)
    endif()
endif()

# Flags of .cu files: C++17, warnings are errors always (there is one nvcc, not
# the crowd of compilers that -DMW_WERROR=OFF is kind to).
add_library(mw_cuda_flags INTERFACE)
target_include_directories(mw_cuda_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_features(mw_cuda_flags INTERFACE $<$<BOOL:${MW_HAVE_CUDA}>:cuda_std_17>)
target_compile_options(mw_cuda_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Werror>)
