"""The commands, one per module: ``add_to`` adds it to the parser, ``run`` executes it."""
