from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakepact.cli.options import Json, pairs
from lakepact.cli.output import print_json, say
from lakepact.errors import InvalidRequest
from lakepact.pipelines.drawing import svg, text
from lakepact.pipelines.loading import load

PipelineFile = Annotated[Path, typer.Argument(metavar="FILE", help="The Python file that declares the pipeline.")]
Params = Annotated[
    list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="A parameter of the pipeline; repeatable.")
]


def graph(
    file: PipelineFile,
    param: Params = None,
    svg_file: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw it into this file instead of printing a tree.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what a pipeline reads and makes. Needs neither a server nor Spark."""
    pipeline = load(file, pairs("--param", param))
    found = pipeline.graph()
    if svg_file is not None:
        try:
            svg_file.write_text(svg(found, pipeline.name), encoding="utf-8")
        except OSError as error:
            raise InvalidRequest(f"{svg_file} cannot be written: {error}") from None
    if json:
        print_json(
            {
                "pipeline": pipeline.name,
                "isolation": pipeline.isolation,
                "externals": list(found.externals),
                "levels": [list(level) for level in found.levels],
                "steps": [
                    {
                        "name": step.name,
                        "kind": step.dataset.kind.value,
                        "mode": None if step.dataset.is_view else step.dataset.mode,
                        "reads": list(step.reads),
                        "checks": [check.name for check in step.dataset.checks],
                    }
                    for step in found.steps.values()
                ],
            }
        )
    elif svg_file is None:
        say(text(found))
    else:
        say(f"{svg_file}: {len(found.steps)} datasets, {len(found.externals)} external inputs")
