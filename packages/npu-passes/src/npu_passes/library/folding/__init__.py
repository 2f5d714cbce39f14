"""Passes that evaluate constants and fold layers into weights.

In: any graph; weights stay symbolic. Out: constants, and prologue nodes that compute the folded weights. Open
`conv_bn_folding.py` first.
"""
