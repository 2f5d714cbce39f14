#include "core/attr_schema.h"

namespace npu {

std::string AttrSchema::format() const {
  std::string text = "<";
  for (const AttrField& field : fields) text += field.code;
  return text;
}

}  // namespace npu
