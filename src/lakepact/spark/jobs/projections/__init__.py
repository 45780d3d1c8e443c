"""Projections: ordinary tables that answer what changed, when, by whom, from what, and how good it was.

layout    where receipts lie, and which days are read
checking  whether packed days are whole
reading   receipts as rows
choosing  each once, whole transactions only
rows      what they become in the tables that are added to
current   what they make of the tables that say what is now; metadata: what these need besides
position  how far it has come
job       all of it, in one transaction
"""

from lakepact.spark.jobs.projections.job import Projected, project

__all__ = ["Projected", "project"]
