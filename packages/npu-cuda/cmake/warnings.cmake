# What the compilers of _C complain about. Errors in our own checks only: a compiler of tomorrow knows more warnings.
# Not: vectors as arguments, whose calling convention depends on the instruction set; such functions are all inlined.
set(cxx_warnings -Wall -Wextra -Wpedantic -Wno-psabi)
set(cuda_warnings -Xcompiler=-Wall,-Wextra)
if(NPU_WERROR)
  list(APPEND cxx_warnings -Werror)
  list(APPEND cuda_warnings "SHELL:-Werror all-warnings" -Xcompiler=-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND cxx_warnings -Wno-restrict -Wno-stringop-overflow)  # wrong about strings that are added (GCC bug 105329)
  target_link_options(_C PRIVATE -Wno-stringop-overflow)  # where it optimizes when it links
endif()
target_compile_options(_C PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${cxx_warnings}>" "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_warnings}>")
