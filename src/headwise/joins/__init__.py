"""Studies joined: one head in all of them, heads against heads, studies against studies, atlas against atlas.

In reading order: ``columns`` (what each study says of a head as a number), ``usual`` (which are shown first), ``percentiles``,
``neighbours``, ``dossier`` (everything known of one head), ``shuffles`` and ``agreement`` (do studies agree?), ``comparison``
(what did change between two atlases?). Pure functions from an atlas to dataclasses, figures and words; neither torch nor
transformers is imported.
"""

from headwise.joins.agreement import AGREEMENT, Agreement, agreement, agreement_drawn, agreement_figure, agreement_words
from headwise.joins.columns import Column, Columns, columns_of
from headwise.joins.comparison import Comparison, compare, comparison_figure, comparison_words
from headwise.joins.dossier import Dossier, Dossiers, dossier, dossier_words, dossiers
from headwise.joins.neighbours import Neighbour, Neighbourhood
from headwise.joins.percentiles import percentiles, with_percentiles
from headwise.joins.usual import usual_columns

__all__ = [
    "AGREEMENT", "Agreement", "Column", "Columns", "Comparison", "Dossier", "Dossiers", "Neighbour", "Neighbourhood",
    "agreement", "agreement_drawn", "agreement_figure", "agreement_words", "columns_of", "compare", "comparison_figure",
    "comparison_words", "dossier", "dossier_words", "dossiers", "percentiles", "usual_columns",
    "with_percentiles",
]  # fmt: skip
