# The compiler reads the sources of a folder as one, with the headers that they share once: half of the time that a small
# source takes. So what they declare in anonymous namespaces needs names that differ within a folder, .cu apart from .cpp.
# CMake leaves out sources with options of their own; left out here are those of CUDA that would take one processor longest.
if(NPU_UNITY)
  foreach(source IN LISTS SOURCES)
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(GET folder FILENAME name)
    cmake_path(GET source EXTENSION LAST_ONLY extension)
    if(NOT source MATCHES "/(pointwise|reduce|rows)/.*\\.cu$")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${name}${extension})
    endif()
  endforeach()
  set_target_properties(_C PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endif()
