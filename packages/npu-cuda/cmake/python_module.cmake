# Finds Python and nanobind, and declares npu_python_module(). Sets NPU_NANOBIND, for people.
# Split: one library for every Python from 3.10, which loads nanobind from the distribution nanobind-backend.
# Otherwise nanobind is linked in, for one Python, or for all from 3.12.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_STRIP_TRAILING_WHITESPACE
                OUTPUT_VARIABLE nanobind_ROOT RESULT_VARIABLE result ERROR_VARIABLE text)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${Python_EXECUTABLE} has no nanobind: pip install nanobind\n${text}")
endif()
find_package(nanobind CONFIG REQUIRED)
execute_process(COMMAND ${Python_EXECUTABLE} -c "import nanobind; print(nanobind.__version__)"
                OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE nanobind_version COMMAND_ERROR_IS_FATAL ANY)

if(NPU_SPLIT STREQUAL "AUTO")
  set(is_split ON)
  if(nanobind_version VERSION_LESS 3)
    set(is_split OFF)
  endif()
else()
  set(is_split ${NPU_SPLIT})
endif()
if(is_split AND nanobind_version VERSION_LESS 3)
  message(FATAL_ERROR "NPU_SPLIT=ON needs nanobind 3, this is ${nanobind_version}: pip install -U nanobind, or NPU_SPLIT=OFF")
endif()
if(is_split)
  set(NPU_NANOBIND "${nanobind_version}, split")
else()
  set(NPU_NANOBIND "${nanobind_version}, linked")
endif()

function(npu_python_module name)
  set(how NOMINSIZE)
  if(is_split)
    list(APPEND how BACKEND_MODULE nanobind_backend)
  else()
    list(APPEND how STABLE_ABI NB_STATIC)
  endif()
  if(NPU_MODE STREQUAL "EMULATE" OR NPU_ASAN)
    list(APPEND how NOSTRIP)  # the emulator and the sanitizer name kernels and variables
  endif()
  nanobind_add_module(${name} ${how} ${ARGN})
endfunction()
