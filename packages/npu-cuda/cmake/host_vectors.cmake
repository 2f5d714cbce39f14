# The host computes with vectors of numbers: functions of the C library become instructions where they need not report
# errors, and a multiplication and an addition become one instruction, also in builds of the emulator. Calls go through
# pointers, so that there is nothing to optimize across files. The headers of GCC 12 for AVX-512 warn of themselves (GCC
# bug 105593). Optimized in quick builds, too: those for `nox -s tests` are to have the loops of a release, and with
# AddressSanitizer GCC 12 misaligns vectors at -O0.
file(GLOB HOST_VECTORS CONFIGURE_DEPENDS csrc/ops/pointwise/host_*.cpp csrc/ops/reduce/host_*.cpp csrc/ops/rows/host_*.cpp
     csrc/ops/gemm/host_*.cpp csrc/ops/conv/host_*.cpp csrc/ops/attention/host_*.cpp
     csrc/ops/quantized/host_*.cpp csrc/ops/recurrent/host_*.cpp)
if(NPU_MODE STREQUAL "EMULATE")
  set(host_level -O1)
else()
  set(host_level "$<$<CONFIG:Release>:-O3>")
endif()
set_source_files_properties(${HOST_VECTORS} PROPERTIES COMPILE_OPTIONS
                            "${host_level};-fno-math-errno;-fno-trapping-math;-ffp-contract=fast;-Wno-maybe-uninitialized;-fno-lto")
# Here a product and a sum are rounded one by one, as the ops of PyTorch round them that this one stands for.
file(GLOB HOST_ROUNDED CONFIGURE_DEPENDS csrc/ops/rotary/host_*.cpp)
set_source_files_properties(${HOST_ROUNDED} PROPERTIES COMPILE_OPTIONS
                            "${host_level};-fno-math-errno;-fno-trapping-math;-ffp-contract=off;-fno-lto")
