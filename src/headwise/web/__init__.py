"""An atlas as pages: the report (one file, opened from disk) and the explorer (the same pages, served).

In reading order: ``methods`` and ``chapters`` (each study's question, method and figures), ``model_card`` (model, data and
versions), ``study_page``, ``content`` (an atlas as JSON, by path), ``html_page`` (the HTML around the front end in
``assets/``), ``report`` (all of it in one file).

Nothing here measures or needs torch; every number on a page is a number of the atlas.
"""
