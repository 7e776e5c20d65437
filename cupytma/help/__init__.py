"""What an id of this package means: how-tos, rules, findings, errors of CUDA, fence recipes.

`cupytma help ID` prints these texts, and the pages of the documentation are made of them. They are Markdown. How-tos
are files of this package; all else is written from the tables that hold the fact.
"""

from cupytma.help.topic import KINDS, Topic
from cupytma.help.topics import find, names, similar, topics

__all__ = ["KINDS", "Topic", "find", "names", "similar", "topics"]
