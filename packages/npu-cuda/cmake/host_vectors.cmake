# Pointwise ops of the host are vectors of numbers: functions of the C library become instructions where they need not
# report errors, and a multiplication and an addition become one instruction, also in builds of the emulator.
file(GLOB HOST_VECTORS CONFIGURE_DEPENDS csrc/ops/pointwise/host_*.cpp)
set_source_files_properties(${HOST_VECTORS} PROPERTIES
                            COMPILE_OPTIONS "-fno-math-errno;-fno-trapping-math;-ffp-contract=fast")
