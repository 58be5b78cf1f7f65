"""Kinds of endpoints: a folder for each, which holds all that a kind is. Each file's PART is of a class of the file behind it.

    labels.py      how cells are read, counted, spread over folds, and compared in pairs      kinds/kind.py: Labels
    heads.py       what a network's head puts out: loss, score, and what a map explains        model/heads.py: HeadKind
    regression.py  the controls' penalised regression, once and on many sets of labels         predictors/regressions.py
    measures.py    what is measured of a model's predictions                                   report/numbers/measures.py
    words.py       verdicts, tables and Methods in words                                       report/words/of_kind.py
    figures.py     the report's figures                                                        report/figures/of_kind.py
    shown.py       a new patient's prediction                                                  finished/of_kind.py

Code elsewhere asks `kind.labels(endpoint)`, `heads.of(endpoint)` and so on, and never which kind it is.
"""
