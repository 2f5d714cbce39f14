# Optimizes the C++ of _C as a whole: a call of an op passes through many small functions of several files. Not in builds
# for tests, where names and lines of single functions count.
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT NPU_MODE STREQUAL "EMULATE" AND NOT NPU_ASAN AND NOT NPU_QUICK)
  include(CheckIPOSupported)
  check_ipo_supported(RESULT is_link_time_supported OUTPUT why_not LANGUAGES CXX)
  if(is_link_time_supported)
    # Not by INTERPROCEDURAL_OPTIMIZATION, which would mean CUDA, too.
    target_compile_options(_C PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${CMAKE_CXX_COMPILE_OPTIONS_IPO}>")
    target_link_options(_C PRIVATE ${CMAKE_CXX_COMPILE_OPTIONS_IPO})
  endif()
endif()
