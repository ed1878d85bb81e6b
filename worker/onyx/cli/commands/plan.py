"""`onyx plan`: how Spark would run a job. Needs no server and no Spark."""

from __future__ import annotations

from typing import Annotated, Literal

from onyx.cli.command_line import Option
from onyx.cli.job_file import FileArgument, read_job
from onyx.cli.options import Engine
from onyx.spark.compiler.compile import compile_job
from onyx.spark.compiler.render import render

EngineOption = Annotated[Literal["spark"], Option("--engine", "What is to run the job.")]


def plan(file: FileArgument, engine: EngineOption = "spark") -> None:
    """Print how Spark would run a job: its stages, shuffles, windows and outputs.

    Everything that Spark cannot run is printed with its line and key path.
    """
    job = read_job(file, engine=Engine(engine))
    print(render(compile_job(job), job))
