"""One module per command: ``add_to`` puts it on the command line, ``run`` does what it says."""
