# What the sources of _C are compiled and linked with, in each mode. Sets NPU_SANITIZER.
if(NPU_WITH_CUDA)
  target_compile_definitions(_C PRIVATE NPU_WITH_CUDA)
endif()

if(NPU_NARROW)
  target_compile_definitions(_C PRIVATE NPU_NARROW)
endif()

set(low_level -O1)
if(NPU_QUICK)
  set(low_level -O0)
  if(NOT NPU_MODE STREQUAL "EMULATE")
    target_compile_options(_C PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-O1>")
  endif()
endif()

if(NPU_MODE STREQUAL "ON")
  # Named here because nanobind links C++: CMake adds the runtime by itself only where CUDA links.
  target_link_libraries(_C PRIVATE CUDA::cudart_static)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8 AND NOT NPU_QUICK)  # drivers since 12.4 unpack it
    target_compile_options(_C PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=size>")
  endif()
  # Their host code checks calls and launches kernels, a thousand times: optimized, a launch takes the same time. Said to
  # nvcc, which passes its own level behind that of -Xcompiler; kernels are optimized whatever it is.
  string(REPLACE "-O3" ${low_level} CMAKE_CUDA_FLAGS_RELEASE "${CMAKE_CUDA_FLAGS_RELEASE}")
  if(NPU_QUICK)
    target_compile_options(_C PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--Ofast-compile=max>")
  endif()
  # Numbers are rounded as the expressions say, so that a chain that is compiled at run time gives the same bits.
  file(GLOB ROUNDED CONFIGURE_DEPENDS csrc/ops/pointwise/*.cu csrc/ops/rotary/*.cu)
  set_source_files_properties(${ROUNDED} PROPERTIES COMPILE_OPTIONS "--fmad=false")
  if(NPU_PTXAS_VERBOSE)
    target_compile_options(_C PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v>")
  endif()
elseif(NPU_MODE STREQUAL "EMULATE")
  target_compile_definitions(_C PRIVATE NPU_EMULATE)
  target_include_directories(_C SYSTEM PRIVATE ${NPU_CUDA_INCLUDE})
  # Kernels compute as written: no fused multiply-add, and memory of one type may be read as another's.
  target_compile_options(_C PRIVATE ${low_level} -fno-strict-aliasing -ffp-contract=off -xc++ -Wno-unknown-pragmas)
  set(kernels ${CUDA_SOURCES})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX)
  # Kernels spend most of their time in the switches between their threads. Those have memory of their own, which the
  # sanitizer need not check; the switch itself reports to it.
  set_source_files_properties(${EMULATOR_SOURCES} PROPERTIES COMPILE_OPTIONS "-O1")
  set_source_files_properties(csrc/emulator/block.cpp csrc/emulator/kernel_launch.cpp PROPERTIES
                              COMPILE_OPTIONS "-O2;-fno-sanitize=address")
endif()

set(NPU_SANITIZER "")
if(NPU_ASAN)
  set(NPU_SANITIZER address)
  target_compile_options(_C PRIVATE -fsanitize=address -fno-omit-frame-pointer)
  if(NPU_QUICK)
    # Accesses are checked by functions of the sanitizer: code at each of them takes as long to compile as all the rest.
    target_compile_options(_C PRIVATE $<$<CXX_COMPILER_ID:GNU>:--param=asan-instrumentation-with-call-threshold=0>)
  else()
    target_compile_options(_C PRIVATE -g1)  # lines alone of what debuggers want to know: reports name no more
  endif()
  target_link_options(_C PRIVATE -fsanitize=address)
endif()
