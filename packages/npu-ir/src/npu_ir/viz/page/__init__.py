"""Pages of graphs and of differences: one HTML file, with everything to explore them in a browser.

In: a graph or a `GraphDiff`, and overlays: what other commands measured. Out: text of a page that needs no
network. Open `html.py` first, then `tree.py` (nodes by module) and `document.py` (the data of the scripts in
`assets/`); of the scripts, `main.js` first.
"""
