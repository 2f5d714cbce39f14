"""Plugin system: hook specifications, the plugin manager, the op registry, the interface of backends.

In: the entry points of installed distributions. Out: the ops, passes, backends, runners and commands that
they register. Open `hookspecs.py` first, then `plugin_manager.py`.
"""
