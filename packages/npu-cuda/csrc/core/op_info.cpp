#include "core/op_info.h"

namespace npu {

Status check_given_attrs(const OpInfo& op, const AttrBlob& attrs) {
  const auto given = [&] {
    return "schema " + std::to_string(attrs.schema_id) + " with " + std::to_string(attrs.bytes) + " bytes";
  };
  if (attrs.bytes != 0 && attrs.data == nullptr) return Status::invalid("attributes: " + given() + " at null");
  if (attrs.schema_id == 0 && attrs.bytes == 0) {
    if (!op.attrs_required) return {};
    return Status::invalid(op.name + " has no default attributes: give schema " + op.schema->name + ", format '" +
                           op.schema->format() + "'");
  }
  if (!op.schema) return Status::invalid(op.name + " takes no attributes, not " + given());
  if (attrs.schema_id == op.schema->id && attrs.bytes == op.schema->bytes) return {};
  return Status::invalid(op.name + " takes attributes of schema " + op.schema->name + " (" +
                         std::to_string(op.schema->id) + "), " + std::to_string(op.schema->bytes) + " bytes" +
                         (op.schema->fields.empty() ? "" : ", format '" + op.schema->format() + "'") + ", not " + given());
}

}  // namespace npu
