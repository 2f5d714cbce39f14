// The architectures that a build has code for, as CMake names them: "80-real 90-real 90-virtual".
#pragma once

#include <string>

namespace npu {

// Whether some of the code runs on a device of this compute capability (90 stands for 9.0). Words that name
// no architecture, such as "native", may stand for any; so does a build that names none.
bool has_code_for(const std::string& architectures, int compute_capability);

}  // namespace npu
