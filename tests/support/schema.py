"""The published JSON Schema of documents, and a validator of it."""

import json
from importlib import resources

import jsonschema

SCHEMA = json.loads(
    (resources.files("npu_ir") / "schema" / "npu-ir-1.schema.json").read_text(encoding="utf-8")
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
