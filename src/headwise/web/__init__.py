"""An atlas as pages: the report (one file, opened from disk) and the explorer (the same pages, served).

In reading order: ``methods`` and ``chapters`` (what is said of each study, and which of its figures are shown), ``card`` and
``columns`` (the model, the table of heads), ``content`` (an atlas as plain dicts, by path), ``page`` (the HTML around the
front end in ``assets/``), ``report`` (all of it in one file).

Nothing here measures, draws on paper, or needs torch; a number on a page is a number of the atlas.
"""
