"""Kinds of endpoints: a folder for each, which holds all that a kind is.

    labels.py      how a table's cells are read, counted, spread over folds, and compared in pairs
    heads.py       what a network's head puts out: width, loss, score, and what a map explains
    regression.py  the penalised regression of the controls, once and on many permuted labels
    judging.py     what is measured of a model's predictions, with figures and words

Code elsewhere asks `kind.labels(endpoint)`, `heads.of(endpoint)`, `regressions.of(endpoint)` or `judging.of(endpoint)`, and never
which kind it is.
"""
