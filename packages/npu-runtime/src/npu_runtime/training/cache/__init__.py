"""The cache of training steps: compiled steps on disk, found by the content that they follow from.

In: a step function, its training components, a batch. Out: a `CompileArtifact`, from a file if one has
exactly this content as its key, else traced, and stored. Open `cached_compilation.py` first, then
`step_key.py` (what a key consists of) and `content_hash.py` (how Python objects become one).
"""
